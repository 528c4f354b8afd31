//! Attacks on the engine that once succeeded, each with what is right.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say so at once")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use saga::{Beginning, Change, Engine, EngineConfig, Outcome, SagaId, SideRows, Status};
use serde_json::json;
use sqlx::PgConnection;

use crate::lab::{World, shop, shop_with, until, with_database};

/// Who sends a parked saga many signals shuts its operators out, for ever.
#[test]
fn a_parked_saga_with_many_signals_still_hears_its_operators() {
    with_database(async |lab| {
        let world = World::new();
        world.script("tell", [Outcome::Park { reason: "look at it".into() }]);
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Parked).await;
        for n in 0..256 {
            assert!(lab.signal(&worker, saga, &format!("cancel.{n}"), "cancel", json!({})).await);
        }
        let order = json!({"request_id": "r", "verb": {"verb": "retry"}, "actor": "ops", "reason": "mended"});
        assert!(lab.signal(&worker, saga, "operator/r", "operator", order).await);
        let standing = worker
            .engine
            .wait_for(saga, Duration::from_secs(15), |standing| standing.status == Status::Completed)
            .await
            .unwrap()
            .unwrap();
        let row: (String, i64, i32, Option<String>) =
            sqlx::query_as("SELECT status, epoch, claims, last_error FROM saga.sagas WHERE id = $1")
                .bind(saga.0)
                .fetch_one(&lab.pool)
                .await
                .unwrap();
        assert_eq!(standing.status, Status::Completed, "{row:?}");
    });
}

/// One saga that ended while its day had no partition keeps every later engine from opening.
#[test]
fn an_engine_opens_although_the_default_partition_has_a_row_of_a_coming_day() {
    with_database(async |lab| {
        sqlx::query(
            "INSERT INTO saga.finished (id, finished_on, kind, version, status, seq, epoch, attributes, created_at,
                                        finished_at, history)
             VALUES (gen_random_uuid(), current_date + 5, 'shop', 1, 'COMPLETED', 2, 1, '{}', now(), now(), '[]')",
        )
        .execute(&lab.pool)
        .await
        .unwrap();
        let opened =
            Engine::open(lab.pool.clone(), EngineConfig::named("a"), [shop(&World::new())]).await.map(|_| ());
        assert!(opened.is_ok(), "{opened:?}");
    });
}

/// A start that is asked of a second worker under the same id is driven by both.
#[test]
fn one_saga_is_driven_by_one_worker() {
    with_database(async |lab| {
        let world = World::new();
        let gate = world.gate("reserve");
        let (a, b) = (lab.worker("a", shop(&world)).await, lab.worker("b", shop(&world)).await);
        let saga = SagaId::generate();
        lab.begin(&a, saga).await.unwrap();
        until("it reserves", async || world.calls().len() == 1).await;
        let again = lab.begin(&b, saga).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let calls = world.calls();
        gate.add_permits(10);
        assert_eq!(calls.len(), 1, "the second start answered {again:?}, and both call: {calls:?}");
    });
}

/// A worker whose lease ran out (frozen, or its database was away) parks what itself could run.
#[test]
fn an_audit_parks_nothing_that_its_own_worker_knows() {
    with_database(async |lab| {
        let world = World::new();
        let slow = |config: EngineConfig| EngineConfig {
            lease: Duration::from_secs(600),
            heartbeat: Duration::from_secs(300),
            audit_every: Duration::from_secs(2),
            ..config
        };
        let gate = world.gate("reserve");
        let worker = lab.worker_with("a", shop(&world), slow).await;
        let saga = lab.start(&worker, None).await;
        until("it reserves", async || world.calls().len() == 1).await;
        // As after two minutes of standstill.
        for statement in [
            "UPDATE saga.workers SET lease_until = clock_timestamp() - interval '2 minutes'",
            "UPDATE saga.instances SET updated_at = clock_timestamp() - interval '2 minutes'",
        ] {
            sqlx::query(statement).execute(&lab.pool).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        gate.add_permits(10);
        let row: (String, Option<String>) =
            sqlx::query_as("SELECT status, last_error FROM saga.sagas WHERE id = $1")
                .bind(saga.0)
                .fetch_one(&lab.pool)
                .await
                .unwrap();
        assert_ne!(row.0, "PARKED", "{row:?}");
    });
}

/// Behind many that are due, a customer's cancel of a new saga waits until all of them are through.
#[test]
fn a_signal_is_heard_beside_a_backlog() {
    with_database(async |lab| {
        sqlx::query(
            r"INSERT INTO saga.instances (id, kind, version, status, seq, epoch, due_at, deadline_at, attributes, started)
               SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'shop', 1, 'RUNNING', 1, 1, due, due,
                   '{}', json_build_object(
                   'event', 'started', 'at', clock_timestamp(), 'input', 'basket', 'deadline', due,
                   'traceparent', NULL, 'attributes', '{}'::json)
               FROM generate_series(1, 40000) n, (SELECT clock_timestamp() - interval '1 minute' AS due) AS d",
        )
        .execute(&lab.pool)
        .await
        .unwrap();
        let world = World::new();
        world.script(
            "pay",
            [Outcome::Pending { ask_again_after: Duration::from_mins(1), progress: saga::Progress::Idle }],
        );
        let worker = lab.worker("a", shop(&world)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let saga = lab.start(&worker, Some(Duration::from_mins(10))).await;
        until("it waits for its payment", async || world.calls().contains(&"do pay 1".to_owned())).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let sent = tokio::time::Instant::now();
        assert!(lab.signal(&worker, saga, "c", "cancel", json!({})).await);
        worker
            .engine
            .wait_for(saga, Duration::from_mins(3), |standing| standing.status == Status::Undone)
            .await
            .unwrap();
        let took = sent.elapsed();
        let left: i64 =
            sqlx::query_scalar("SELECT count(*) FROM saga.instances").fetch_one(&lab.pool).await.unwrap();
        assert!(left > 0, "there was no backlog any more: this was no test");
        assert!(took < Duration::from_secs(2), "the cancel took {took:?}; {left} of the backlog are left");
    });
}

/// Side rows whose table has a trigger that raises for some sagas, as `RAISE EXCEPTION` does: SQLSTATE P0001.
struct Raises(Arc<Mutex<Vec<SagaId>>>);

impl SideRows for Raises {
    type Row = ();

    fn begin<'c>(
        &'c self,
        _: &'c mut PgConnection,
        beginnings: &'c [Beginning<'c, ()>],
    ) -> BoxFuture<'c, Result<Vec<bool>, sqlx::Error>> {
        Box::pin(async move { Ok(vec![true; beginnings.len()]) })
    }

    fn change<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        changes: &'c [Change<'c>],
    ) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        Box::pin(async move {
            if changes.iter().any(|change| self.0.lock().unwrap().contains(&change.saga)) {
                sqlx::query("DO $$ BEGIN RAISE EXCEPTION 'no'; END $$").execute(connection).await?;
            }
            Ok(())
        })
    }
}

/// One row that a trigger refuses stops every saga of the process, for ever.
#[test]
fn a_row_that_a_trigger_refuses_fails_no_neighbour() {
    with_database(async |lab| {
        let world = World::new();
        let gate = world.gate("reserve");
        let refused = Arc::default();
        let worker = lab.worker("a", shop_with(&world, Raises(Arc::clone(&refused)))).await;
        let mut sagas = Vec::new();
        for _ in 0..20 {
            sagas.push(lab.start(&worker, None).await);
        }
        until("all reserve", async || world.calls().len() == 20).await;
        refused.lock().unwrap().push(sagas[7]);
        gate.add_permits(20);
        let done = async || -> i64 {
            sqlx::query_scalar("SELECT count(*) FROM saga.finished").fetch_one(&lab.pool).await.unwrap()
        };
        until("all neighbours complete", async || done().await == 19).await;
    });
}
