//! Places an order: the order row and its saga with one flush of the journal, once per request id.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use chrono::{DateTime, Utc};
use saga::{Begun, Engine, Priority, SagaId, Seq, Standing, Start, StartError};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use uuid::{ContextV7, Timestamp, Uuid};

use crate::{
    checkout::{self, Checkout, progress::OrderRows},
    order::{OrderId, Payment, Placement},
    store::{NewOrder, Order, Store, StoreError},
};

/// An order could not be placed or awaited.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The request id belongs to an order that was asked for with another body.
    #[error("the request id was used before with another body")]
    RequestIdReused,
    /// Too many orders are under way; nothing was begun.
    #[error("too many orders are under way")]
    Overloaded,
    /// The store did not answer in time: the order may be placed. Ask again with the same request id.
    #[error("the store did not answer in time; ask again with the same request id")]
    Unanswered,
    /// The service stops; nothing was begun.
    #[error("the service stops")]
    Stopping,
    /// The database refuses what was asked for, whenever it is asked for.
    #[error("the order cannot be stored")]
    Refused,
    /// The store failed: ask again with the same request id.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal failed: ask again with the same request id.
    #[error(transparent)]
    Journal(#[from] saga::JournalError),
}

/// Places the order, or finds the one that this request id placed; then waits until it rests, at most `patience`.
pub async fn place_order(
    store: &Store,
    engine: &Engine,
    placement: Placement,
    hold_beyond_deadline: Duration,
    patience: Duration,
    traceparent: Option<String>,
) -> Result<Order, PlaceError> {
    let end = Instant::now() + patience;
    let fingerprint = fingerprint(&placement);
    let request_id = placement.request_id.clone();
    let order_id = next_id(engine.now());
    let saga = SagaId::generate();
    let start = Start {
        saga,
        input: Checkout {
            order_id,
            customer_id: placement.customer_id.0.clone(),
            units: placement.units_per_sku(),
            total: placement.total.clone(),
            payment: placement.payment.clone(),
            hold_beyond_deadline_ms: u64::try_from(hold_beyond_deadline.as_millis()).unwrap_or(u64::MAX),
        },
        patience: Some(placement.expire_after),
        attributes: BTreeMap::from([("order.id".to_owned(), order_id.to_string())]),
        traceparent: traceparent.clone(),
        priority: Priority::Ordinary,
    };
    let expires_at = engine.now() + placement.expire_after;
    let new = NewOrder { order_id, placement, fingerprint, traceparent, expires_at };
    // A lost answer to the commit is resolved by the engine. A caller who does not wait for it repeats, and finds the
    // order or places it.
    let begun = engine.start_with::<OrderRows, _>(checkout::KIND, &start, new);
    let Ok(begun) = tokio::time::timeout_at(end, begun).await else {
        return Err(PlaceError::Unanswered);
    };
    match begun {
        Ok(Begun::Yes) => rested(store, engine, order_id, saga, end).await,
        Ok(Begun::Declined) => repeated(store, engine, &request_id.0, fingerprint, end).await,
        Err(StartError::Overloaded(_)) => Err(PlaceError::Overloaded),
        Err(StartError::Stopping) => Err(PlaceError::Stopping),
        Err(StartError::Journal(error)) => Err(error.into()),
        Err(StartError::Refused) => Err(PlaceError::Refused),
        Err(error @ (StartError::UnknownKind(_) | StartError::WrongRow(_))) => {
            unreachable!("the engine was given its definitions: {error}")
        }
    }
}

/// Ids are ordered by the database's time, as lists of orders are: a step of the local clock must not put a new order
/// behind older ones.
fn next_id(now: DateTime<Utc>) -> OrderId {
    static LAST: Mutex<ContextV7> = Mutex::new(ContextV7::new());
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    OrderId(Uuid::new_v7(Timestamp::from_unix(&LAST, seconds, now.timestamp_subsec_nanos())))
}

async fn repeated(
    store: &Store,
    engine: &Engine,
    request_id: &str,
    fingerprint: [u8; 32],
    end: Instant,
) -> Result<Order, PlaceError> {
    let found = store.placed_with(request_id).await?;
    // The insert met a row, and order rows are never deleted.
    let (order, recorded) = found.ok_or(StoreError::Database(sqlx::Error::RowNotFound))?;
    if recorded != fingerprint {
        return Err(PlaceError::RequestIdReused);
    }
    if order.standing.is_final() {
        return Ok(order);
    }
    rested(store, engine, order.order_id, order.saga, end).await
}

/// Waits until the order is confirmed, cancelled, or waits for its payment; or until `end`. Then reads it.
async fn rested(
    store: &Store,
    engine: &Engine,
    order_id: OrderId,
    saga: SagaId,
    end: Instant,
) -> Result<Order, PlaceError> {
    let mut seen = Seq::default();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let after = seen;
        let rests = |standing: &Standing| standing.at_rest && standing.seq > after;
        seen = engine.wait_for(saga, left, rests).await?.map_or(after, |standing| standing.seq);
        let order = store.order(order_id).await?.ok_or(StoreError::Database(sqlx::Error::RowNotFound))?;
        // A saga also rests between attempts to reach a service, which is no rest of the order.
        if order.standing.is_at_rest() || Instant::now() >= end {
            return Ok(order);
        }
    }
}

/// What the request means: lines of one SKU and price merged, sorted; no time, no attempt.
fn fingerprint(placement: &Placement) -> [u8; 32] {
    let mut units: BTreeMap<(&str, i64), i64> = BTreeMap::new();
    for line in &placement.lines {
        *units.entry((&line.sku.0, line.unit_price.0)).or_default() += line.quantity.0;
    }
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        // Lengths keep neighbours apart: "ab" + "c" is not "a" + "bc".
        hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(text.as_bytes());
    };
    part(&placement.customer_id.0);
    part(&placement.total.currency.0);
    match &placement.payment {
        Payment::Now(token) => {
            part("now");
            part(token);
        }
        Payment::Later => part("later"),
    }
    part(&placement.expire_after.as_millis().to_string());
    for ((sku, price), quantity) in units {
        part(sku);
        part(&price.to_string());
        part(&quantity.to_string());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{CallerId, Currency, Line, MinorUnits, Money, Quantity, Sku};

    fn placement(lines: &[(&str, i64, i64)]) -> Placement {
        let line = |&(sku, quantity, price): &(&str, i64, i64)| Line {
            sku: Sku(sku.into()),
            quantity: Quantity(quantity),
            unit_price: MinorUnits(price),
        };
        Placement {
            request_id: CallerId("r".into()),
            customer_id: CallerId(String::new()),
            lines: lines.iter().map(line).collect(),
            total: Money { currency: Currency("GBP".into()), amount: MinorUnits(1) },
            payment: Payment::Later,
            expire_after: Duration::from_secs(60),
        }
    }

    #[test]
    fn order_of_lines_and_their_split_mean_the_same() {
        let one = fingerprint(&placement(&[("A", 3, 10), ("B", 1, 5)]));
        assert_eq!(one, fingerprint(&placement(&[("B", 1, 5), ("A", 1, 10), ("A", 2, 10)])));
        assert_ne!(one, fingerprint(&placement(&[("A", 3, 11), ("B", 1, 5)])));
        assert_ne!(one, fingerprint(&placement(&[("A", 1, 10), ("B", 3, 5)])));
    }

    #[test]
    fn ids_are_ordered_by_the_time_they_are_given() {
        let now = DateTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let ids: Vec<_> = (0..1_000).map(|_| next_id(now)).collect();
        assert!(ids.is_sorted_by(|one, next| one < next), "within one millisecond");
        assert!(next_id(now + Duration::from_millis(1)) > ids[999]);
    }

    #[test]
    fn every_part_of_the_request_counts() {
        let base = placement(&[("A", 1, 10)]);
        let changes: [fn(&mut Placement); 4] = [
            |placement| placement.customer_id.0.push('c'),
            |placement| placement.payment = Payment::Now("t".into()),
            |placement| placement.expire_after += Duration::from_millis(1),
            |placement| placement.total.currency.0 = "EUR".into(),
        ];
        for change in changes {
            let mut other = base.clone();
            change(&mut other);
            assert_ne!(fingerprint(&base), fingerprint(&other), "{other:?}");
        }
    }
}
