//! Case C35: money that comes after its order was closed goes back, once, and the order stays closed.

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::deadline::eventually;
use harness::invariants::hold;
use harness::requests::{charge, gbp, pay_later};
use harness::service::Part;
use harness::stack::{Plan, Stack};
use proto::orders::v1::order::{CancelReason, PaymentState, State};
use proto::orders::v1::report_payment_request::Kind;
use proto::orders::v1::report_payment_response::Disposition;
use proto::orders::v1::{Order, ReportPaymentRequest};
use proto::payment::v1::{GetPaymentRequest, ListPaymentsRequest, Payment, payment};

const SOON: Duration = Duration::from_secs(15);

async fn closed_by_its_deadline(stack: &Stack) -> Result<Order> {
    let request = pay_later("unpaid", &[("A", 2)], Duration::from_secs(2));
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(order.state(), State::AwaitingPayment);
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::PaymentExpired));
    Ok(ended)
}

async fn given_back(stack: &Stack, payment_id: &str) -> Result<Payment> {
    eventually("the late money went back", SOON, async || {
        let request = GetPaymentRequest { payment_id: payment_id.to_owned() };
        let payment = stack.clients.payments.clone().get_payment(request).await?.into_inner();
        ensure!(payment.captured == payment.amount, "captured {:?}", payment.captured);
        ensure!(payment.refunded == payment.amount, "refunded {:?}", payment.refunded);
        Ok(payment)
    })
    .await
}

async fn refunds_of(stack: &Stack, payment_id: &str) -> Result<i64> {
    let sql = "SELECT count(*) FROM payment.refunds WHERE payment_id = $1 AND amount > 0";
    Ok(sqlx::query_scalar(sql).bind(payment_id).fetch_one(&stack.stores.payment.pool()?).await?)
}

#[tokio::test]
async fn c35a_a_report_after_the_deadline_is_exceptional_and_refunded_once() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    let order = closed_by_its_deadline(&stack).await?;
    let mut payments = stack.clients.payments.clone();
    let late = payments.charge(charge("late-1", "late.1", "", 200, "sim_approve")).await?.into_inner();
    assert_eq!(late.state(), payment::State::Captured);
    let report = ReportPaymentRequest {
        order_id: order.order_id.clone(),
        payment_id: "late-1".to_owned(),
        kind: Kind::Captured.into(),
        amount: Some(gbp(200)),
        provider_event_id: "event-1".to_owned(),
    };
    let mut orders = stack.clients.orders.clone();
    let first = orders.report_payment(report.clone()).await?.into_inner();
    assert_eq!(first.disposition(), Disposition::Exceptional);
    given_back(&stack, "late-1").await?;
    for _ in 0..3 {
        let repeat = orders.report_payment(report.clone()).await?.into_inner();
        assert_eq!(repeat.disposition(), Disposition::Duplicate);
    }
    hold(&stack).await?;
    assert_eq!(refunds_of(&stack, "late-1").await?, 1);
    let after = stack.order_of(&order.order_id).await?;
    assert_eq!((after.state(), after.payment_state()), (State::Cancelled, PaymentState::NoneKept));
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    Ok(())
}

#[tokio::test]
async fn c35b_a_provider_that_pays_after_the_cancel_is_refunded_once() -> Result<()> {
    // Without grace the deadline closes the order at two seconds; the provider pays all the same a second later.
    let plan = Plan::all().env(Part::Order, "HOLDFAST_PAYMENT_GRACE_MS", "0");
    let stack = plan.start().await?;
    stack.receive("A", 5).await?;
    let request = pay_later("unpaid", &[("A", 2)], Duration::from_secs(2));
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    let paying = charge("late-2", &order.payment_scope, &order.order_id, 200, "sim_pays_after_cancel_3000");
    let begun = stack.clients.payments.clone().charge(paying).await?.into_inner();
    assert_eq!(begun.state(), payment::State::Processing);
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::PaymentExpired));
    given_back(&stack, "late-2").await?;
    hold(&stack).await?;
    assert_eq!(refunds_of(&stack, "late-2").await?, 1);
    let listed = ListPaymentsRequest { scope: order.payment_scope.clone() };
    let listed = stack.clients.payments.clone().list_payments(listed).await?.into_inner().payments;
    assert_eq!(listed.len(), 1);
    assert_eq!(stack.order_of(&order.order_id).await?.state(), State::Cancelled);
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    Ok(())
}
