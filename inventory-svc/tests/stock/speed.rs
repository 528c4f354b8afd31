//! That commits are shared. The limits are loose: they catch a commit per call, not a slow machine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::Semaphore, task::JoinSet};

use crate::{service::Service, stores::Stores};

const IN_FLIGHT: usize = 64;
const LIMIT: Duration = Duration::from_secs(30);

/// Runs calls with [`IN_FLIGHT`] on their way, and says how fast they were.
async fn run<F>(what: &str, calls: impl Iterator<Item = F>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let begun = Instant::now();
    let permits = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut running = JoinSet::new();
    for call in calls {
        let permits = permits.clone();
        running.spawn(async move {
            let _permit = permits.acquire().await.unwrap();
            call.await;
        });
    }
    let count = running.join_all().await.len();
    let took = begun.elapsed();
    let each = took / u32::try_from(count).unwrap();
    println!("{count} {what}, {IN_FLIGHT} in flight: {took:?}, one every {each:?}");
    assert!(took < LIMIT, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_and_orders_share_commits() {
    let stores = Stores::start().await;
    let service = Arc::new(Service::start(&stores).await);
    let receipts = (0..4_000).map(|sku| {
        let service = service.clone();
        async move { drop(service.receive(&format!("in{sku}"), &format!("S{sku}"), 1_000).await.unwrap()) }
    });
    run("receipts", receipts).await;
    // Orders like those of a real year: 26 lines.
    let orders = (0..2_000).map(|order: usize| {
        let service = service.clone();
        async move {
            let id = format!("order{order}");
            let skus: Vec<String> =
                (0..26).map(|line| format!("S{}", (order * 37 + line * 151) % 4_000)).collect();
            let lines: Vec<(&str, i64)> = skus.iter().map(|sku| (sku.as_str(), 1)).collect();
            service.reserve(&id, &lines).await.unwrap();
            service.confirm(&id).await.unwrap();
        }
    });
    run("orders of 26 lines, reserved and confirmed", orders).await;
    let hot = (0..4_000).map(|caller| {
        let service = service.clone();
        async move { drop(service.reserve(&format!("hot{caller}"), &[("S0", 1)]).await) }
    });
    run("reserves of one SKU", hot).await;
    stores.check_ledger().await;
    stores.check_redis().await;
    // The stream keeps its tail and no more.
    let entries: i64 = stores.command("XLEN hf:{p0}:1:stream").await;
    assert!(entries <= inventory_svc::stock::TAIL_ENTRIES + 1, "{entries}");
}
