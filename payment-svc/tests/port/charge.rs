//! Charges: every token, repeats, and what is refused.

use crate::bed::{Bed, charge, reason, shape, until};
use proto::{money::v1::Money, payment::v1::ChargeRequest};
use std::time::{Duration, Instant};
use tonic::Code;

#[tokio::test]
async fn an_approved_charge_captures_once_however_often_it_is_asked_for() {
    let bed = Bed::start().await;
    let first = bed.charge("p", "sim_approve").await.unwrap();
    assert_eq!(shape(&first), ("STATE_CAPTURED", 100, 0));
    assert_eq!(bed.charge("p", "sim_approve").await.unwrap(), first);
    assert_eq!(bed.get("p").await.unwrap(), first);
    assert_eq!(bed.count("select count(*) from payment_simulator.charges").await, 1);
    bed.end().await;
}

#[tokio::test]
async fn fifty_equal_charges_at_once_are_one() {
    let bed = Bed::start().await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut client = bed.client.clone();
        callers.spawn(async move { client.charge(charge("p", "sim_approve")).await.unwrap().into_inner() });
    }
    for answer in callers.join_all().await {
        assert_eq!(shape(&answer), ("STATE_CAPTURED", 100, 0));
    }
    assert_eq!(bed.count("select count(*) from payment_simulator.charges").await, 1);
    until("one report", async || bed.orders.taken("order-p").len() == 1).await;
    until("nothing left to tell", async || bed.count("select count(*) from payment.outbox").await == 0).await;
    assert_eq!(bed.orders.told().len(), 1);
    bed.end().await;
}

#[tokio::test]
async fn another_content_under_the_same_id_is_refused() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_approve").await.unwrap();
    let pound = |minor_units| Some(Money { currency: "GBP".into(), minor_units });
    for other in [
        ChargeRequest { amount: pound(101), ..charge("p", "sim_approve") },
        ChargeRequest {
            amount: Some(Money { currency: "EUR".into(), minor_units: 100 }),
            ..charge("p", "sim_approve")
        },
        ChargeRequest { scope: "other".into(), ..charge("p", "sim_approve") },
        ChargeRequest { reference: "other".into(), ..charge("p", "sim_approve") },
        charge("p", "sim_never"),
    ] {
        let refused = bed.send(other).await.unwrap_err();
        assert_eq!(reason(&refused), (Code::InvalidArgument, "REQUEST_ID_REUSED".into()));
    }
    bed.end().await;
}

#[tokio::test]
async fn a_declined_charge_is_refused_each_time_and_told_once() {
    let bed = Bed::start().await;
    for _ in 0..3 {
        let declined = bed.charge("p", "sim_decline").await.unwrap_err();
        assert_eq!(reason(&declined), (Code::FailedPrecondition, "PAYMENT_DECLINED".into()));
    }
    let payment = bed.get("p").await.unwrap();
    assert_eq!(shape(&payment), ("STATE_DECLINED", 0, 0));
    assert_eq!(payment.decline_reason, "card_declined");
    until("told", async || !bed.orders.taken("order-p").is_empty()).await;
    assert_eq!(bed.orders.taken("order-p")[0].report.kind().as_str_name(), "KIND_DECLINED");
    bed.end().await;
}

#[tokio::test]
async fn a_late_approval_is_found_by_asking() {
    let bed = Bed::start().await;
    let processing = bed.charge("p", "sim_approve_after_200").await.unwrap();
    assert_eq!(shape(&processing), ("STATE_PROCESSING", 0, 0));
    until("captured", async || shape(&bed.get("p").await.unwrap()) == ("STATE_CAPTURED", 100, 0)).await;
    bed.end().await;
}

#[tokio::test]
async fn a_late_approval_is_reported_though_nobody_asks() {
    let bed = Bed::start().await;
    let asked_at = Instant::now();
    bed.charge("p", "sim_approve_after_300").await.unwrap();
    until("told", async || !bed.orders.taken("order-p").is_empty()).await;
    let took = asked_at.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(2), "{took:?}");
    assert_eq!(bed.orders.taken("order-p")[0].report.kind().as_str_name(), "KIND_CAPTURED");
    bed.end().await;
}

#[tokio::test]
async fn c44_a_charge_whose_answer_is_lost_is_found_and_never_made_twice() {
    let bed = Bed::start().await;
    assert_eq!(shape(&bed.charge("p", "sim_timeout").await.unwrap()), ("STATE_PROCESSING", 0, 0));
    assert_eq!(shape(&bed.charge("p", "sim_timeout").await.unwrap()), ("STATE_CAPTURED", 100, 0));
    assert_eq!(bed.count("select count(*) from payment_simulator.charges").await, 1);

    bed.charge("q", "sim_timeout").await.unwrap();
    assert_eq!(shape(&bed.get("q").await.unwrap()), ("STATE_CAPTURED", 100, 0));

    // Nobody asks for this one: the sweep does.
    bed.charge("r", "sim_timeout").await.unwrap();
    until("told", async || !bed.orders.taken("order-r").is_empty()).await;
    bed.end().await;
}

#[tokio::test]
async fn a_provider_that_fails_is_asked_again_under_the_same_id() {
    let bed = Bed::start().await;
    for _ in 0..3 {
        let failed = bed.charge("p", "sim_fail_3").await.unwrap_err();
        assert_eq!(reason(&failed), (Code::Unavailable, "PROVIDER_UNAVAILABLE".into()));
        assert!(runtime::status::retry_after(&failed).is_some());
        assert_eq!(shape(&bed.get("p").await.unwrap()), ("STATE_PROCESSING", 0, 0));
    }
    assert_eq!(shape(&bed.charge("p", "sim_fail_3").await.unwrap()), ("STATE_CAPTURED", 100, 0));
    bed.end().await;
}

#[tokio::test]
async fn silent_calls_hold_no_connection() {
    // Two connections for the book, one for the provider.
    let bed = Bed::start_with(&["--database-connections=2"]).await;
    let mut silent = tokio::task::JoinSet::new();
    for n in 0..40 {
        let mut client = bed.client.clone();
        silent.spawn(
            async move { client.charge(charge(&format!("silent-{n}"), "sim_timeout")).await.unwrap() },
        );
    }
    until("all executed", async || bed.count("select count(*) from payment_simulator.charges").await == 40)
        .await;
    // Not in process: the provider answered within its limit, while all of those were silent.
    assert_eq!(shape(&bed.charge("p", "sim_approve").await.unwrap()), ("STATE_CAPTURED", 100, 0));
    silent.join_all().await;
    bed.end().await;
}

#[tokio::test]
async fn malformed_requests_name_every_violation() {
    let bed = Bed::start().await;
    let refused = bed
        .send(ChargeRequest { payment_token: "tok".into(), ..ChargeRequest::default() })
        .await
        .unwrap_err();
    assert_eq!(reason(&refused), (Code::InvalidArgument, "INVALID_FIELD".into()));
    let details = tonic_types::StatusExt::get_details_bad_request(&refused).unwrap();
    let fields: Vec<_> = details.field_violations.iter().map(|v| v.field.as_str()).collect();
    assert_eq!(fields, ["payment_id", "scope", "amount", "payment_token"]);

    let unknown = bed.get("nobody").await.unwrap_err();
    assert_eq!(reason(&unknown), (Code::NotFound, "UNKNOWN_PAYMENT".into()));
    assert_eq!(bed.count("select count(*) from payment.payments").await, 0);
    bed.end().await;
}
