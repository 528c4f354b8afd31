//! Refunds: never more than was captured, once per request id.

use crate::bed::{Bed, charge, reason, shape, until};
use proto::{money::v1::Money, payment::v1::RefundRequest};
use tonic::Code;

#[tokio::test]
async fn c42_two_refunds_of_60_of_100_are_one() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_approve").await.unwrap();
    let (one, two) = tokio::join!(bed.refund("p", "r1", Some(60)), bed.refund("p", "r2", Some(60)));
    let refused = match (&one, &two) {
        (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(refused), (Code::FailedPrecondition, "REFUND_EXCEEDS_CAPTURED".into()));
    assert_eq!(shape(&bed.get("p").await.unwrap()), ("STATE_CAPTURED", 100, 60));
    // Asked again, the same answers.
    assert_eq!(bed.refund("p", "r1", Some(60)).await.is_ok(), one.is_ok());
    assert_eq!(bed.refund("p", "r2", Some(60)).await.is_ok(), two.is_ok());
    bed.end().await;
}

#[tokio::test]
async fn c42_refunds_of_minus_1_and_101_are_refused() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_approve").await.unwrap();
    let refused = bed.refund("p", "r1", Some(-1)).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".into()));
    let refused = bed.refund("p", "r2", Some(101)).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "REFUND_EXCEEDS_CAPTURED".into()));
    assert_eq!(shape(&bed.get("p").await.unwrap()), ("STATE_CAPTURED", 100, 0));
    bed.end().await;
}

#[tokio::test]
async fn c43_a_refund_whose_answer_is_lost_happens_once() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_refund_timeout").await.unwrap();
    let unknown = bed.refund("p", "r", Some(60)).await.unwrap_err();
    assert_eq!(reason(&unknown), (Code::Unavailable, "PROVIDER_UNAVAILABLE".into()));
    // The promised amount is not for others.
    let refused = bed.refund("p", "r2", Some(60)).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "REFUND_EXCEEDS_CAPTURED".into()));
    assert_eq!(shape(&bed.refund("p", "r", Some(60)).await.unwrap()), ("STATE_CAPTURED", 100, 60));
    assert_eq!(bed.count("select sum(amount)::bigint from payment_simulator.refunds").await, 60);
    bed.end().await;
}

#[tokio::test]
async fn a_refund_that_nobody_repeats_is_finished_by_the_sweep() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_refund_timeout").await.unwrap();
    bed.refund("p", "r", None).await.unwrap_err();
    until("refunded", async || shape(&bed.get("p").await.unwrap()) == ("STATE_CAPTURED", 100, 100)).await;
    bed.end().await;
}

#[tokio::test]
async fn without_an_amount_all_that_is_left_goes_back() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_approve").await.unwrap();
    bed.refund("p", "r1", Some(30)).await.unwrap();
    assert_eq!(shape(&bed.refund("p", "r2", None).await.unwrap()), ("STATE_CAPTURED", 100, 100));
    // Nothing is left, which is an answer, also when asked again.
    assert_eq!(shape(&bed.refund("p", "r3", None).await.unwrap()), ("STATE_CAPTURED", 100, 100));
    assert_eq!(shape(&bed.refund("p", "r2", None).await.unwrap()), ("STATE_CAPTURED", 100, 100));
    assert_eq!(bed.count("select count(*) from payment_simulator.refunds").await, 2);
    let _ = bed.charge("q", "sim_decline").await;
    assert_eq!(shape(&bed.refund("q", "r4", None).await.unwrap()), ("STATE_DECLINED", 0, 0));
    bed.end().await;
}

#[tokio::test]
async fn a_request_id_means_one_refund() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_approve").await.unwrap();
    bed.charge("q", "sim_approve").await.unwrap();
    bed.refund("p", "r", Some(10)).await.unwrap();
    for other in [
        bed.refund("p", "r", Some(11)).await,
        bed.refund("p", "r", None).await,
        bed.refund("q", "r", Some(10)).await,
    ] {
        assert_eq!(reason(&other.unwrap_err()), (Code::InvalidArgument, "REQUEST_ID_REUSED".into()));
    }
    let euros = RefundRequest {
        payment_id: "p".into(),
        request_id: "r2".into(),
        amount: Some(Money { currency: "EUR".into(), minor_units: 1 }),
    };
    let refused = bed.client.clone().refund(euros).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".into()));
    bed.end().await;
}

#[tokio::test]
async fn what_is_not_decided_is_not_refused() {
    let bed = Bed::start().await;
    bed.send(charge("p", "sim_never")).await.unwrap();
    let unknown = bed.refund("p", "r", Some(10)).await.unwrap_err();
    assert_eq!(reason(&unknown), (Code::Unavailable, "PROVIDER_UNAVAILABLE".into()));
    let nobody = bed.refund("nobody", "r", Some(10)).await.unwrap_err();
    assert_eq!(reason(&nobody), (Code::NotFound, "UNKNOWN_PAYMENT".into()));
    bed.end().await;
}
