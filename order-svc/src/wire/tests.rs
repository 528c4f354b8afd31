use proto::money::v1::Money as WireMoney;

use super::*;

fn line(sku: &str, quantity: i64, minor_units: i64) -> api::OrderLine {
    let unit_price = Some(WireMoney { currency: "GBP".into(), minor_units });
    api::OrderLine { sku: sku.into(), quantity, unit_price }
}

fn request(lines: Vec<api::OrderLine>) -> api::CreateOrderRequest {
    api::CreateOrderRequest {
        request_id: "r".into(),
        customer_id: String::new(),
        lines,
        payment: Some(api::create_order_request::Payment::PayLater(api::PayLater {})),
        expire_after: None,
    }
}

fn fields_of(request: api::CreateOrderRequest) -> Vec<String> {
    let violations = placement(request, Duration::from_secs(60)).expect_err("it must be refused");
    violations.into_iter().map(|violation| violation.field).collect()
}

#[test]
fn a_good_request_is_priced() {
    let placed =
        placement(request(vec![line("A", 3, 250), line("B", 1, 0)]), Duration::from_secs(60)).unwrap();
    assert_eq!(placed.total.amount, MinorUnits(750));
    assert_eq!(placed.expire_after, Duration::from_secs(60));
}

#[test]
fn every_violation_is_named_at_once() {
    let mut bad = request(vec![line("", 0, 1), line("A{}", 1_000_001, -1), line("B\n", -5, 1)]);
    bad.request_id = " ".into();
    bad.customer_id = "x".repeat(129);
    bad.payment = None;
    bad.expire_after = Some(prost_types::Duration { seconds: -1, nanos: 0 });
    assert_eq!(
        fields_of(bad),
        [
            "request_id",
            "customer_id",
            "lines[0].sku",
            "lines[0].quantity",
            "lines[1].sku",
            "lines[1].quantity",
            "lines[1].unit_price.minor_units",
            "lines[2].sku",
            "lines[2].quantity",
            "payment",
            "expire_after",
        ]
    );
}

#[test]
fn sums_that_do_not_fit_are_refused() {
    assert_eq!(fields_of(request(vec![line("A", 1_000_000, i64::MAX / 2)])), ["lines"]);
    assert_eq!(fields_of(request(vec![line("A", 1, i64::MAX), line("B", 1, 1)])), ["lines"]);
    assert_eq!(fields_of(request(vec![line("A", 1, 0)])), ["lines"]);
}

#[test]
fn lines_are_counted_before_merging() {
    assert!(placement(request(vec![line("A", 1, 1); 1_500]), Duration::from_secs(60)).is_ok());
    assert_eq!(fields_of(request(vec![line("A", 1, 1); 1_501])), ["lines"]);
    assert_eq!(fields_of(request(Vec::new())), ["lines"]);
}

#[test]
fn one_order_has_one_currency() {
    let mut euro = line("B", 1, 1);
    euro.unit_price = Some(WireMoney { currency: "EUR".into(), minor_units: 1 });
    assert_eq!(fields_of(request(vec![line("A", 1, 1), euro])), ["lines[1].unit_price.currency"]);
    let mut none = line("A", 1, 1);
    none.unit_price = None;
    assert_eq!(fields_of(request(vec![none])), ["lines[0].unit_price.currency"]);
}

#[test]
fn a_page_token_belongs_to_its_filters() {
    let guests = Filter { limit: 1, ..Filter::default() };
    let order = OrderId(Uuid::now_v7());
    let token = page::token(order.0, &filters_of(&guests));
    assert_eq!(page::read(&token, &filters_of(&guests)), Some(order.0));
    let others = Filter { customer_id: Some("c".into()), limit: 1, ..Filter::default() };
    assert_eq!(page::read(&token, &filters_of(&others)), None);
    for wrong in ["", "zz", "00", &token[..30]] {
        assert_eq!(page::read(wrong, &filters_of(&guests)), None, "{wrong}");
    }
}

#[test]
fn an_etag_we_never_gave_matches_nothing() {
    let request = api::CancelOrderRequest {
        order_id: Uuid::nil().to_string(),
        request_id: "r".into(),
        etag: "yesterday".into(),
    };
    assert_eq!(cancellation(request).unwrap().2, Some(Version(-1)));
}

#[test]
fn units_of_one_sku_have_a_limit_over_all_lines() {
    let most = vec![line("A", 1_000_000, 1); 1_000];
    assert!(placement(request(most.clone()), Duration::from_secs(60)).is_ok());
    let mut over = most;
    over.push(line("A", 1, 1));
    assert_eq!(fields_of(request(over)), ["lines"]);
}

#[test]
fn filters_are_checked_like_what_they_look_for() {
    let request = api::ListOrdersRequest {
        customer_id: "c\0".into(),
        request_id: "r r".into(),
        ..api::ListOrdersRequest::default()
    };
    let fields: Vec<_> = filter(request).unwrap_err().into_iter().map(|violation| violation.field).collect();
    assert_eq!(fields, ["customer_id", "request_id"]);
}
