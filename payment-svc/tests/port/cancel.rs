//! Cancelling a scope: whatever became of its attempts, no money stays, and nothing more is taken.

use crate::bed::{Bed, charge, reason, shape, until};
use proto::payment::v1::{ChargeRequest, ListPaymentsRequest};
use tonic::Code;

fn in_scope(payment: &str, token: &str) -> ChargeRequest {
    ChargeRequest { scope: "s".into(), ..charge(payment, token) }
}

#[tokio::test]
async fn c10_a_charge_after_the_cancel_of_its_scope_is_refused() {
    let bed = Bed::start().await;
    // C11: two at once, one tombstone.
    let (one, two) = tokio::join!(bed.cancel("p.scope"), bed.cancel("p.scope"));
    assert!(one.unwrap().is_empty() && two.unwrap().is_empty());
    for _ in 0..2 {
        let refused = bed.charge("p", "sim_approve").await.unwrap_err();
        assert_eq!(reason(&refused), (Code::FailedPrecondition, "PAYMENT_CANCELLED".into()));
    }
    assert_eq!(bed.count("select count(*) from payment.payments").await, 0);
    assert_eq!(bed.count("select count(*) from payment_simulator.charges").await, 0);
    assert_eq!(bed.count("select count(*) from payment.scopes where cancelled_at is not null").await, 1);
    bed.end().await;
}

#[tokio::test]
async fn a_captured_payment_is_refunded_once() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_approve").await.unwrap();
    for _ in 0..3 {
        let payments = bed.cancel("p.scope").await.unwrap();
        assert_eq!(payments.iter().map(shape).collect::<Vec<_>>(), [("STATE_CANCELLED", 100, 100)]);
    }
    assert_eq!(bed.count("select count(*) from payment_simulator.refunds").await, 1);
    let refused = bed.charge("p", "sim_approve").await.unwrap_err();
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "PAYMENT_CANCELLED".into()));
    bed.end().await;
}

#[tokio::test]
async fn every_attempt_of_a_scope_is_brought_to_its_end() {
    let bed = Bed::start().await;
    let tokens =
        ["sim_approve", "sim_decline", "sim_never", "sim_timeout", "sim_fail_9", "sim_approve_after_60000"];
    for (n, token) in tokens.iter().enumerate() {
        let _ = bed.send(in_scope(&format!("p{n}"), token)).await;
    }
    bed.cancel("s").await.unwrap();
    let list = ListPaymentsRequest { scope: "s".into() };
    let payments = bed.client.clone().list_payments(list).await.unwrap().into_inner().payments;
    assert_eq!(
        payments.iter().map(shape).collect::<Vec<_>>(),
        [
            ("STATE_CANCELLED", 100, 100),
            ("STATE_DECLINED", 0, 0),
            ("STATE_CANCELLED", 0, 0),
            ("STATE_CANCELLED", 100, 100),
            ("STATE_CANCELLED", 0, 0),
            ("STATE_CANCELLED", 0, 0),
        ]
    );
    // The one the provider had never heard of is refused there too, should it still come.
    let refused = bed.send(in_scope("p4", "sim_fail_9")).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "PAYMENT_CANCELLED".into()));
    bed.end().await;
}

#[tokio::test]
async fn what_was_refunded_before_is_not_refunded_again() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_approve").await.unwrap();
    bed.refund("p", "r", Some(30)).await.unwrap();
    let payments = bed.cancel("p.scope").await.unwrap();
    assert_eq!(payments.iter().map(shape).collect::<Vec<_>>(), [("STATE_CANCELLED", 100, 100)]);
    assert_eq!(bed.count("select max(amount) from payment_simulator.refunds").await, 70);
    bed.end().await;
}

#[tokio::test]
async fn a_refund_of_unknown_fate_is_finished_by_the_cancel() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_refund_timeout").await.unwrap();
    let unknown = bed.refund("p", "r", Some(30)).await.unwrap_err();
    assert_eq!(reason(&unknown), (Code::Unavailable, "PROVIDER_UNAVAILABLE".into()));
    // The first call of the cancel's own refund is silent too.
    let unknown = bed.cancel("p.scope").await.unwrap_err();
    assert_eq!(reason(&unknown), (Code::Unavailable, "PROVIDER_UNAVAILABLE".into()));
    let payments = bed.cancel("p.scope").await.unwrap();
    assert_eq!(payments.iter().map(shape).collect::<Vec<_>>(), [("STATE_CANCELLED", 100, 100)]);
    assert_eq!(bed.count("select count(*) from payment_simulator.refunds").await, 2);
    bed.end().await;
}

#[tokio::test]
async fn the_sweep_finishes_a_cancel_that_nobody_repeats() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_refund_timeout").await.unwrap();
    bed.cancel("p.scope").await.unwrap_err();
    until("given back", async || shape(&bed.get("p").await.unwrap()) == ("STATE_CANCELLED", 100, 100)).await;
    assert_eq!(bed.count("select count(*) from payment_simulator.refunds").await, 1);
    bed.end().await;
}

#[tokio::test]
async fn c35_a_payment_that_pays_after_its_cancel_is_refunded_once_and_reported() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_pays_after_cancel_400").await.unwrap();
    let payments = bed.cancel("p.scope").await.unwrap();
    assert_eq!(payments.iter().map(shape).collect::<Vec<_>>(), [("STATE_CANCELLED", 0, 0)]);
    until("paid and given back", async || {
        shape(&bed.get("p").await.unwrap()) == ("STATE_CANCELLED", 100, 100)
    })
    .await;
    until("told", async || bed.orders.taken("order-p").len() == 1).await;
    let told = bed.orders.taken("order-p").remove(0).report;
    assert_eq!((told.kind().as_str_name(), told.amount.unwrap().minor_units), ("KIND_CAPTURED", 100));
    // Neither a repeated cancel nor a caller who wants all that is left moves money again.
    bed.cancel("p.scope").await.unwrap();
    assert_eq!(shape(&bed.refund("p", "r", None).await.unwrap()), ("STATE_CANCELLED", 100, 100));
    assert_eq!(bed.count("select count(*) from payment_simulator.refunds").await, 1);
    bed.end().await;
}

#[tokio::test]
async fn one_payment_may_be_kept_and_goes_back_with_the_next_cancel() {
    let bed = Bed::start().await;
    for payment in ["first", "second", "open"] {
        let token = if payment == "open" { "sim_never" } else { "sim_approve" };
        bed.send(in_scope(payment, token)).await.unwrap();
    }
    bed.cancel_but("s", "second").await.unwrap();
    assert_eq!(shape(&bed.get("first").await.unwrap()), ("STATE_CANCELLED", 100, 100));
    assert_eq!(shape(&bed.get("second").await.unwrap()), ("STATE_CAPTURED", 100, 0));
    assert_eq!(shape(&bed.get("open").await.unwrap()), ("STATE_CANCELLED", 0, 0));
    let late = bed.send(in_scope("late", "sim_approve")).await.unwrap_err();
    assert_eq!(late.code(), tonic::Code::FailedPrecondition);
    bed.cancel("s").await.unwrap();
    assert_eq!(shape(&bed.get("second").await.unwrap()), ("STATE_CANCELLED", 100, 100));
    bed.end().await;
}
