//! Lost, regressed and forked Redis; crashes between script and ledger; restarts.

use std::{sync::Arc, time::Duration};

use inventory_svc::{
    movement::Act,
    partition::{Generation, Seq},
    reservation::CallerId,
    sku::Sku,
    stock::{ChangeReply, ChangeStock, Fence, Word},
};
use proto::inventory::v1::reservation::State;
use tokio::task::JoinSet;
use tonic::Code;

use crate::{
    calls::wait_for,
    service::{Service, reason, refusal},
    stores::Stores,
};

const RESERVED: &str = "select count(*) from inventory.movements where kind = 'RESERVE'";

/// One of each: received, held, confirmed, released, a tombstone.
async fn fill(service: &Service) {
    service.receive("in", "A", 20).await.unwrap();
    service.adjust("lost.two", "A", -2).await.unwrap();
    service.reserve("held", &[("A", 3)]).await.unwrap();
    service.reserve_for("lapses", &[("A", 1)], Duration::from_secs(2)).await.unwrap();
    service.reserve("confirmed", &[("A", 4)]).await.unwrap();
    service.confirm("confirmed").await.unwrap();
    service.reserve("released", &[("A", 5)]).await.unwrap();
    service.release("released").await.unwrap();
    service.release("tombstone").await.unwrap();
}

/// Everything [`fill`] was told still holds.
async fn check(service: &Service, stores: &Stores) {
    assert_eq!(service.reserve("held", &[("A", 3)]).await.unwrap().state(), State::Held);
    assert_eq!(service.confirm("confirmed").await.unwrap().state(), State::Confirmed);
    assert_eq!(reason(service.reserve("released", &[("A", 5)]).await), "RESERVATION_RELEASED");
    assert_eq!(reason(service.reserve("tombstone", &[("A", 5)]).await), "RESERVATION_RELEASED");
    assert_eq!(service.receive("in", "A", 20).await.unwrap().received, 20);
    assert_eq!(reason(service.receive("in", "A", 21).await), "REQUEST_ID_REUSED");
    assert_eq!(service.adjust("lost.two", "A", -2).await.unwrap().received, 18);
    wait_for(async || service.reservation("lapses").await.unwrap().state() == State::Expired).await;
    wait_for(async || service.counters("A").await == [11, 3, 4, 18]).await;
    stores.check_ledger().await;
    stores.check_redis().await;
}

async fn generation(stores: &Stores) -> i64 {
    stores.count("select generation from inventory.partitions").await
}

#[tokio::test]
async fn a_flushed_redis_is_rebuilt_by_itself() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    fill(&service).await;
    let _flushed: String = stores.command("FLUSHALL").await;
    // Whoever asks first is refused, and nobody is told a wrong number.
    match service.get("A").await {
        Ok(stock) => assert_eq!(stock.received, 18),
        Err(status) => assert_eq!(refusal::<()>(Err(status)).1, "STOCK_NOT_READY"),
    }
    service.until_ready().await;
    check(&service, &stores).await;
    assert_eq!(generation(&stores).await, 2);
    let _flushed: String = stores.command("FLUSHALL").await;
    // Nobody asks: the expiry loop finds out.
    wait_for(async || generation(&stores).await == 3).await;
    service.until_ready().await;
    check(&service, &stores).await;
}

#[tokio::test]
async fn a_killed_redis_that_comes_back_empty_is_rebuilt() {
    let mut stores = Stores::start().await;
    let service = Service::start(&stores).await;
    fill(&service).await;
    stores.lose_redis().await;
    let (code, why, _) = match service.reserve("during", &[("A", 1)]).await {
        Err(status) => refusal::<()>(Err(status)),
        Ok(_) => panic!("an empty Redis decides nothing"),
    };
    assert_eq!((code, why.as_str()), (Code::Unavailable, "STOCK_NOT_READY"));
    service.until_ready().await;
    check(&service, &stores).await;
}

#[tokio::test]
async fn a_regressed_head_is_fenced_at_once() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    fill(&service).await;
    let seq: i64 = stores.command("HGET hf:{p0}:head seq").await;
    let _set: i64 = stores.command(&format!("HSET hf:{{p0}}:head seq {}", seq - 2)).await;
    assert_eq!(reason(service.reserve("new", &[("A", 1)]).await), "STOCK_NOT_READY");
    service.until_ready().await;
    check(&service, &stores).await;
    assert_eq!(generation(&stores).await, 2);
}

#[tokio::test]
async fn a_fork_that_looks_right_is_found_at_the_chain() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    fill(&service).await;
    // The same numbers, another history: as a fail-over to a replica that went its own way would leave it.
    let _set: i64 = stores.command("HSET hf:{p0}:head chain another").await;
    assert_eq!(reason(service.reserve("forked", &[("A", 1)]).await), "STOCK_NOT_READY");
    service.until_ready().await;
    check(&service, &stores).await;
    // What the fork decided is void, and the id is as new.
    assert_eq!(service.reserve("forked", &[("A", 1)]).await.unwrap().state(), State::Held);
}

#[tokio::test]
async fn evicted_keys_are_found_when_they_are_needed() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    fill(&service).await;
    for (key, id, units) in [("stock:A", "new", 1), ("reservation:held", "held", 3)] {
        let before = generation(&stores).await;
        let _gone: i64 = stores.command(&format!("DEL hf:{{p0}}:{before}:{key}")).await;
        assert_eq!(reason(service.reserve(id, &[("A", units)]).await), "STOCK_NOT_READY", "{key}");
        service.until_ready().await;
        check(&service, &stores).await;
        assert_eq!(generation(&stores).await, before + 1);
    }
}

#[tokio::test]
async fn a_restart_goes_on_with_what_redis_has() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    fill(&service).await;
    service.stop().await;
    // Decided by a script, and then the process was gone: the movement waits in the stream.
    let change = ChangeStock {
        request_id: CallerId::parse("unheard").unwrap(),
        act: Act::Receive,
        sku: Sku::parse("B").unwrap(),
        delta: 7,
        reason: "PURCHASE".into(),
    };
    let fence = Fence { generation: Generation(1), floor: Seq(0), now_ms: 1 };
    let reply = stores.gate().change(&fence, &change, Word::None, Word::None).await.unwrap();
    assert!(matches!(reply, ChangeReply::Changed(..)), "{reply:?}");
    assert_eq!(
        stores.count("select count(*) from inventory.movements where request_id = 'unheard'").await,
        0
    );

    let service = Service::start(&stores).await;
    wait_for(async || {
        stores.count("select count(*) from inventory.movements where request_id = 'unheard'").await == 1
    })
    .await;
    assert_eq!(service.counters("B").await, [7, 0, 0, 7]);
    assert_eq!(service.receive("unheard", "B", 7).await.unwrap().received, 7);
    check(&service, &stores).await;
    assert_eq!(generation(&stores).await, 1, "nothing was rebuilt");
}

#[tokio::test]
async fn a_restart_beside_a_regressed_redis_rebuilds() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    fill(&service).await;
    service.stop().await;
    let seq: i64 = stores.command("HGET hf:{p0}:head seq").await;
    let _set: i64 = stores.command(&format!("HSET hf:{{p0}}:head seq {}", seq - 1)).await;
    let service = Service::start(&stores).await;
    assert_eq!(generation(&stores).await, 2);
    check(&service, &stores).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_under_load_leaves_one_hold_per_caller() {
    let stores = Stores::start().await;
    let service = Service::start(&stores).await;
    service.receive("in", "A", 500).await.unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..200 {
        let mut client = service.reservations.clone();
        callers.spawn(async move {
            let line = proto::inventory::v1::Line { sku: "A".into(), quantity: 1 };
            let request = proto::inventory::v1::ReserveRequest {
                reservation_id: format!("r{caller}"),
                lines: vec![line],
                ..Default::default()
            };
            drop(client.reserve(request).await);
        });
    }
    // Some are decided, some are in the ledger, most are on their way.
    wait_for(async || stores.command::<i64>("XLEN hf:{p0}:1:stream").await > 20).await;
    service.abort().await;
    callers.shutdown().await;

    let service = Arc::new(Service::start(&stores).await);
    let mut callers = JoinSet::new();
    for caller in 0..200 {
        let service = service.clone();
        callers.spawn(async move {
            // "Not ready" means: may have happened, ask again.
            loop {
                match service.reserve(&format!("r{caller}"), &[("A", 1)]).await {
                    Ok(held) => return assert_eq!(held.state(), State::Held),
                    Err(status) => assert_eq!(reason::<()>(Err(status)), "STOCK_NOT_READY"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    callers.join_all().await;
    assert_eq!(service.counters("A").await, [300, 200, 0, 500]);
    assert_eq!(stores.count(RESERVED).await, 200);
    stores.check_ledger().await;
    stores.check_redis().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flushes_under_load_never_oversell() {
    let stores = Stores::start().await;
    let services = [Arc::new(Service::start(&stores).await), Arc::new(Service::start(&stores).await)];
    services[0].receive("in", "A", 150).await.unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..300 {
        let service = services[caller % 2].clone();
        callers.spawn(async move {
            let id = format!("r{caller}");
            loop {
                match service.reserve(&id, &[("A", 1)]).await.map_err(|status| reason::<()>(Err(status))) {
                    Ok(_) => return 1,
                    Err(why) if why == "STOCK_NOT_READY" => {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    Err(why) => {
                        assert_eq!(why, "INSUFFICIENT_STOCK");
                        return 0;
                    }
                }
            }
        });
    }
    for reserved in [30, 60, 90] {
        wait_for(async || stores.count(RESERVED).await >= reserved).await;
        let _flushed: String = stores.command("FLUSHALL").await;
    }
    let held: i64 = callers.join_all().await.into_iter().sum();
    for service in &services {
        service.until_ready().await;
        assert_eq!(service.counters("A").await, [150 - held, held, 0, 150]);
    }
    stores.check_ledger().await;
    stores.check_redis().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_database_connections_lose_and_repeat_nothing() {
    let stores = Stores::start().await;
    let service = Arc::new(Service::start(&stores).await);
    service.receive("in", "A", 1_000).await.unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        let service = service.clone();
        callers.spawn(async move {
            for order in 0..40 {
                let id = format!("r{caller}-{order}");
                // Every call is repeated until it is answered, as a saga would.
                while let Err(status) = service.reserve(&id, &[("A", 1)]).await {
                    assert_eq!(reason::<()>(Err(status)), "STOCK_NOT_READY");
                }
                while let Err(status) = service.confirm(&id).await {
                    assert_eq!(reason::<()>(Err(status)), "STOCK_NOT_READY");
                }
            }
        });
    }
    for reserved in (40..=600).step_by(80) {
        wait_for(async || stores.count(RESERVED).await >= reserved).await;
        stores
            .count(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity
                 where datname = current_database() and application_name = 'inventory-svc'",
            )
            .await;
    }
    callers.join_all().await;
    assert_eq!(service.counters("A").await, [360, 0, 640, 1_000]);
    assert_eq!(generation(&stores).await, 1, "nothing was in doubt");
    stores.check_ledger().await;
    stores.check_redis().await;
}
