//! What customers can do with an order's scope of payments while its saga is elsewhere: pay before the goods are
//! reserved, pay twice, take the money back, pay for another order. Money never stays where no order is confirmed.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use harness::deadline::eventually;
use harness::invariants::hold;
use harness::reasons::{Refusal, assert_refused};
use harness::requests::{charge, gbp, pay_later, pay_now, within};
use harness::stack::Stack;
use proto::orders::v1::order::{CancelReason, State};
use proto::orders::v1::report_payment_request::Kind;
use proto::orders::v1::{
    CancelOrderRequest, ListOrdersRequest, Order, ReportPaymentRequest, WatchOrderRequest,
};
use proto::payment::v1::{ListPaymentsRequest, Payment, RefundRequest, payment};
use proto::reason;
use tonic::Code;

const SOON: Duration = Duration::from_secs(20);
const TWO_SECONDS: Duration = Duration::from_secs(2);

async fn waiting(stack: &Stack, request_id: &str) -> Result<Order> {
    let request = pay_later(request_id, &[("A", 2)], TWO_SECONDS);
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(order.state(), State::AwaitingPayment);
    Ok(order)
}

/// Charges 200 in an order's scope; `reference` is who is told.
async fn paid(stack: &Stack, payment_id: &str, order: &Order, reference: &str) -> Result<()> {
    let request = charge(payment_id, &order.payment_scope, reference, 200, "sim_approve");
    let payment = stack.clients.payments.clone().charge(request).await?.into_inner();
    ensure!(payment.state() == payment::State::Captured, "{payment:?}");
    Ok(())
}

async fn payments_of(stack: &Stack, order: &Order) -> Result<Vec<Payment>> {
    let request = ListPaymentsRequest { scope: order.payment_scope.clone() };
    Ok(stack.clients.payments.clone().list_payments(request).await?.into_inner().payments)
}

/// What the payments of an order's scope keep.
async fn kept(stack: &Stack, order: &Order) -> Result<i64> {
    let units = |money: Option<proto::money::v1::Money>| money.map_or(0, |money| money.minor_units);
    let payments = payments_of(stack, order).await?;
    Ok(payments.into_iter().map(|payment| units(payment.captured) - units(payment.refunded)).sum())
}

/// An order whose goods are not reserved yet, because inventory-svc is frozen; and its customer has paid.
async fn paid_while_pending(stack: &Stack, lines: &[(&str, i64)]) -> Result<Order> {
    stack.inventory.freeze()?;
    let mut orders = stack.clients.orders.clone();
    let request = pay_later("early", lines, Duration::from_secs(60));
    let _ = orders.create_order(within(Duration::from_millis(300), request)).await;
    let listed = ListOrdersRequest { request_id: "early".to_owned(), ..ListOrdersRequest::default() };
    let order = orders.list_orders(listed).await?.into_inner().orders.remove(0);
    assert_eq!(order.state(), State::Pending);
    let total = order.total.as_ref().map_or(0, |total| total.minor_units);
    let request = charge("early-1", &order.payment_scope, &order.order_id, total, "sim_approve");
    stack.clients.payments.clone().charge(request).await?;
    Ok(order)
}

#[tokio::test]
async fn a_cancel_before_the_goods_are_reserved_gives_back_what_was_paid() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    let order = paid_while_pending(&stack, &[("A", 2)]).await?;
    let request = CancelOrderRequest {
        order_id: order.order_id.clone(),
        request_id: "cancel".to_owned(),
        etag: String::new(),
    };
    // Longer than one attempt to reserve waits for its answer, so that the cancel is taken in before the goods are held.
    let cancelling = within(Duration::from_secs(4), request);
    let turning = stack.clients.orders.clone().cancel_order(cancelling).await?.into_inner();
    assert_eq!(turning.cancel_reason(), CancelReason::Customer);
    stack.inventory.thaw()?;
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::Customer));
    assert_eq!(kept(&stack, &order).await?, 0);
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    hold(&stack).await
}

#[tokio::test]
async fn goods_that_are_not_there_give_back_what_was_paid_already() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 1).await?;
    let order = paid_while_pending(&stack, &[("A", 2)]).await?;
    stack.inventory.thaw()?;
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::InsufficientStock));
    eventually("the money is back", SOON, async || {
        ensure!(kept(&stack, &order).await? == 0);
        Ok(())
    })
    .await?;
    hold(&stack).await
}

#[tokio::test]
async fn an_order_that_was_refused_takes_no_charge_any_more() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 1).await?;
    let request = pay_later("refused", &[("A", 2)], Duration::from_secs(60));
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(order.cancel_reason(), CancelReason::InsufficientStock);
    let request = charge("after", &order.payment_scope, "", 200, "sim_approve");
    let answer = stack.clients.payments.clone().charge(request).await;
    assert_refused(answer, Code::FailedPrecondition, reason::PAYMENT_CANCELLED);
    hold(&stack).await
}

#[tokio::test]
async fn money_that_was_given_back_pays_for_no_order() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    let order = waiting(&stack, "unpaid").await?;
    paid(&stack, "p", &order, "").await?;
    let request =
        RefundRequest { payment_id: "p".to_owned(), request_id: "r".to_owned(), amount: Some(gbp(200)) };
    stack.clients.payments.clone().refund(request).await?;
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::PaymentExpired));
    hold(&stack).await
}

#[tokio::test]
async fn of_two_payments_that_nobody_reports_one_is_kept() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    let order = waiting(&stack, "twice").await?;
    paid(&stack, "first", &order, "").await?;
    paid(&stack, "second", &order, "").await?;
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!(ended.state(), State::Confirmed);
    assert_eq!(kept(&stack, &order).await?, 200);
    assert_eq!(stack.counters("A").await?, (3, 0, 2));
    hold(&stack).await
}

#[tokio::test]
async fn one_payment_confirms_one_order() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    let (one, other) = (waiting(&stack, "one").await?, waiting(&stack, "other").await?);
    // In the scope of one order, but told to the other.
    paid(&stack, "mixed", &one, &other.order_id).await?;
    for order in [&one, &other] {
        let ended = stack.ended(&order.order_id, SOON).await?;
        assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::PaymentExpired));
    }
    eventually("the money is back", SOON, async || {
        ensure!(kept(&stack, &one).await? == 0);
        Ok(())
    })
    .await?;
    hold(&stack).await
}

#[tokio::test]
async fn hearsay_of_a_payment_moves_no_order_and_no_money() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    let mut orders = stack.clients.orders.clone();
    let confirmed = orders.create_order(pay_now("a", &[("A", 2)], "sim_approve")).await?.into_inner();
    assert_eq!(confirmed.state(), State::Confirmed);
    let request = pay_later("b", &[("A", 2)], Duration::from_secs(60));
    let open = orders.create_order(request).await?.into_inner();
    let of_the_other = payments_of(&stack, &confirmed).await?.remove(0).payment_id;
    for payment_id in ["made-up", of_the_other.as_str()] {
        let report = ReportPaymentRequest {
            order_id: open.order_id.clone(),
            payment_id: payment_id.to_owned(),
            kind: Kind::Captured.into(),
            amount: Some(gbp(200)),
            provider_event_id: "event".to_owned(),
        };
        let refusal =
            assert_refused(orders.report_payment(report).await, Code::InvalidArgument, reason::INVALID_FIELD);
        assert_eq!(refusal.fields, ["payment_id"]);
    }
    assert_eq!(stack.order_of(&open.order_id).await?.state(), State::AwaitingPayment);
    assert_eq!(kept(&stack, &confirmed).await?, 200);
    Ok(())
}

#[tokio::test]
async fn lines_of_one_sku_may_add_up_to_more_than_one_line_may_hold() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 2_000_001).await?;
    let lines = [("A", 1_000_000), ("A", 1_000_000), ("A", 1)];
    let order = stack.clients.orders.clone().create_order(pay_now("bulk", &lines, "sim_approve")).await?;
    assert_eq!(order.into_inner().state(), State::Confirmed);
    assert_eq!(stack.counters("A").await?, (0, 0, 2_000_001));
    hold(&stack).await
}

#[tokio::test]
async fn a_page_of_huge_orders_can_be_read_by_any_client() -> Result<()> {
    let stack = Stack::start().await?;
    let skus: Vec<String> = (0..1_500).map(|n| format!("{n:0>128}")).collect();
    let lines: Vec<(&str, i64)> = skus.iter().map(|sku| (sku.as_str(), 1)).collect();
    let mut orders = stack.clients.orders.clone();
    for n in 0..25 {
        let order = orders.create_order(pay_now(&format!("huge-{n}"), &lines, "sim_approve")).await?;
        assert_eq!(order.into_inner().cancel_reason(), CancelReason::UnknownSku);
    }
    let (mut seen, mut pages, mut page_token) = (Vec::new(), 0, String::new());
    while pages == 0 || !page_token.is_empty() {
        let request = ListOrdersRequest { page_token, ..ListOrdersRequest::default() };
        let page = orders.list_orders(request).await?.into_inner();
        seen.extend(page.orders.into_iter().map(|order| order.request_id));
        page_token = page.next_page_token;
        pages += 1;
    }
    assert!(pages > 1);
    let newest_first: Vec<_> = (0..25).rev().map(|n| format!("huge-{n}")).collect();
    assert_eq!(seen, newest_first);
    Ok(())
}

#[tokio::test]
async fn a_watch_that_is_cut_by_a_stop_does_not_look_like_the_orders_end() -> Result<()> {
    let mut stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    let request = pay_later("watched", &[("A", 2)], Duration::from_secs(60));
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    let watch = WatchOrderRequest { order_id: order.order_id.clone() };
    let mut changes = stack.clients.orders.clone().watch_order(watch).await?.into_inner();
    let first = changes.next().await.expect("its present state")?;
    assert_eq!(first.state(), State::AwaitingPayment);
    stack.order.stop().await?;
    let end = changes.next().await.expect("the stream says why it ends").expect_err("it must be an error");
    assert_eq!((end.code(), Refusal::of(&end).reason.as_str()), (Code::Unavailable, reason::STOPPING));
    Ok(())
}
