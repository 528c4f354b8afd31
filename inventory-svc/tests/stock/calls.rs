//! The calls, through the public API.

use std::{sync::Arc, time::Duration};

use proto::inventory::v1::{self as api, reservation::State};
use tokio::task::JoinSet;
use tonic::Code;

use crate::{
    service::{Service, reason, refusal},
    stores::Stores,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_last_unit_is_held_once() {
    let stores = Stores::start().await;
    let service = Arc::new(Service::start(&stores).await);
    service.receive("in", "A", 1).await.unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..100 {
        let service = service.clone();
        callers.spawn(async move { service.reserve(&format!("r{caller}"), &[("A", 1)]).await });
    }
    let answers = callers.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    for refused in answers.into_iter().filter(Result::is_err) {
        let expected = (Code::FailedPrecondition, "INSUFFICIENT_STOCK".to_owned(), "A".to_owned());
        assert_eq!(refusal(refused), expected);
    }
    assert_eq!(service.counters("A").await, [0, 1, 0, 1]);
    stores.check_ledger().await;
    stores.check_redis().await;
}

#[tokio::test]
async fn an_answer_is_the_same_when_asked_again() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    service.receive("in", "A", 5).await.unwrap();
    let first = service.reserve("r", &[("A", 2), ("A", 1)]).await.unwrap();
    assert_eq!(first.state(), State::Held);
    assert_eq!(first.lines, [api::Line { sku: "A".into(), quantity: 3 }]);
    // Other order and split of the lines, the same meaning.
    assert_eq!(service.reserve("r", &[("A", 3)]).await.unwrap(), first);
    assert_eq!(reason(service.reserve("r", &[("A", 2)]).await), "REQUEST_ID_REUSED");
    assert_eq!(service.reservation("r").await.unwrap(), first);

    assert_eq!(reason(service.reserve("s", &[("A", 3)]).await), "INSUFFICIENT_STOCK");
    service.receive("more", "A", 10).await.unwrap();
    assert_eq!(reason(service.reserve("s", &[("A", 3)]).await), "INSUFFICIENT_STOCK");
    let refused = service.reservation("s").await.unwrap();
    assert_eq!((refused.state(), refused.refusal_reason.as_str()), (State::Refused, "INSUFFICIENT_STOCK"));
    assert_eq!(refused.refused_skus, ["A"]);

    let confirmed = service.confirm("r").await.unwrap();
    assert_eq!(confirmed.state(), State::Confirmed);
    assert_eq!(service.confirm("r").await.unwrap(), confirmed);
    assert_eq!(service.reserve("r", &[("A", 3)]).await.unwrap(), confirmed);
    assert_eq!(reason(service.release("r").await), "RESERVATION_CONFIRMED");
    assert_eq!(service.counters("A").await, [12, 0, 3, 15]);
    stores.check_ledger().await;
}

#[tokio::test]
async fn a_release_before_the_reserve_wins() {
    let stores = Stores::start().await;
    let service = Arc::new(Service::start(&stores).await);
    service.receive("in", "A", 5).await.unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..2 {
        let service = service.clone();
        callers.spawn(async move { service.release("r").await });
    }
    let [first, second]: [_; 2] = callers.join_all().await.try_into().unwrap();
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(reason(service.reserve("r", &[("A", 1)]).await), "RESERVATION_RELEASED");
    assert_eq!(reason(service.confirm("r").await), "RESERVATION_RELEASED");
    assert_eq!(stores.count("select count(*) from inventory.movements where kind = 'RELEASE'").await, 1);

    // A refused id that is released stays refused no longer.
    assert_eq!(reason(service.reserve("s", &[("A", 6)]).await), "INSUFFICIENT_STOCK");
    assert_eq!(service.release("s").await.unwrap().state(), State::Released);
    assert_eq!(reason(service.reserve("s", &[("A", 6)]).await), "RESERVATION_RELEASED");
    // A confirm of an id nobody reserved settles it too.
    assert_eq!(reason(service.confirm("t").await), "RESERVATION_EXPIRED");
    assert_eq!(reason(service.reserve("t", &[("A", 1)]).await), "RESERVATION_EXPIRED");
    assert_eq!(service.release("t").await.unwrap().state(), State::Released);
    assert_eq!(reason(service.reserve("t", &[("A", 1)]).await), "RESERVATION_RELEASED");
    assert_eq!(service.counters("A").await, [5, 0, 0, 5]);
    stores.check_ledger().await;
}

#[tokio::test]
async fn a_lapsed_hold_is_given_back_once() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    service.receive("in", "A", 10).await.unwrap();
    let short = Duration::from_secs(1);
    service.reserve_for("lapses", &[("A", 5)], short).await.unwrap();
    service.reserve_for("released", &[("A", 3)], short).await.unwrap();
    service.reserve("stays", &[("A", 2)]).await.unwrap();
    service.release("released").await.unwrap();
    service.release("released").await.unwrap();
    wait_for(async || service.counters("A").await == [8, 2, 0, 10]).await;
    wait_for(async || service.reservation("lapses").await.unwrap().state() == State::Expired).await;
    assert_eq!(reason(service.confirm("lapses").await), "RESERVATION_EXPIRED");
    assert_eq!(reason(service.reserve("lapses", &[("A", 5)]).await), "RESERVATION_EXPIRED");
    assert_eq!(service.confirm("stays").await.unwrap().state(), State::Confirmed);
    assert_eq!(service.counters("A").await, [8, 0, 2, 10]);
    stores.check_ledger().await;
    stores.check_redis().await;
}

#[tokio::test]
async fn what_redis_forgot_the_ledger_remembers() {
    let stores = Stores::start().await;
    let service = Service::start_with(&stores, &["--outcome-ttl-ms", "1000"]).await;
    service.receive("in", "A", 10).await.unwrap();
    service.reserve("released", &[("A", 5)]).await.unwrap();
    service.release("released").await.unwrap();
    service.reserve("confirmed", &[("A", 1)]).await.unwrap();
    service.confirm("confirmed").await.unwrap();
    service.release("tombstone").await.unwrap();
    service.reserve("held", &[("A", 2)]).await.unwrap();
    wait_for(async || stores.command::<Vec<String>>("KEYS *:reservation:*").await.len() == 1).await;

    service.release("released").await.unwrap();
    assert_eq!(reason(service.reserve("released", &[("A", 5)]).await), "RESERVATION_RELEASED");
    assert_eq!(reason(service.reserve("released", &[("A", 6)]).await), "REQUEST_ID_REUSED");
    assert_eq!(reason(service.reserve("tombstone", &[("A", 5)]).await), "RESERVATION_RELEASED");
    assert_eq!(reason(service.release("confirmed").await), "RESERVATION_CONFIRMED");
    assert_eq!(service.confirm("confirmed").await.unwrap().state(), State::Confirmed);
    assert_eq!(service.reserve("confirmed", &[("A", 1)]).await.unwrap().state(), State::Confirmed);
    assert_eq!(service.reservation("released").await.unwrap().state(), State::Released);
    let again = service.receive("in", "A", 10).await.unwrap();
    assert_eq!((again.received, again.available), (10, 10));
    assert_eq!(reason(service.receive("in", "A", 11).await), "REQUEST_ID_REUSED");
    assert_eq!(service.confirm("held").await.unwrap().state(), State::Confirmed);
    assert_eq!(service.counters("A").await, [7, 0, 3, 10]);
    stores.check_ledger().await;
}

#[tokio::test]
async fn stock_is_received_and_adjusted_once() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    assert_eq!(refusal(service.adjust("a0", "A", 5).await).0, Code::NotFound);
    assert_eq!(
        refusal(service.reserve("r0", &[("A", 1)]).await),
        (Code::NotFound, "UNKNOWN_SKU".into(), "A".into())
    );
    assert_eq!(refusal(service.get("A").await).1, "UNKNOWN_SKU");
    let first = service.receive("in", "A", 10).await.unwrap();
    let etag = first.etag.clone();
    assert_eq!(service.receive("in", "A", 10).await.unwrap(), first);
    service.reserve("r", &[("A", 4)]).await.unwrap();
    assert_eq!(service.receive("in", "A", 10).await.unwrap(), first);
    assert_eq!(reason(service.receive("in", "A", 9).await), "REQUEST_ID_REUSED");
    assert_eq!(reason(service.adjust("in", "A", 10).await), "REQUEST_ID_REUSED");
    assert_ne!(service.get("A").await.unwrap().etag, etag);

    assert_eq!(reason(service.adjust("a1", "A", -7).await), "INSUFFICIENT_STOCK");
    assert_eq!(service.adjust("a2", "A", -6).await.unwrap().available, 0);
    assert_eq!(reason(service.adjust("a1", "A", -7).await), "INSUFFICIENT_STOCK");
    service.release("r").await.unwrap();
    assert_eq!(service.adjust("a3", "A", -4).await.unwrap().received, 0);
    assert_eq!(refusal(service.reserve("r1", &[("A", 1)]).await).1, "INSUFFICIENT_STOCK");
    assert_eq!(service.counters("A").await, [0, 0, 0, 0]);
    stores.check_ledger().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_order_is_one_script() {
    let stores = Stores::start().await;
    let service = Arc::new(Service::start(&stores).await);
    let skus: Vec<String> = (0..1_500).map(|sku| format!("SKU {sku:04}")).collect();
    let mut receipts = JoinSet::new();
    for (index, sku) in skus.iter().cloned().enumerate() {
        let service = service.clone();
        receipts.spawn(async move { service.receive(&format!("in{index}"), &sku, 2).await.unwrap() });
    }
    receipts.join_all().await;
    let lines: Vec<(&str, i64)> = skus.iter().map(|sku| (sku.as_str(), 2)).collect();
    assert_eq!(service.reserve("large", &lines).await.unwrap().lines.len(), 1_500);
    let (code, why, named) = refusal(service.reserve("none.left", &lines).await);
    assert_eq!((code, why.as_str()), (Code::FailedPrecondition, "INSUFFICIENT_STOCK"));
    assert!(named.starts_with("SKU 0000,SKU 0001"));
    assert_eq!(service.reservation("none.left").await.unwrap().refused_skus.len(), 1_500);
    assert_eq!(service.confirm("large").await.unwrap().lines.len(), 1_500);
    assert_eq!(service.counters("SKU 1499").await, [0, 0, 2, 2]);

    let mut listed = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = api::ListStockRequest { page_size: 700, page_token };
        let page = service.reservations.clone().list_stock(request).await.unwrap().into_inner();
        listed.extend(page.stock.into_iter().map(|stock| stock.sku));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, skus);
    stores.check_ledger().await;
    stores.check_redis().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crossing_orders_do_not_block_each_other() {
    let stores = Stores::start().await;
    let service = Arc::new(Service::start(&stores).await);
    service.receive("a", "A", 1_000).await.unwrap();
    service.receive("b", "B", 1_000).await.unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..1_000 {
        let service = service.clone();
        let lines = if caller % 2 == 0 { [("A", 1), ("B", 1)] } else { [("B", 1), ("A", 1)] };
        callers.spawn(async move { service.reserve(&format!("r{caller}"), &lines).await.unwrap() });
    }
    callers.join_all().await;
    assert_eq!(service.counters("A").await, [0, 1_000, 0, 1_000]);
    assert_eq!(service.counters("B").await, [0, 1_000, 0, 1_000]);
    stores.check_ledger().await;
    stores.check_redis().await;
}

/// Asks until it is so, for at most ten seconds.
pub(crate) async fn wait_for(mut so: impl AsyncFnMut() -> bool) {
    let give_up = tokio::time::Instant::now() + Duration::from_secs(10);
    while !so().await {
        assert!(tokio::time::Instant::now() < give_up, "it never became so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
