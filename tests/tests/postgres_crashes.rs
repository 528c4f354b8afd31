//! Case C54: Postgres crashes and recovers, again and again, under a load of orders. Calls stall or are refused and
//! repeated; nothing that was acknowledged is lost, and everything comes to rest.
//!
//! Three crashes within some seconds as a rule; with `HOLDFAST_CHAOS=1` a crash every five seconds for two minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use harness::clients::Orders;
use harness::deadline::eventually;
use harness::invariants::hold;
use harness::postgres::{Cluster, Postgres, Synced};
use harness::requests::{pay_later, pay_now, within};
use harness::stack::{Plan, has_ended};
use proto::orders::v1::order::State;
use proto::orders::v1::{CreateOrderRequest, Order};
use tokio::time::{Instant, sleep};
use tonic::Code;

const CALLERS: usize = 8;
/// Of one call; a caller repeats.
const PATIENCE: Duration = Duration::from_secs(3);
const REPEATS_AFTER: Duration = Duration::from_millis(100);
/// A caller gives up, and the test with it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// How long it stays away at times: past a step's attempt and a caller's first tries.
const AWAY: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_secs(20);
/// Sagas that have not ended.
const OPEN: &str = "SELECT count(*) FROM saga.sagas WHERE status NOT IN ('COMPLETED', 'UNDONE')";
/// What is on sale: more than can be sold meanwhile.
const RECEIVED: i64 = 1_000_000;

/// How often and how quickly it crashes.
struct Crashes {
    count: usize,
    every: Duration,
}

impl Crashes {
    fn planned() -> Self {
        if std::env::var("HOLDFAST_CHAOS").is_ok_and(|chaos| chaos == "1") {
            Self { count: 24, every: Duration::from_secs(5) }
        } else {
            Self { count: 3, every: Duration::from_secs(2) }
        }
    }
}

/// What callers share.
#[derive(Default)]
struct Load {
    ends: AtomicBool,
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
}

fn request(caller: usize, number: usize) -> CreateOrderRequest {
    let request_id = format!("order-{caller}-{number}");
    let lines = [("A", 1)];
    match number % 5 {
        0 => pay_now(&request_id, &lines, "sim_decline"),
        1 => pay_now(&request_id, &lines, "sim_approve_after_300"),
        2 => pay_later(&request_id, &lines, Duration::from_secs(2)),
        _ => pay_now(&request_id, &lines, "sim_approve"),
    }
}

/// Repeats a request until it is acknowledged.
async fn place(orders: &mut Orders, request: CreateOrderRequest, load: &Load) -> Result<Order> {
    let asked = Instant::now();
    loop {
        let status = match orders.create_order(within(PATIENCE, request.clone())).await {
            Ok(order) => return Ok(order.into_inner()),
            Err(status) => status,
        };
        load.refused.fetch_add(1, Ordering::Relaxed);
        let id = &request.request_id;
        // Anything else would tell a caller not to ask again. CANCELLED is what its own transport calls the end of its
        // patience.
        let again = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled);
        ensure!(again, "{id}: {status:?}");
        ensure!(asked.elapsed() < ANSWERED_WITHIN, "{id} is not acknowledged: {status:?}");
        sleep(REPEATS_AFTER).await;
    }
}

/// Places one order after the other until the load ends; gives each as it was acknowledged.
async fn call(mut orders: Orders, caller: usize, load: Arc<Load>) -> Result<Vec<Order>> {
    let mut acknowledged = Vec::new();
    while !load.ends.load(Ordering::Relaxed) {
        acknowledged.push(place(&mut orders, request(caller, acknowledged.len()), &load).await?);
        load.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    Ok(acknowledged)
}

/// Crashes it and starts it again, as planned.
#[expect(clippy::print_stdout, reason = "the test runner shows it with a failure")]
async fn crash(cluster: &Arc<Cluster>, crashes: &Crashes, load: &Load) -> Result<()> {
    for crash in 1..=crashes.count {
        sleep(crashes.every).await;
        let before = load.acknowledged.load(Ordering::Relaxed);
        let down_at = Instant::now();
        let down = Arc::clone(cluster);
        tokio::task::spawn_blocking(move || {
            down.crash()?;
            // Every other time it is back at once.
            std::thread::sleep(if crash % 2 == 0 { AWAY } else { Duration::ZERO });
            down.restart()
        })
        .await??;
        let (back, answered) = (down_at.elapsed(), load.acknowledged.load(Ordering::Relaxed));
        while load.acknowledged.load(Ordering::Relaxed) == answered {
            if down_at.elapsed() > SOON {
                bail!("no order was acknowledged within {SOON:?} of crash {crash}");
            }
            sleep(Duration::from_millis(10)).await;
        }
        println!(
            "crash {crash}: {before} acknowledged before, Postgres back after {back:?}, orders after {:?}",
            down_at.elapsed()
        );
    }
    // Some more, on a server that stays.
    sleep(crashes.every).await;
    Ok(())
}

#[tokio::test]
async fn c54_nothing_acknowledged_is_lost_when_postgres_crashes_under_load() -> Result<()> {
    let crashes = Crashes::planned();
    let cluster = Arc::new(tokio::task::spawn_blocking(|| Cluster::start(Synced::Always)).await??);
    let mut stack = Plan::all().on(&Postgres::Private(Arc::clone(&cluster))).start().await?;
    stack.receive("A", RECEIVED).await?;
    let load = Arc::new(Load::default());
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(call(stack.clients.orders.clone(), caller, Arc::clone(&load))))
        .collect();
    let survived = crash(&cluster, &crashes, &load).await;
    load.ends.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for caller in callers {
        acknowledged.extend(caller.await??);
    }
    survived?;
    println!("{} acknowledged, {} refused", acknowledged.len(), load.refused.load(Ordering::Relaxed));
    for service in [&mut stack.order, &mut stack.inventory, &mut stack.payment] {
        service.serving().await?;
    }
    let database = stack.stores.orders.pool()?;
    eventually("every order comes to rest", SOON, async || {
        let open: i64 = sqlx::query_scalar(OPEN).fetch_one(&database).await?;
        ensure!(open == 0, "{open} sagas are open");
        Ok(())
    })
    .await?;
    hold(&stack).await?;
    let mut ends: BTreeMap<State, usize> = BTreeMap::new();
    for told in &acknowledged {
        let order =
            stack.order_of(&told.order_id).await.with_context(|| format!("{} is lost", told.request_id))?;
        ensure!(order.request_id == told.request_id, "{order:?} was acknowledged as {told:?}");
        ensure!(
            !has_ended(told.state()) || order.state() == told.state(),
            "{order:?} was told to be {told:?}"
        );
        *ends.entry(order.state()).or_default() += 1;
    }
    println!("{ends:?}");
    let ids: BTreeSet<_> = acknowledged.iter().map(|order| &order.order_id).collect();
    assert_eq!(ids.len(), acknowledged.len(), "one order was acknowledged to two requests");
    let placed: i64 = sqlx::query_scalar("SELECT count(*) FROM orders.orders").fetch_one(&database).await?;
    assert_eq!(usize::try_from(placed)?, acknowledged.len(), "orders that nobody was told of");
    let sold = i64::try_from(ends.get(&State::Confirmed).copied().unwrap_or_default())?;
    assert_eq!(stack.counters("A").await?, (RECEIVED - sold, 0, sold));
    Ok(())
}
