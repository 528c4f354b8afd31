//! Cases C34 and C56: cancel, payment and deadline at the same moment. The order decides once; the rest follows.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use harness::deadline::eventually;
use harness::invariants::hold;
use harness::reasons::Refusal;
use harness::requests::{UNIT_PENCE, charge, pay_later, pay_now, within};
use harness::seed::seeded;
use harness::service::Part;
use harness::stack::Stack;
use proto::orders::v1::order::{CancelReason, State};
use proto::orders::v1::{CancelOrderRequest, Order};
use proto::reason;
use rand::Rng;
use tokio::time::sleep;

const ENDS_WITHIN: Duration = Duration::from_secs(15);
const RACES_AT_A_TIME: usize = 8;
/// Of a caller whose order's payment is still under way then.
const PATIENCE: Duration = Duration::from_millis(100);

/// One race: how long payment and cancel wait before they start.
#[derive(Debug, Clone, Copy)]
struct Race {
    number: usize,
    pay_after: Duration,
    cancel_after: Duration,
}

async fn cancel(stack: &Stack, order_id: &str) -> Result<()> {
    let request = CancelOrderRequest {
        order_id: order_id.to_owned(),
        request_id: format!("cancel.{order_id}"),
        etag: String::new(),
    };
    match stack.clients.orders.clone().cancel_order(request).await {
        Ok(_) => Ok(()),
        Err(status) => {
            let refusal = Refusal::of(&status);
            ensure!(refusal.reason == reason::ILLEGAL_TRANSITION, "{status:?}");
            Ok(())
        }
    }
}

async fn pay(stack: &Stack, order: &Order) -> Result<()> {
    let total = order.total.as_ref().context("an order has a total")?.minor_units;
    let payment_id = format!("{}.customer", order.order_id);
    let request = charge(&payment_id, &order.payment_scope, &order.order_id, total, "sim_approve");
    match stack.clients.payments.clone().charge(request).await {
        Ok(_) => Ok(()),
        Err(status) => {
            let refusal = Refusal::of(&status);
            ensure!(refusal.reason == reason::PAYMENT_CANCELLED, "{status:?}");
            Ok(())
        }
    }
}

/// The customer pays a waiting order while it is being cancelled.
async fn race_with_a_customer(stack: &Stack, race: Race) -> Result<State> {
    let request = pay_later(&format!("race-{}", race.number), &[("A", 1)], Duration::from_secs(60));
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    let paying = async {
        sleep(race.pay_after).await;
        pay(stack, &order).await
    };
    let cancelling = async {
        sleep(race.cancel_after).await;
        cancel(stack, &order.order_id).await
    };
    tokio::try_join!(paying, cancelling)?;
    Ok(stack.ended(&order.order_id, ENDS_WITHIN).await?.state())
}

/// The provider answers a charge while its order is being cancelled.
async fn race_with_the_provider(stack: &Stack, race: Race) -> Result<State> {
    let token = format!("sim_approve_after_{}", 100 + race.pay_after.as_millis());
    let request = pay_now(&format!("race-{}", race.number), &[("A", 1)], &token);
    // Patience ends while the payment is under way; the same request again then finds the order as it stands.
    let order_id = eventually("the order is placed", ENDS_WITHIN, async || {
        let placing = within(PATIENCE, request.clone());
        Ok(stack.clients.orders.clone().create_order(placing).await?.into_inner().order_id)
    })
    .await?;
    sleep(race.cancel_after).await;
    cancel(stack, &order_id).await?;
    Ok(stack.ended(&order_id, ENDS_WITHIN).await?.state())
}

#[tokio::test]
async fn c34_cancel_against_payment_a_hundred_times() -> Result<()> {
    const RACES: usize = 100;
    // About as long as the news of a payment takes to reach its order here, so that either side wins some races.
    const CANCEL_AFTER_US_MAX: u64 = 150_000;
    let mut random = seeded("c34");
    let stack = Stack::start().await?;
    stack.receive("A", 1_000).await?;
    let races: Vec<Race> = (0..RACES)
        .map(|number| Race {
            number,
            pay_after: Duration::from_micros(random.random_range(0..20_000)),
            cancel_after: Duration::from_micros(random.random_range(0..CANCEL_AFTER_US_MAX)),
        })
        .collect();
    let running = races.iter().map(|race| {
        let stack = &stack;
        async move {
            let ended = match race.number % 2 {
                0 => race_with_a_customer(stack, *race).await,
                _ => race_with_the_provider(stack, *race).await,
            };
            ended.with_context(|| format!("{race:?}"))
        }
    });
    let ends: Vec<State> = stream::iter(running).buffer_unordered(RACES_AT_A_TIME).try_collect().await?;
    let count = |state| ends.iter().filter(|end| **end == state).count();
    let (confirmed, cancelled) = (count(State::Confirmed), count(State::Cancelled));
    println!("c34: {confirmed} confirmed, {cancelled} cancelled");
    assert_eq!(confirmed + cancelled, RACES);
    assert!(confirmed > 0 && cancelled > 0, "one side won every race: this was no race");
    // Either confirmed, sold and not refunded; or cancelled, stock back, and nothing kept. Nothing else.
    hold(&stack).await?;
    let sold = i64::try_from(confirmed)?;
    assert_eq!(stack.counters("A").await?, (1_000 - sold, 0, sold));
    Ok(())
}

/// From now to the order's deadline, by the clock that this machine shares with its database, and `offset_ms` more.
fn until_expiry(order: &Order, offset_ms: i64) -> Result<Duration> {
    let expiry = order.expire_time.as_ref().context("a waiting order has a deadline")?;
    let expiry =
        chrono::DateTime::from_timestamp(expiry.seconds, u32::try_from(expiry.nanos)?).context("a time")?;
    let left = expiry + chrono::TimeDelta::milliseconds(offset_ms) - chrono::Utc::now();
    Ok(left.to_std().unwrap_or_default())
}

#[tokio::test]
async fn c56a_payment_at_the_very_deadline() -> Result<()> {
    const ORDERS: usize = 24;
    const EXPIRY: Duration = Duration::from_secs(2);
    let mut random = seeded("c56a");
    let stack = Stack::start().await?;
    stack.receive("A", 100).await?;
    let offsets: Vec<i64> = (0..ORDERS).map(|_| random.random_range(-60..60)).collect();
    let racing = offsets.iter().enumerate().map(|(number, offset_ms)| {
        let stack = &stack;
        async move {
            let request = pay_later(&format!("order-{number}"), &[("A", 1)], EXPIRY);
            let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
            sleep(until_expiry(&order, *offset_ms)?).await;
            pay(stack, &order).await?;
            let ended = stack.ended(&order.order_id, ENDS_WITHIN).await?;
            if ended.state() == State::Cancelled {
                ensure!(ended.cancel_reason() == CancelReason::PaymentExpired, "{:?}", ended.cancel_reason());
            }
            anyhow::Ok(ended.state())
        }
    });
    let ends = futures::future::try_join_all(racing).await?;
    let confirmed = ends.iter().filter(|end| **end == State::Confirmed).count();
    println!("c56a: {confirmed} confirmed, {} closed", ORDERS - confirmed);
    hold(&stack).await?;
    let sold = i64::try_from(confirmed)?;
    assert_eq!(stack.counters("A").await?, (100 - sold, 0, sold));
    Ok(())
}

#[tokio::test]
async fn c56b_two_timers_close_an_order_once() -> Result<()> {
    const ORDERS: usize = 20;
    let stack = Stack::start().await?;
    stack.receive("A", 100).await?;
    // Two processes look at the same due times; each order is closed by one of them.
    let mut second = stack.another(Part::Order)?;
    second.start().await?;
    let placing = (0..ORDERS).map(|number| {
        let mut orders = stack.clients.orders.clone();
        let request = pay_later(&format!("order-{number}"), &[("A", 1)], Duration::from_secs(2));
        async move { orders.create_order(request).await }
    });
    for order in futures::future::try_join_all(placing).await? {
        let order = order.into_inner();
        assert_eq!(order.total.as_ref().map(|total| total.minor_units), Some(UNIT_PENCE));
        let ended = stack.ended(&order.order_id, ENDS_WITHIN).await?;
        assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::PaymentExpired));
    }
    hold(&stack).await?;
    let released: i64 = sqlx::query_scalar("SELECT count(*) FROM inventory.movements WHERE kind = 'RELEASE'")
        .fetch_one(&stack.stores.inventory.pool()?)
        .await?;
    assert_eq!(released, i64::try_from(ORDERS)?);
    assert_eq!(stack.counters("A").await?, (100, 0, 0));
    second.stop().await
}
