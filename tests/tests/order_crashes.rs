//! Cases C27 and C61: order-svc killed for good, and killed in the middle of a saga, or of a hundred, that another process
//! finishes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use harness::clients::Orders;
use harness::deadline::eventually;
use harness::invariants::{hold, hold_for_stock};
use harness::requests::{pay_later, pay_now};
use harness::service::Part;
use harness::stack::{Plan, Stack, has_ended};
use proto::orders::v1::order::State;
use proto::orders::v1::{CreateOrderRequest, GetOrderRequest, ListOrdersRequest, Order};
use proto::payment::v1::{ListPaymentsRequest, payment};

const SOON: Duration = Duration::from_secs(15);
/// Lease, takeover and the rest of the saga.
const RECOVERED_WITHIN: Duration = Duration::from_secs(20);

#[tokio::test]
async fn c27_order_svc_dead_for_good_gives_stock_back_once() -> Result<()> {
    // The hold outlives the order's two seconds by these two, so it lapses after three.
    let plan = Plan::all().env(Part::Order, "HOLDFAST_PAYMENT_GRACE_MS", "500").env(
        Part::Order,
        "HOLDFAST_HOLD_MARGIN_MS",
        "500",
    );
    let mut stack = plan.start().await?;
    stack.receive("A", 5).await?;
    let request = pay_later("abandoned", &[("A", 2)], Duration::from_secs(2));
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(order.state(), State::AwaitingPayment);
    stack.order.kill();
    assert_eq!(stack.counters("A").await?, (3, 2, 0));
    eventually("the hold lapses", SOON, async || {
        let counters = stack.counters("A").await?;
        ensure!(counters == (5, 0, 0), "{counters:?}");
        Ok(())
    })
    .await?;
    // Once: also when the order's own compensator comes after it.
    hold_for_stock(&stack).await?;
    stack.order.start().await?;
    assert_eq!(stack.ended(&order.order_id, SOON).await?.state(), State::Cancelled);
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    hold(&stack).await
}

async fn in_payment(stack: &Stack, request_id: &str) -> Result<Order> {
    eventually("the payment of the order is in process", SOON, async || {
        let request = ListOrdersRequest { request_id: request_id.to_owned(), ..Default::default() };
        let orders = stack.clients.orders.clone().list_orders(request).await?.into_inner().orders;
        ensure!(orders.len() == 1, "{} orders", orders.len());
        let scope = ListPaymentsRequest { scope: orders[0].payment_scope.clone() };
        let payments = stack.clients.payments.clone().list_payments(scope).await?.into_inner().payments;
        let states: Vec<_> = payments.iter().map(proto::payment::v1::Payment::state).collect();
        ensure!(states == [payment::State::Processing], "{states:?}");
        Ok(orders[0].clone())
    })
    .await
}

#[tokio::test]
async fn c61_another_process_finishes_a_killed_ones_saga_in_its_trace() -> Result<()> {
    let mut stack = Plan::all().traced().start().await?;
    stack.receive("A", 5).await?;
    let mut caller = stack.clients.orders.clone();
    // The caller is cut off by the kill; the order is not.
    let placing = tokio::spawn(async move {
        caller.create_order(pay_now("killed", &[("A", 2)], "sim_approve_after_2000")).await
    });
    let order = in_payment(&stack, "killed").await?;
    // What the dying process knew of the story so far has left it.
    stack.sink()?.wait_for(&order.trace_id, SOON, |trace| trace.last("saga reserve").map(|_| ())).await?;
    stack.order.kill();
    assert!(placing.await?.is_err(), "a killed process answered");
    let mut second = stack.another(Part::Order)?;
    second.start().await?;
    let mut orders = Orders::new(second.channel()?);
    let ended = eventually("another process ends the order", RECOVERED_WITHIN, async || {
        let request = GetOrderRequest { order_id: order.order_id.clone() };
        let order = orders.get_order(request).await?.into_inner();
        ensure!(has_ended(order.state()), "it is {:?}", order.state());
        Ok(order)
    })
    .await?;
    assert_eq!(ended.state(), State::Confirmed);
    let trace = stack
        .sink()?
        .wait_for(&order.trace_id, SOON, |trace| {
            trace.last("saga confirm")?;
            trace.resumed()
        })
        .await?;
    println!("{}", trace.render());
    second.stop().await?;
    // Reports that were sent to the dead process's address are delivered once it is back.
    stack.order.start().await?;
    hold(&stack).await?;
    assert_eq!(stack.counters("A").await?, (3, 0, 2));
    Ok(())
}

/// Sagas that have not ended.
const OPEN: &str = "SELECT count(*) FROM saga.sagas WHERE status NOT IN ('COMPLETED', 'UNDONE')";
/// Of order-svc, as it is by default.
const LEASE: Duration = Duration::from_secs(5);

/// Places an order with one process, and repeats the same request at another one when the first is gone.
async fn place_anywhere(first: Orders, second: Orders, request: CreateOrderRequest) -> Result<Order> {
    let mut last = None;
    for mut orders in [first, second.clone(), second] {
        match orders.create_order(request.clone()).await {
            Ok(order) => return Ok(order.into_inner()),
            Err(status) => last = Some(status),
        }
    }
    bail!("{} is not placed: {last:?}", request.request_id)
}

#[tokio::test]
async fn a_burst_of_orders_outlives_the_process_that_took_them() -> Result<()> {
    const ORDERS: usize = 200;
    let mut stack = Stack::start().await?;
    stack.receive("A", 1_000).await?;
    let mut second = stack.another(Part::Order)?;
    second.start().await?;
    let orders = Orders::new(second.channel()?);
    // Decided at once: how long a provider takes is not what is measured.
    let tokens = ["sim_approve", "sim_decline", "sim_approve", "sim_approve"];
    let callers: Vec<_> = (0..ORDERS)
        .map(|number| {
            let request = pay_now(&format!("burst-{number}"), &[("A", 1)], tokens[number % tokens.len()]);
            tokio::spawn(place_anywhere(stack.clients.orders.clone(), orders.clone(), request))
        })
        .collect();
    let database = stack.stores.orders.pool()?;
    eventually("half of the burst is on disk", SOON, async || {
        let placed: i64 =
            sqlx::query_scalar("SELECT count(*) FROM orders.orders").fetch_one(&database).await?;
        ensure!(placed >= i64::try_from(ORDERS / 2)?, "{placed}");
        Ok(())
    })
    .await?;
    stack.order.kill();
    let killed = tokio::time::Instant::now();
    let open_then: i64 = sqlx::query_scalar(OPEN).fetch_one(&database).await?;
    eventually("every order is at rest", LEASE + Duration::from_secs(5), async || {
        let open: i64 = sqlx::query_scalar(OPEN).fetch_one(&database).await?;
        ensure!(open == 0, "{open} are not");
        Ok(())
    })
    .await?;
    println!("{open_then} under way at the kill, all at rest after {:?}", killed.elapsed());
    assert!(open_then > 0, "nothing was under way: this was no crash");
    let mut ends = BTreeMap::new();
    for (number, caller) in callers.into_iter().enumerate() {
        let order = caller.await??;
        let wanted = if number % tokens.len() == 1 { State::Cancelled } else { State::Confirmed };
        let ended = eventually("it ends", SOON, async || {
            let request = GetOrderRequest { order_id: order.order_id.clone() };
            let order = orders.clone().get_order(request).await?.into_inner();
            ensure!(has_ended(order.state()), "it is {:?}", order.state());
            Ok(order)
        });
        assert_eq!(ended.await?.state(), wanted, "{}", order.request_id);
        ends.insert(order.order_id, order.request_id);
    }
    assert_eq!(ends.len(), ORDERS, "orders are shared by requests");
    stack.order.start().await?;
    hold(&stack).await?;
    let sold = i64::try_from(ORDERS * 3 / 4)?;
    assert_eq!(stack.counters("A").await?, (1_000 - sold, 0, sold));
    second.stop().await
}
