//! Cancels an order: a signal to its saga, which alone decides between this, the payment and the deadline.

use std::time::Duration;

use saga::{CANCEL, Engine, Status};
use serde_json::json;

use crate::{
    order::{CancelReason, OrderId, OrderState},
    store::{Order, Store, StoreError, Version},
};

/// An order could not be cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    /// No order has this id.
    #[error("there is no such order")]
    UnknownOrder,
    /// It is being confirmed, or was.
    #[error("an order that is {} cannot be cancelled", .0.as_str())]
    TooLate(OrderState),
    /// Its saga waits for an operator, and so does the cancel.
    #[error("an order whose saga is parked is cancelled by an operator")]
    Parked(OrderState),
    /// It changed since the etag was read.
    #[error("the order has changed")]
    Changed,
    /// The store failed: ask again.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal failed: ask again.
    #[error(transparent)]
    Journal(#[from] saga::JournalError),
}

/// Cancels, and waits until everything is undone, at most `patience`.
pub async fn cancel_order(
    store: &Store,
    engine: &Engine,
    order_id: OrderId,
    request_id: &str,
    unchanged_since: Option<Version>,
    patience: Duration,
) -> Result<Order, CancelError> {
    let order = store.order(order_id).await?.ok_or(CancelError::UnknownOrder)?;
    // A repeat finds the order cancelled, and its etag stale: it succeeds.
    if order.standing.state == OrderState::Cancelled {
        return Ok(order);
    }
    if unchanged_since.is_some_and(|version| version != order.version) {
        return Err(CancelError::Changed);
    }
    if matches!(order.standing.state, OrderState::Confirmed | OrderState::Returned) {
        return Err(CancelError::TooLate(order.standing.state));
    }
    let mut transaction = store.begin().await?;
    let payload = json!({ "reason": CancelReason::Customer.as_str() });
    engine.send(&mut transaction, order.saga, &format!("cancel.{request_id}"), CANCEL, &payload).await?;
    transaction.commit().await.map_err(StoreError::from)?;
    engine.nudge(order.saga);

    // Not merely at rest: an order that waits for its payment rests too.
    let standing = engine.wait_for(order.saga, patience, |standing| standing.status.is_final()).await?;
    let order = store.order(order_id).await?.ok_or(CancelError::UnknownOrder)?;
    let parked = standing.is_some_and(|standing| standing.status == Status::Parked);
    match order.standing.state {
        OrderState::Cancelled => Ok(order),
        state if parked => Err(CancelError::Parked(state)),
        _ if order.standing.cancel_reason.is_some() => Ok(order),
        // Paid, and not on its way back when patience ended: it is being confirmed.
        state @ (OrderState::Paid | OrderState::Confirmed | OrderState::Returned) => {
            Err(CancelError::TooLate(state))
        }
        // The cancel is recorded and will be taken in; the caller's patience ended before that.
        OrderState::Pending | OrderState::AwaitingPayment => Ok(order),
    }
}
