//! Case C48: the wall clock of every service is stepped one hour forward and two hours back while orders wait for their
//! payment. None closes early or late, no hold lapses early or late, and new orders stand before older ones.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use harness::clients::Orders;
use harness::deadline::eventually;
use harness::invariants::hold;
use harness::requests::{pay_later, pay_now, reserve_for};
use harness::service::Part;
use harness::stack::{Plan, Stack, has_ended};
use harness::wall_clock::WallClock;
use proto::orders::v1::order::{CancelReason, State};
use proto::orders::v1::{CancelOrderRequest, GetOrderRequest, ListOrdersRequest, Order};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep_until};

const SOON: Duration = Duration::from_secs(15);
const EXPIRY: Duration = Duration::from_secs(3);
/// The engine knows the database's clock up to the time that the quickest of its answers took.
const BLUR: Duration = Duration::from_millis(200);
/// What may pass between the deadline and the moment a caller sees the order closed, on a machine under load. A step
/// that was followed would be off by an hour.
const LATE_MAX: Duration = Duration::from_millis(2_500);
const STEPS: [(&str, i64); 4] = [("right", 0), ("fast", 3_600), ("slow", -7_200), ("right-again", 0)];
/// Half of what an order waits: each waits through one step at least.
const BETWEEN_STEPS: Duration = Duration::from_millis(1_500);
const ORDERS_PER_STEP: usize = 3;

async fn start(clock: &WallClock) -> Result<Stack> {
    let mut plan = Plan::all().traced();
    for part in [Part::Order, Part::Inventory, Part::Payment] {
        for (name, value) in clock.environment() {
            plan = plan.env(part, name, &value);
        }
    }
    let stack = plan.start().await?;
    stack.receive("A", 1_000).await?;
    Ok(stack)
}

fn time(at: Option<&prost_types::Timestamp>) -> Result<DateTime<Utc>> {
    let at = at.context("a time is missing")?;
    DateTime::from_timestamp(at.seconds, u32::try_from(at.nanos)?).context("no time")
}

/// An order that waits for its payment, and when it was asked for and answered by the clock of this test, which no step
/// reaches.
struct Placed {
    order: Order,
    asked: Instant,
    answered: Instant,
}

/// Places an order, whose deadline must be as far off as it asked for.
async fn place(stack: &Stack, request_id: &str) -> Result<Placed> {
    let request = pay_later(request_id, &[("A", 1)], EXPIRY);
    let (asked, asked_at) = (Instant::now(), Utc::now());
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    let (answered, answered_at) = (Instant::now(), Utc::now());
    let promised = time(order.expire_time.as_ref())? - TimeDelta::from_std(EXPIRY)?;
    let blur = TimeDelta::from_std(BLUR)?;
    ensure!(
        (asked_at - blur..=answered_at + blur).contains(&promised),
        "{request_id}, placed from {asked_at} to {answered_at}, would be closed {EXPIRY:?} after {promised}"
    );
    Ok(Placed { order, asked, answered })
}

/// Waits until an order is closed, which must be when it was promised.
async fn closes_in_time(mut orders: Orders, Placed { order, asked, answered }: Placed) -> Result<Order> {
    let closed = eventually("it is closed", SOON, async || {
        let request = GetOrderRequest { order_id: order.order_id.clone() };
        let order = orders.get_order(request).await?.into_inner();
        ensure!(has_ended(order.state()), "it is {:?}", order.state());
        Ok(order)
    })
    .await?;
    let (name, seen) = (&closed.request_id, Instant::now());
    let earliest = asked + EXPIRY - BLUR;
    ensure!(seen >= earliest, "{name} closed {:?} early", earliest - seen);
    let latest = answered + EXPIRY + LATE_MAX;
    ensure!(seen <= latest, "{name} closed {:?} too late", seen - latest);
    ensure!((closed.state(), closed.cancel_reason()) == (State::Cancelled, CancelReason::PaymentExpired));
    Ok(closed)
}

/// A hold that nobody confirms lapses when it was promised to.
async fn lapses_in_time(stack: &Stack, reservation_id: String) -> Result<()> {
    let asked = Instant::now();
    let request = reserve_for(&reservation_id, &[("B", 1)], EXPIRY);
    stack.clients.inventory.clone().reserve(request).await?;
    let answered = Instant::now();
    eventually("the hold lapses", SOON, async || {
        let held = stack.counters("B").await?.1;
        ensure!(held == 0, "{held} held");
        Ok(())
    })
    .await?;
    let seen = Instant::now();
    ensure!(seen >= asked + EXPIRY, "{reservation_id} lapsed {:?} early", asked + EXPIRY - seen);
    ensure!(seen <= answered + EXPIRY + LATE_MAX, "{reservation_id} lapsed after {:?}", seen - answered);
    Ok(())
}

/// That the services which placed the order went by the stepped clock: else nothing was tested.
async fn is_stepped(stack: &Stack, order: &Order, offset_s: i64) -> Result<()> {
    let placed = time(order.create_time.as_ref())?;
    stack
        .sink()?
        .wait_for(&order.trace_id, SOON, |trace| {
            let reserved = ["order-svc", "inventory-svc"].map(|service| {
                let served = |name: &str| name == "saga reserve" || name.ends_with("/Reserve");
                trace.spans.iter().find(|span| span.service == service && served(&span.name))
            });
            for span in reserved {
                let span = span.context("both took part in its reserve")?;
                let began = DateTime::from_timestamp_nanos(i64::try_from(span.start_ns)?);
                let off = (began - placed).num_seconds() - offset_s;
                ensure!(off.abs() < 60, "{} is {off} s off its clock", span.name);
            }
            Ok(())
        })
        .await?;
    Ok(())
}

/// Lists of orders go by the database's time.
async fn newest_first(stack: &Stack) -> Result<()> {
    let listed = stack.clients.orders.clone().list_orders(ListOrdersRequest::default()).await?.into_inner();
    let placed: Vec<_> =
        listed.orders.iter().map(|order| time(order.create_time.as_ref())).collect::<Result<_>>()?;
    let blur = TimeDelta::from_std(BLUR)?;
    ensure!(placed.is_sorted_by(|newer, older| *newer + blur >= *older), "{placed:?}");
    Ok(())
}

#[tokio::test]
async fn c48a_no_step_of_the_local_clock_closes_an_order_early_or_late() -> Result<()> {
    let clock = WallClock::new()?;
    let stack = start(&clock).await?;
    stack.receive("B", 1).await?;
    let request = pay_later("patient", &[("A", 1)], Duration::from_mins(30));
    let patient = stack.clients.orders.clone().create_order(request).await?.into_inner();
    let mut waiting = Vec::new();
    let steps = async {
        for (name, offset_s) in STEPS {
            clock.step_to(offset_s)?;
            let begun = Instant::now();
            let names: Vec<_> = (0..ORDERS_PER_STEP).map(|order| format!("{name}-{order}")).collect();
            let placed = futures::future::try_join_all(names.iter().map(|name| place(&stack, name)));
            for placed in placed.await? {
                let closes = spawn_local(closes_in_time(stack.clients.orders.clone(), placed));
                waiting.push((offset_s, closes));
            }
            sleep_until(begun + BETWEEN_STEPS).await;
        }
        for (offset_s, closes) in waiting {
            is_stepped(&stack, &closes.await??, offset_s).await?;
        }
        anyhow::Ok(())
    };
    // Two holds, one after the other, while the clock is stepped twice each.
    let holds = async {
        lapses_in_time(&stack, "hold-1".to_owned()).await?;
        lapses_in_time(&stack, "hold-2".to_owned()).await
    };
    LocalSet::new().run_until(async { tokio::try_join!(steps, holds) }).await?;
    assert_eq!(stack.order_of(&patient.order_id).await?.state(), State::AwaitingPayment);
    assert_eq!(stack.counters("A").await?, (999, 1, 0));
    newest_first(&stack).await?;
    let request = CancelOrderRequest {
        order_id: patient.order_id,
        request_id: "cancel".to_owned(),
        etag: String::new(),
    };
    stack.clients.orders.clone().cancel_order(request).await?;
    hold(&stack).await
}

#[tokio::test]
async fn c48b_a_service_that_starts_with_a_wrong_clock_closes_orders_in_time() -> Result<()> {
    let clock = WallClock::new()?;
    let mut stack = start(&clock).await?;
    // Each is placed by a process that started with the clock of the one before.
    for (name, offset_s) in [("right", 3_600), ("fast", -7_200), ("slow", 0)] {
        let request = pay_later(name, &[("A", 1)], EXPIRY);
        let asked = Instant::now();
        let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
        clock.step_to(offset_s)?;
        stack.order.restart().await?;
        stack.inventory.restart().await?;
        let closed = stack.ended(&order.order_id, SOON).await?;
        let took = asked.elapsed();
        ensure!(closed.cancel_reason() == CancelReason::PaymentExpired, "{closed:?}");
        ensure!(
            (EXPIRY.saturating_sub(BLUR)..EXPIRY + LATE_MAX + SERVES_AGAIN).contains(&took),
            "{name}: closed after {took:?}"
        );
        hold(&stack).await?;
    }
    newest_first(&stack).await
}

/// A restart may fall into the moment an order is due.
const SERVES_AGAIN: Duration = Duration::from_secs(2);

#[tokio::test]
async fn c48c_a_charge_that_never_reached_its_provider_is_sent_again_whatever_the_local_clock_says()
-> Result<()> {
    let clock = WallClock::new()?;
    let stack = start(&clock).await?;
    // Past the time for which a provider remembers keys, if the local clock were asked.
    clock.step_to(25 * 3_600)?;
    let request = pay_now("fast", &[("A", 1)], "sim_fail_1");
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(order.state(), State::Confirmed);
    hold(&stack).await
}
