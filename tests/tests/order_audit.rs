//! The second look at orders: none stays alive because a timer was lost.

use std::time::Duration;

use anyhow::Result;
use harness::invariants::hold;
use harness::requests::pay_later;
use harness::service::Part;
use harness::stack::Plan;
use proto::orders::v1::order::{CancelReason, State};

/// Deviations of less than five seconds are left alone, so the order may live that much longer.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_order_whose_timer_was_lost_is_closed_by_the_second_look() -> Result<()> {
    let often = Plan::all().env(Part::Order, "HOLDFAST_AUDIT_MS", "500");
    let stack = often.env(Part::Order, "HOLDFAST_PAYMENT_GRACE_MS", "100").start().await?;
    stack.receive("A", 10).await?;
    let request = pay_later("lost", &[("A", 3)], Duration::from_secs(1));
    let placed = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(placed.state(), State::AwaitingPayment);
    // As a bug or a hand would leave it: its saga sleeps a day, and the row knows of no deadline. Only the order does.
    let database = stack.stores.orders.pool()?;
    let asleep = sqlx::query(
        "UPDATE saga.instances SET due_at = due_at + interval '1 day', deadline_at = NULL WHERE owner IS NULL",
    );
    assert_eq!(asleep.execute(&database).await?.rows_affected(), 1);
    let ended = stack.ended(&placed.order_id, ENDED_WITHIN).await?;
    assert_eq!(ended.state(), State::Cancelled);
    assert_eq!(ended.cancel_reason(), CancelReason::PaymentExpired);
    assert_eq!(stack.counters("A").await?, (10, 0, 0));
    hold(&stack).await
}
