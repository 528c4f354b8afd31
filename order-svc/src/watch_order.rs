//! Follows an order: its present state, then every change, until it ends.

use std::time::Duration;

use futures::{Stream, stream};
use saga::{Engine, Seq};
use tokio_util::sync::CancellationToken;

use crate::{
    order::OrderId,
    store::{Order, Store, StoreError, Version},
};

/// An order cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// No order has this id.
    #[error("there is no such order")]
    UnknownOrder,
    /// The service stops. A stream that just ended would say that the order has.
    #[error("the service stops; watch again")]
    Stopping,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] saga::JournalError),
}

enum Next {
    First,
    After(Version, Seq),
    Ended,
}

/// At the latest after this long the order is read again, whatever became of its saga.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The order now and after every change.
pub fn watch_order(
    store: Store,
    engine: Engine,
    order_id: OrderId,
    shutdown: CancellationToken,
) -> impl Stream<Item = Result<Order, WatchError>> + Send {
    stream::unfold(Next::First, move |next| {
        let (store, engine, shutdown) = (store.clone(), engine.clone(), shutdown.clone());
        async move {
            let (sent, mut seen) = match next {
                Next::Ended => return None,
                Next::First => (None, Seq::default()),
                Next::After(version, seq) => (Some(version), seq),
            };
            let change = tokio::select! {
                change = following(&store, &engine, order_id, sent, &mut seen) => change,
                () = shutdown.cancelled() => Err(WatchError::Stopping),
            };
            match change {
                Ok(order) if order.standing.is_final() => Some((Ok(order), Next::Ended)),
                Ok(order) => {
                    let next = Next::After(order.version, seen);
                    Some((Ok(order), next))
                }
                Err(error) => Some((Err(error), Next::Ended)),
            }
        }
    })
}

/// Waits for a version of the order that was not sent yet.
async fn following(
    store: &Store,
    engine: &Engine,
    order_id: OrderId,
    sent: Option<Version>,
    seen: &mut Seq,
) -> Result<Order, WatchError> {
    loop {
        let order = store.order(order_id).await?.ok_or(WatchError::UnknownOrder)?;
        if sent.is_none_or(|sent| order.version > sent) {
            return Ok(order);
        }
        let after = *seen;
        let standing = engine.wait_for(order.saga, LOOK_AGAIN, |standing| standing.seq > after).await?;
        *seen = standing.map_or(after, |standing| standing.seq);
    }
}
