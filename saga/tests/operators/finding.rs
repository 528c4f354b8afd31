//! Searching, page by page, and reading a journal in parts.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say so at once")]

use std::{collections::BTreeMap, time::Duration};

use saga::{
    Operations, Priority, SagaId, Seq, Start, Status,
    operations::{Filter, Found, Page},
};

use crate::{
    PATIENCE, failed,
    lab::{Worker, World, shop, with_database},
    operations_of, waits,
};

async fn begin(worker: &Worker, customer: &str) -> SagaId {
    let start = Start {
        saga: SagaId::generate(),
        input: "basket".to_owned(),
        patience: None,
        attributes: BTreeMap::from([("customer".to_owned(), customer.to_owned())]),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        priority: Priority::Ordinary,
    };
    worker.engine.start("shop", &start).await.unwrap();
    worker.engine.wait_for(start.saga, PATIENCE, |standing| standing.at_rest).await.unwrap();
    start.saga
}

async fn find(operations: &Operations, filter: Filter) -> Vec<SagaId> {
    let found = operations.list(&filter, Page { after: None, size: 100 }).await.unwrap();
    assert!(found.is_last);
    found.sagas.iter().map(|saga| saga.saga).collect()
}

#[test]
fn sagas_are_found_by_what_is_known_of_them_newest_first() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let completed = begin(&worker, "ann").await;
        world.script("tell", [failed(), failed(), failed()]);
        let parked = begin(&worker, "bob").await;
        world.script("pay", [waits(60_000)]);
        let waiting = begin(&worker, "bob").await;

        let any = Filter::default;
        assert_eq!(find(&operations, any()).await, [waiting, parked, completed]);
        for (status, expected) in [
            (Status::Completed, vec![completed]),
            (Status::Parked, vec![parked]),
            (Status::Running, vec![waiting]),
            (Status::Undone, vec![]),
        ] {
            assert_eq!(find(&operations, Filter { status: Some(status), ..any() }).await, expected);
        }
        let of = |name: &str, value: &str| Filter { attribute: Some((name.into(), value.into())), ..any() };
        assert_eq!(find(&operations, of("customer", "bob")).await, [waiting, parked]);
        assert_eq!(find(&operations, of("customer", "ann")).await, [completed]);
        assert_eq!(find(&operations, of("order", "bob")).await, []);
        let failed = |part: &str| Filter { error_contains: Some(part.into()), ..any() };
        assert_eq!(find(&operations, failed("tell failed 3 times")).await, [parked]);
        assert_eq!(find(&operations, failed("100%")).await, [], "it is a text, not a pattern");
        let kind = |kind: &str| Filter { kind: Some(kind.into()), ..any() };
        assert_eq!(find(&operations, kind("shop")).await.len(), 3);
        assert_eq!(find(&operations, kind("shops")).await, []);
        let older = |than| Filter { older_than: Some(than), ..any() };
        assert_eq!(find(&operations, older(Duration::ZERO)).await.len(), 3);
        assert_eq!(find(&operations, older(Duration::from_secs(3_600))).await, []);

        let mut seen = Vec::new();
        let mut page = Page { after: None, size: 1 };
        loop {
            let Found { sagas, is_last } = operations.list(&any(), page).await.unwrap();
            seen.extend(sagas.iter().map(|saga| saga.saga));
            page.after = seen.last().copied();
            if is_last {
                break;
            }
        }
        assert_eq!(seen, [waiting, parked, completed]);
        for saga in seen {
            let row = operations.get(saga, Seq(0)).await.unwrap().unwrap().saga;
            assert!(row.traceparent.is_some_and(|context| context.contains("0af7651916cd43dd")), "{saga}");
        }
        let claims: Vec<i32> =
            sqlx::query_scalar("SELECT claims FROM saga.sagas").fetch_all(&lab.pool).await.unwrap();
        assert_eq!(claims, [0; 3]);
    });
}

#[test]
fn a_journal_is_read_in_parts_while_it_lives_and_after() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let ended = begin(&worker, "ann").await;
        world.script("pay", [waits(60_000)]);
        let lives = begin(&worker, "ann").await;
        for saga in [lives, ended] {
            let all = operations.get(saga, Seq(0)).await.unwrap().unwrap();
            let seqs: Vec<_> = all.entries.iter().map(|entry| entry.seq.0).collect();
            assert_eq!(seqs, (1..=all.saga.seq.0).collect::<Vec<_>>());
            let is_live = all.saga.finished_at.is_none();
            assert!(all.entries.iter().all(|entry| entry.written_at.is_some() == is_live));
            let rest = operations.get(saga, Seq(2)).await.unwrap().unwrap();
            assert_eq!(rest.entries, all.entries[2..]);
        }
        assert_eq!(operations.get(SagaId::generate(), Seq(0)).await.unwrap(), None);
    });
}
