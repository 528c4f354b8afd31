//! Cases C27 and C61: order-svc killed for good, and killed in the middle of a saga that another process finishes.

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::clients::Orders;
use harness::deadline::eventually;
use harness::invariants::{hold, hold_for_stock};
use harness::requests::{pay_later, pay_now};
use harness::service::Part;
use harness::stack::{Plan, Stack, has_ended};
use proto::orders::v1::order::State;
use proto::orders::v1::{GetOrderRequest, ListOrdersRequest, Order};
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
