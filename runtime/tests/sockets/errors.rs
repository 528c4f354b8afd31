//! Rich errors, across a socket.

use crate::probe::{Probe, Served, ask, plain};
use runtime::status::{self, Violation};
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// What a caller receives when a handler answers with `refused`.
async fn received(refused: Status) -> Status {
    let served = Served::probe(Probe::ask(move |_| {
        let refused = refused.clone();
        async move { Err(refused) }
    }))
    .await;
    ask(&served.client(), plain()).await.unwrap_err()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec()
}

#[tokio::test]
async fn a_refusal_says_who_why_and_what_about() {
    let sent = status::refusal(
        Code::FailedPrecondition,
        "holdfast",
        "INSUFFICIENT_STOCK",
        "not enough of 85049E",
        pairs([("short", "85049E"), ("partition", "0")]),
    );
    let got = received(sent).await;
    assert_eq!(got.code(), Code::FailedPrecondition);
    assert_eq!(got.message(), "not enough of 85049E");
    let reason = status::reason(&got, "holdfast").unwrap();
    assert_eq!(reason.reason, "INSUFFICIENT_STOCK");
    assert_eq!(reason.metadata["short"], "85049E");
    assert_eq!(reason.metadata["partition"], "0");
    assert_eq!(status::reason(&got, "elsewhere"), None, "another domain's reason is not ours");
    assert_eq!(status::retry_after(&got), None);
}

#[tokio::test]
async fn a_plain_status_has_no_reason() {
    for plain in [Status::unavailable("gone"), Status::deadline_exceeded("late"), Status::unknown("?")] {
        assert_eq!(status::reason(&received(plain).await, "holdfast"), None);
    }
}

#[tokio::test]
async fn a_refusal_can_say_when_to_ask_again() {
    let wait = Duration::from_millis(1_500);
    let sent = status::retry_later(Code::Unavailable, "holdfast", "STOCK_NOT_READY", "loading", wait);
    let got = received(sent).await;
    assert_eq!(status::reason(&got, "holdfast").unwrap().reason, "STOCK_NOT_READY");
    assert_eq!(status::retry_after(&got), Some(wait));
}

#[tokio::test]
async fn every_violation_arrives_at_once() {
    let violation =
        |field: &str| Violation { field: field.to_owned(), description: "must be set".to_owned() };
    let sent = status::invalid_fields(
        "holdfast",
        "INVALID_FIELD",
        vec![violation("customer_id"), violation("lines")],
    );
    let got = received(sent).await;
    assert_eq!(got.code(), Code::InvalidArgument);
    assert_eq!(got.message(), "customer_id: must be set (and 1 more)");
    let fields: Vec<_> = got
        .get_details_bad_request()
        .unwrap()
        .field_violations
        .into_iter()
        .map(|found| found.field)
        .collect();
    assert_eq!(fields, ["customer_id", "lines"]);
}

#[tokio::test]
async fn an_error_never_outgrows_the_headers_it_travels_in() {
    let violations = (0..1_500).map(|line| Violation {
        field: format!("lines[{line}].quantity"),
        description: "must lie between 1 and 1,000,000".to_owned(),
    });
    let got = received(status::invalid_fields("holdfast", "INVALID_FIELD", violations.collect())).await;
    assert_eq!(got.code(), Code::InvalidArgument);
    let found = got.get_details_bad_request().unwrap().field_violations;
    let last = found.last().unwrap();
    assert_eq!(
        (last.field.as_str(), last.description.clone()),
        ("*", format!("{} more violations", 1_501 - found.len()))
    );
    assert!(got.details().len() < 6_000, "{}", got.details().len());

    let long = "ä".repeat(40_000);
    let sent = status::refusal(
        Code::NotFound,
        "holdfast",
        "UNKNOWN_SKU",
        long.clone(),
        pairs([("sku", &long), ("a", "b")]),
    );
    let got = received(sent).await;
    assert_eq!(got.code(), Code::NotFound);
    let reason = status::reason(&got, "holdfast").unwrap();
    assert_eq!(reason.reason, "UNKNOWN_SKU");
    assert!(reason.metadata["sku"].ends_with('…') && got.message().ends_with('…'));
}
