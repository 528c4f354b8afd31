use api::pause_sagas_request::Scope as Wire;
use prost_types::Duration as WireDuration;
use serde_json::json;

use super::*;
use crate::{
    checkout::{self, Checkout},
    order::{Currency, MinorUnits, Money, OrderId, Payment, Quantity, Sku},
};

const TOKEN: &str = "tok_4242_secret";

fn fields<T: std::fmt::Debug>(refused: Result<T, Vec<Violation>>) -> Vec<String> {
    refused.expect_err("it must be refused").into_iter().map(|violation| violation.field).collect()
}

#[test]
fn every_violation_of_an_order_is_named_at_once() {
    let request = api::ResolveStepRequest {
        saga_id: "7".into(),
        request_id: "a b".into(),
        actor: " ".into(),
        reason: "x".repeat(2_001),
        step: String::new(),
        direction: 1,
        output_json: "{".into(),
    };
    assert_eq!(
        fields(resolution(request.clone())),
        ["saga_id", "step", "output_json", "request_id", "actor", "reason"]
    );
    let sound = api::ResolveStepRequest {
        saga_id: Uuid::now_v7().to_string(),
        request_id: "r".into(),
        actor: "ann".into(),
        reason: "why".into(),
        step: "pay".into(),
        output_json: r#"{"payment_id":"p"}"#.into(),
        ..request
    };
    resolution(sound.clone()).unwrap();
    let with = |direction, output_json: &str| api::ResolveStepRequest {
        direction,
        output_json: output_json.into(),
        ..sound.clone()
    };
    resolution(with(2, "")).unwrap();
    for refused in [with(2, "{}"), with(1, ""), with(1, r#""\u0000""#), with(1, &"9".repeat(60_001))] {
        let named = fields(resolution(refused.clone()));
        assert!(named.iter().all(|field| field == "output_json"), "{named:?} of {refused:?}");
    }
    assert_eq!(fields(resolution(with(0, ""))), ["direction"]);
    // As JSON it would be longer than a journal keeps.
    assert_eq!(fields(resolution(with(1, &format!("[{}1e15]", "1e15,".repeat(11_000))))), ["output_json"]);
}

#[test]
fn a_pause_says_what_of() {
    let request = |scope| api::PauseSagasRequest {
        scope,
        request_id: "r".into(),
        actor: "ann".into(),
        reason: "why".into(),
    };
    assert_eq!(fields(pause(request(None))), ["scope"]);
    assert_eq!(fields(pause(request(Some(Wire::Kind(String::new()))))), ["kind"]);
    assert_eq!(fields(pause(request(Some(Wire::SagaId("x".into()))))), ["saga_id"]);
    assert!(matches!(
        pause(request(Some(Wire::Participant("payment-svc".into())))),
        Ok(Paused::Many(Many::Participant(_), _))
    ));
    let resumed = api::ResumeSagasRequest {
        scope: Some(api::resume_sagas_request::Scope::Clock(api::Clock {})),
        request_id: "r".into(),
        actor: "ann".into(),
        reason: "why".into(),
    };
    assert!(matches!(resume(resumed.clone()), Ok(Resumed::Scope(Scope::Clock, _))));
    assert_eq!(
        fields(resume(api::ResumeSagasRequest { scope: None, actor: String::new(), ..resumed })),
        ["actor", "scope"]
    );
}

#[test]
fn a_page_goes_on_with_the_filters_it_began_with() {
    let request = api::ListSagasRequest {
        kind: "checkout".into(),
        attribute_name: "order.id".into(),
        attribute_value: "7".into(),
        older_than: Some(WireDuration { seconds: 60, nanos: 0 }),
        page_size: 1,
        ..Default::default()
    };
    let (first, page) = filter(request.clone()).unwrap();
    assert_eq!((page.after, page.size), (None, 1));
    let last = SagaId::generate();
    let page_token = page::token(last.0, &format!("{first:?}"));
    let next = api::ListSagasRequest { page_token, ..request };
    assert_eq!(filter(next.clone()).unwrap().1.after, Some(last));
    let other = api::ListSagasRequest { kind: "refund".into(), ..next };
    assert_eq!(fields(filter(other)), ["page_token"]);
    let bad = api::ListSagasRequest {
        page_size: 1_001,
        state: 9,
        attribute_name: "order.id".into(),
        older_than: Some(WireDuration { seconds: -1, nanos: 0 }),
        error_contains: "x".repeat(201),
        ..Default::default()
    };
    assert_eq!(
        fields(filter(bad)),
        ["state", "page_size", "older_than", "attribute_value", "error_contains"]
    );
}

#[test]
fn no_journal_that_is_shown_tells_what_a_customer_pays_with() {
    let input = |payment| Checkout {
        order_id: OrderId(Uuid::now_v7()),
        customer_id: "c".into(),
        units: [(Sku("A".into()), Quantity(1))].into(),
        total: Money { currency: Currency("GBP".into()), amount: MinorUnits(100) },
        payment,
        hold_beyond_deadline_ms: 1,
    };
    let started = |input: &Checkout| json!({ "event": "started", "input": input }).to_string();
    let (event, shown) = secrets::shown(checkout::KIND, &started(&input(Payment::Now(TOKEN.into()))));
    assert_eq!(event, "started");
    assert!(!shown.contains(TOKEN), "{shown}");
    assert!(shown.contains(r#""payment":{"now":"[hidden]"}"#), "{shown}");
    assert!(shown.contains(r#""customer_id":"c""#), "the rest is shown: {shown}");
    let later = started(&input(Payment::Later));
    assert_eq!(secrets::shown(checkout::KIND, &later).1, later);
    // Also where it should not stand, and of a shape that this version does not write.
    for planted in [
        json!({ "event": "signalled", "payload": { "order": { "payment": { "now": TOKEN } } } }),
        json!({ "event": "moonwalk", "payment": TOKEN }),
        json!([{ "payment": [TOKEN] }]),
    ] {
        assert!(!secrets::shown(checkout::KIND, &planted.to_string()).1.contains(TOKEN), "{planted}");
    }
    assert_eq!(secrets::shown(checkout::KIND, "[1]"), ("unreadable".into(), "[1]".into()));
    let deep = format!("{}\"{TOKEN}\"{}", "[".repeat(200), "]".repeat(200));
    assert_eq!(secrets::shown(checkout::KIND, &deep), ("unreadable".into(), "{}".into()));
}
