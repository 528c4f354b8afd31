//! Numbered cases at the engine's level, on a real Postgres.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say so at once")]

use std::{sync::Arc, time::Duration};

use saga::{CANCEL, EXTEND, EngineConfig, Outcome, Progress, Retry, SagaId, Status};
use serde_json::json;
use tokio::time::Instant;

use crate::lab::{Lab, QUICK, World, shop, shop_with_retry, until, with_database};

/// Shop sagas that wait since they were started, all due at one instant from now.
async fn waiting(lab: &Lab, count: i32, due_in: Duration) {
    sqlx::query(
        r"INSERT INTO saga.instances (id, kind, version, status, seq, epoch, due_at, deadline_at, attributes, started)
           SELECT gen_random_uuid(), 'shop', 1, 'RUNNING', 1, 1, due, due, '{}', json_build_object(
               'event', 'started', 'at', clock_timestamp(), 'input', 'basket', 'deadline', due,
               'traceparent', NULL, 'attributes', '{}'::json)
           FROM generate_series(1, $1), (SELECT clock_timestamp() + $2 * interval '1 millisecond' AS due) AS d",
    )
    .bind(count)
    .bind(i64::try_from(due_in.as_millis()).expect("a test is short"))
    .execute(&lab.pool)
    .await
    .unwrap();
}

async fn count(lab: &Lab, status: &str) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM saga.sagas WHERE status = $1")
        .bind(status)
        .fetch_one(&lab.pool)
        .await
        .unwrap()
}

#[test]
fn c49_ten_thousand_due_at_once_are_closed_and_the_poison_is_parked() {
    with_database(async |lab| {
        waiting(&lab, 10_000, Duration::from_secs(1)).await;
        sqlx::query(
            r#"UPDATE saga.instances SET started = '{"event": "moonwalk"}'
               WHERE id = (SELECT id FROM saga.instances LIMIT 1)"#,
        )
        .execute(&lab.pool)
        .await
        .unwrap();
        let world = World::new();
        let _worker = lab.worker("a", shop(&world)).await;
        let end = Instant::now() + Duration::from_secs(60);
        while count(&lab, "UNDONE").await < 9_999 {
            assert!(Instant::now() < end, "{} are closed after a minute", count(&lab, "UNDONE").await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until("the poison is parked", async || count(&lab, "PARKED").await == 1).await;
        let error: String = sqlx::query_scalar("SELECT last_error FROM saga.sagas WHERE status = 'PARKED'")
            .fetch_one(&lab.pool)
            .await
            .unwrap();
        assert!(error.contains("event 1 cannot be read"), "{error}");
        let calls = world.calls();
        assert_eq!(calls.iter().filter(|call| *call == "undo reserve").count(), 9_999, "each once");
        assert_eq!(calls.len(), 2 * 9_999, "nobody is asked whose step was never begun");
    });
}

/// Enough attempts to outlast the outage, each saga for itself.
const PATIENT: Retry = Retry {
    first: Duration::from_millis(20),
    cap: Duration::from_millis(200),
    attempts_max: 60,
    attempt_timeout: Duration::from_secs(20),
};

#[test]
fn c50_a_participant_that_is_down_is_not_stormed_and_then_all_go_on() {
    with_database(async |lab| {
        let world = World::new();
        world.down.lock().unwrap().push("pay");
        let worker = lab.worker("a", shop_with_retry(&world, PATIENT)).await;
        let mut sagas = Vec::new();
        for _ in 0..100 {
            sagas.push(lab.start(&worker, None).await);
        }
        let calls = || world.calls().iter().filter(|call| *call == "do pay 1").count();
        until("it is asked", async || calls() >= 10).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let asked = calls();
        // Each for itself would have asked fifteen times or more in these seconds.
        assert!(asked <= 60, "{asked} calls to a dead participant by 100 sagas");
        world.down.lock().unwrap().clear();
        for saga in sagas {
            lab.reaches(&worker, saga, Status::Completed).await;
        }
    });
}

#[test]
fn c51_an_answer_after_the_step_timeout_counts_once() {
    with_database(async |lab| {
        let world = World::new();
        let gate = world.gate("pay");
        let hasty = Retry { attempt_timeout: Duration::from_millis(200), ..PATIENT };
        let worker = lab.worker("a", shop_with_retry(&world, hasty)).await;
        let saga = lab.start(&worker, None).await;
        until("it is asked again", async || {
            world.calls().iter().filter(|call| *call == "do pay 1").count() >= 2
        })
        .await;
        gate.add_permits(100);
        lab.reaches(&worker, saga, Status::Completed).await;
        let calls = world.calls();
        assert!(!calls.iter().any(|call| call.starts_with("undo")), "unknown is never failure: {calls:?}");
        assert!(!calls.contains(&"do pay 2".to_owned()), "the same ids are asked again: {calls:?}");
    });
}

#[test]
fn c57_a_cancel_takes_effect_while_a_failed_step_backs_off() {
    with_database(async |lab| {
        let slow = Retry { first: Duration::from_secs(60), cap: Duration::from_secs(60), ..QUICK };
        let world = World::new();
        world.script("pay", [Outcome::Retry { reason: "down".into() }]);
        let worker = lab.worker("a", shop_with_retry(&world, slow)).await;
        let saga = lab.start(&worker, None).await;
        until("it backs off", async || lab.journal(saga).await.contains(&"step_failed".to_owned())).await;
        let before = Instant::now();
        assert!(lab.signal(&worker, saga, "k", CANCEL, json!({})).await);
        lab.reaches(&worker, saga, Status::Undone).await;
        assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
        assert_eq!(
            world.calls().iter().filter(|call| *call == "do pay 1").count(),
            1,
            "no further forward call"
        );
    });
}

#[test]
fn a_lost_timer_is_found_by_the_second_look() {
    with_database(async |lab| {
        waiting(&lab, 1, Duration::from_secs(1)).await;
        // As a bug or a hand would leave it: it sleeps a day past its deadline.
        sqlx::query("UPDATE saga.instances SET due_at = deadline_at + interval '1 day'")
            .execute(&lab.pool)
            .await
            .unwrap();
        let often = |config: EngineConfig| EngineConfig { audit_every: Duration::from_millis(200), ..config };
        let world = World::new();
        let _worker = lab.worker_with("a", shop(&world), often).await;
        until("it is closed", async || count(&lab, "UNDONE").await == 1).await;
    });
}

#[test]
fn what_ended_is_kept_by_day_and_dropped_by_day() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Completed).await;
        let live: i64 = sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM saga.instances) + (SELECT count(*) FROM saga.events)",
        )
        .fetch_one(&lab.pool)
        .await
        .unwrap();
        assert_eq!(live, 0, "the live tables hold only what lives");
        let partition: String =
            sqlx::query_scalar("SELECT tableoid::regclass::text FROM saga.finished WHERE id = $1")
                .bind(saga.0)
                .fetch_one(&lab.pool)
                .await
                .unwrap();
        assert!(partition.starts_with("saga.finished_2"), "{partition}");
        // A day long gone, with a saga in it.
        sqlx::raw_sql(
            "CREATE TABLE saga.finished_20200101 PARTITION OF saga.finished
                 FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
             INSERT INTO saga.finished
             SELECT gen_random_uuid(), '2020-01-01', kind, version, status, seq, epoch, last_error, attributes,
                    created_at, finished_at, history FROM saga.finished",
        )
        .execute(&lab.pool)
        .await
        .unwrap();
        let often = |config: EngineConfig| EngineConfig { audit_every: Duration::from_millis(200), ..config };
        let _second = lab.worker_with("b", shop(&World::new()), often).await;
        until("the old day is gone", async || count(&lab, "COMPLETED").await == 1).await;
        assert_eq!(lab.journal(saga).await.len(), 7, "what is kept is kept whole");
    });
}

#[test]
fn a_saga_id_is_used_once() {
    with_database(async |lab| {
        let world = World::new();
        let gate = world.gate("reserve");
        let worker = lab.worker("a", shop(&world)).await;
        let saga = SagaId::generate();
        lab.begin(&worker, saga).await.unwrap();
        assert!(lab.begin(&worker, saga).await.is_err());
        gate.add_permits(1);
        lab.reaches(&worker, saga, Status::Completed).await;
    });
}

#[test]
fn many_starts_are_one_flush_and_each_is_on_disk_when_it_returns() {
    with_database(async |lab| {
        let world = World::new();
        let worker = Arc::new(lab.worker("a", shop(&world)).await);
        let starts = (0..200).map(|_| {
            let saga = SagaId::generate();
            let (lab, worker) = (&lab, Arc::clone(&worker));
            async move {
                lab.begin(&worker, saga).await.unwrap();
                assert!(!lab.journal(saga).await.is_empty(), "acknowledged and not there");
                saga
            }
        });
        for saga in futures::future::join_all(starts).await {
            lab.reaches(&worker, saga, Status::Completed).await;
        }
    });
}

#[test]
fn a_waiting_saga_is_given_more_time_and_a_turned_one_is_not() {
    with_database(async |lab| {
        let waits = || Outcome::Pending { ask_again_after: Duration::from_mins(1), progress: Progress::Idle };
        let world = World::new();
        // Each signal may wake it by itself, and the deadline asks once more; what is left waits for the second saga.
        world.script("pay", std::iter::repeat_with(waits).take(16));
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, Some(Duration::from_millis(900))).await;
        until("it waits", async || lab.journal(saga).await.contains(&"step_waiting".to_owned())).await;
        let until_then = worker.engine.now() + Duration::from_millis(2_500);
        assert!(lab.extend(&worker, saga, "more", until_then).await);
        // Less is no change, and what is no time is none.
        assert!(lab.extend(&worker, saga, "less", until_then - Duration::from_secs(60)).await);
        assert!(lab.signal(&worker, saga, "odd", EXTEND, json!({ "until": "tomorrow" })).await);
        lab.reaches(&worker, saga, Status::Undone).await;
        assert!(worker.engine.now() >= until_then, "not before the new deadline");
        assert!(worker.engine.now() < until_then + Duration::from_secs(2), "and not much after it");

        // Its undo hangs, so that it still lives when more time comes too late.
        world.stuck.lock().unwrap().push("pay");
        let saga = lab.start(&worker, Some(Duration::from_millis(300))).await;
        until("it turned", async || lab.journal(saga).await.contains(&"turned".to_owned())).await;
        lab.extend(&worker, saga, "late", worker.engine.now() + Duration::from_secs(60)).await;
        lab.reaches(&worker, saga, Status::Parked).await;
        assert!(!lab.journal(saga).await.contains(&"extended".to_owned()));
    });
}
