//! What a change of a checkout saga means for its order, and the order row's part of the transaction that records it.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use proto::reason;
use saga::{Beginning, Cause, Change, Event, SideRows, Step as _, Verb};
use serde_json::Value;
use sqlx::PgConnection;

use super::{
    confirm::Confirm,
    pay::{Paid, Pay},
    reserve::Reserve,
};
use crate::{
    order::{CancelReason, OrderEvent},
    store::{self, NewOrder},
};

/// One change of an order, as its saga recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderChange {
    /// What happened.
    pub event: OrderEvent,
    /// The payment that counts, if this named it.
    pub payment_id: Option<String>,
    /// The SKUs that stood in the way.
    pub refused_skus: Vec<String>,
}

/// What these events of a saga mean for its order; nothing for most of them. `restarted`: stock was lost once, so a
/// refused reserve means that the hold expired.
pub fn changes(events: &[Event], restarted: bool) -> Vec<OrderChange> {
    let plain = |event| OrderChange { event, payment_id: None, refused_skus: Vec::new() };
    let done = |step: &str, output: &Value| match step {
        Reserve::NAME => Some(plain(OrderEvent::Held)),
        Pay::NAME => Some(OrderChange {
            payment_id: serde_json::from_value(output.clone()).ok().map(|paid: Paid| paid.payment_id),
            ..plain(OrderEvent::Paid)
        }),
        Confirm::NAME => Some(plain(OrderEvent::Sold)),
        _ => None,
    };
    let change = |event: &Event| match event {
        Event::StepDone { step, output, .. } => done(step, output),
        Event::Turned { cause, .. } => Some(OrderChange {
            refused_skus: refused_skus(cause),
            ..plain(OrderEvent::Turned(cancel_reason(cause, restarted)))
        }),
        Event::Operated { verb: Verb::Compensate, actor, reason, refused: None, .. } => {
            let cause = Cause::Operator { actor: actor.clone(), reason: reason.clone() };
            Some(plain(OrderEvent::Turned(cancel_reason(&cause, restarted))))
        }
        Event::Operated { verb: Verb::ResolveStep { step, output, .. }, refused: None, .. } => {
            done(step, output)
        }
        Event::Undone => Some(plain(OrderEvent::Undone)),
        _ => None,
    };
    events.iter().filter_map(change).collect()
}

fn cancel_reason(cause: &Cause, restarted: bool) -> CancelReason {
    match cause {
        Cause::Deadline => CancelReason::PaymentExpired,
        Cause::Cancelled { payload } => payload
            .get("reason")
            .and_then(|reason| CancelReason::parse(reason.as_str()?))
            .unwrap_or(CancelReason::Operator),
        Cause::Exhausted { .. } => CancelReason::Unavailable,
        Cause::Operator { .. } => CancelReason::Operator,
        Cause::Refused { step, .. } if step == Pay::NAME => CancelReason::PaymentDeclined,
        Cause::Refused { step, reason, .. } if step == Reserve::NAME && !restarted => match reason.as_str() {
            reason::INSUFFICIENT_STOCK => CancelReason::InsufficientStock,
            reason::LIMIT_EXCEEDED => CancelReason::LimitExceeded,
            reason::UNKNOWN_SKU => CancelReason::UnknownSku,
            reason::RESERVATION_EXPIRED => CancelReason::ReservationExpired,
            _ => CancelReason::Unavailable,
        },
        Cause::Refused { .. } => CancelReason::ReservationExpired,
    }
}

/// The participant names SKUs in one string, separated by commas; a list that was too long for an error ends in "…".
fn refused_skus(cause: &Cause) -> Vec<String> {
    let Cause::Refused { detail, .. } = cause else { return Vec::new() };
    let names = detail.get("skus").and_then(|skus| skus.as_str()).unwrap_or_default();
    names.split(',').filter(|sku| !sku.is_empty() && !sku.ends_with('…')).map(str::to_owned).collect()
}

/// The order rows of checkouts: written with the saga's beginning, moved with its changes.
pub struct OrderRows;

impl SideRows for OrderRows {
    type Row = NewOrder;

    fn begin<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        beginnings: &'c [Beginning<'c, NewOrder>],
    ) -> BoxFuture<'c, Result<Vec<bool>, sqlx::Error>> {
        Box::pin(async move {
            let orders: Vec<_> = beginnings.iter().map(|beginning| (beginning.saga, beginning.row)).collect();
            store::insert(connection, &orders).await
        })
    }

    fn change<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        recorded: &'c [Change<'c>],
    ) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let by_saga: BTreeMap<_, _> = recorded
                .iter()
                .map(|change| {
                    let restarted =
                        change.state.steps.get(Reserve::NAME).is_some_and(|step| step.restarts > 0);
                    (change.saga, changes(change.events, restarted))
                })
                .filter(|(_, changes)| !changes.is_empty())
                .collect();
            if by_saga.is_empty() { Ok(()) } else { store::apply_changes(connection, &by_saga).await }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_names_its_skus() {
        let detail = json!({ "skus": "85049E,22138" });
        let cause = Cause::Refused { step: "reserve".into(), reason: "INSUFFICIENT_STOCK".into(), detail };
        let changes = changes(&[Event::Turned { cause, span: None }, Event::Undone], false);
        assert_eq!(changes[0].event, OrderEvent::Turned(CancelReason::InsufficientStock));
        assert_eq!(changes[0].refused_skus, ["85049E", "22138"]);
        assert_eq!(changes[1].event, OrderEvent::Undone);
    }

    #[test]
    fn a_list_that_was_cut_names_only_whole_skus() {
        let detail = json!({ "skus": "A,B,22…" });
        let cause = Cause::Refused { step: "reserve".into(), reason: "UNKNOWN_SKU".into(), detail };
        assert_eq!(refused_skus(&cause), ["A", "B"]);
    }

    #[test]
    fn stock_that_was_lost_after_payment_is_an_expired_hold() {
        let cause =
            Cause::Refused { step: "reserve".into(), reason: "INSUFFICIENT_STOCK".into(), detail: json!({}) };
        assert_eq!(cancel_reason(&cause, true), CancelReason::ReservationExpired);
        assert_eq!(cancel_reason(&cause, false), CancelReason::InsufficientStock);
    }

    #[test]
    fn waiting_changes_no_order() {
        let events = [Event::PivotBegun { step: "confirm".into() }, Event::Completed];
        assert_eq!(changes(&events, false), []);
    }
}
