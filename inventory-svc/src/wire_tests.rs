//! What is and is not a request.

use super::*;

fn request(lines: &[(&str, i64)]) -> api::ReserveRequest {
    api::ReserveRequest {
        reservation_id: "r-1".into(),
        lines: lines
            .iter()
            .map(|(sku, quantity)| api::Line { sku: (*sku).into(), quantity: *quantity })
            .collect(),
        ..Default::default()
    }
}

fn fields(violations: Violations) -> Vec<String> {
    violations.into_iter().map(|violation| violation.field).collect()
}

#[test]
fn a_reserve_is_merged_and_has_defaults() {
    let order = reserve(&request(&[("B", 1), ("A", 2), ("B", 2)])).unwrap();
    assert_eq!(order.lines.to_text(), "A=2\nB=3");
    assert_eq!(order.hold_ms, HOLD_DEFAULT_MS);
    assert_eq!(order.customer, None);
}

#[test]
fn every_violation_of_a_reserve_is_told() {
    let long = "x".repeat(300);
    let wrong = api::ReserveRequest {
        reservation_id: "with space".into(),
        hold_for: Some(prost_types::Duration { seconds: 0, nanos: 999_999_999 }),
        customer_id: "{}".into(),
        ..request(&[("A", 0), ("", 1), (&long, 1), ("a\u{1}b", -5), ("{}", 1_000_001)])
    };
    let expected = [
        "reservation_id",
        "lines[0].quantity",
        "lines[1].sku",
        "lines[2].sku",
        "lines[3].sku",
        "lines[3].quantity",
        "lines[4].sku",
        "lines[4].quantity",
        "hold_for",
        "customer_id",
    ];
    assert_eq!(fields(reserve(&wrong).unwrap_err()), expected);
}

#[test]
fn lines_are_counted_before_they_are_merged() {
    for (count, right) in [(0, false), (1, true), (1_500, true), (1_501, false)] {
        let parsed = reserve(&request(&vec![("A", 1); count]));
        assert_eq!(parsed.is_ok(), right, "{count}");
    }
    let too_many = reserve(&request(&vec![("A", 1_000_000); 1_001])).unwrap_err();
    assert_eq!(fields(too_many), ["lines"]);
}

#[test]
fn holds_last_a_second_to_400_days() {
    for (seconds, nanos, right) in [
        (1, 0, true),
        (0, 999_999_999, false),
        (400 * 86_400, 0, true),
        (400 * 86_400, 1_000_000, false),
        (2, -1, false),
        (2, 1_000_000_000, false),
        (i64::MAX, 0, false),
        (i64::MIN, 0, false),
    ] {
        assert_eq!(hold_ms(&prost_types::Duration { seconds, nanos }).is_ok(), right, "{seconds} {nanos}");
    }
}

#[test]
fn stock_changes_name_every_violation() {
    let wrong = api::ReceiveStockRequest { reason: "a\nb".into(), ..Default::default() };
    assert_eq!(fields(receive(&wrong).unwrap_err()), ["quantity", "sku", "request_id", "reason"]);
    let wrong = api::AdjustStockRequest { delta: -1_000_000_001, ..Default::default() };
    assert_eq!(fields(adjust(&wrong).unwrap_err()), ["delta", "sku", "request_id", "reason"]);
}

#[test]
fn page_tokens_are_opaque_and_checked() {
    let last = Sku::parse("85049E").unwrap();
    let request = |page_size, page_token: String| api::ListStockRequest { page_size, page_token };
    let page_after = page(&request(0, page_token(&last))).unwrap();
    assert_eq!(page_after, Page { size: 100, after: Some(last) });
    for token in ["85049E", "zz", &hex::encode("stock2:A"), &hex::encode("stock1:{}")] {
        assert_eq!(fields(page(&request(1, (*token).to_owned())).unwrap_err()), ["page_token"]);
    }
    for size in [-1, 1_001] {
        assert_eq!(fields(page(&request(size, String::new())).unwrap_err()), ["page_size"]);
    }
}
