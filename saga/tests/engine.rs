//! The engine on a real Postgres: what it promises when participants refuse, workers die and answers are lost.

mod attack;
mod cases;
mod flush;
mod lab;

use std::{sync::Arc, time::Duration};

use lab::{Lab, Worker, World, shop, until, with_database};
use saga::{CANCEL, Outcome, Progress, SagaId, Status};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

fn refused() -> Outcome<i32> {
    Outcome::Abort { reason: "NO".into(), detail: Value::Null }
}

fn failed() -> Outcome<i32> {
    Outcome::Retry { reason: "down".into() }
}

fn waits(ms: u64) -> Outcome<i32> {
    Outcome::Pending { ask_again_after: Duration::from_millis(ms), progress: Progress::Idle }
}

/// Worker "a" with a saga inside its payment, which ends when the gate gives a permit.
async fn paying(lab: &Lab, world: &Arc<World>) -> (Worker, SagaId, Arc<Semaphore>) {
    let gate = world.gate("pay");
    let worker = lab.worker("a", shop(world)).await;
    let saga = lab.start(&worker, None).await;
    until("it pays", async || world.calls().contains(&"do pay 1".to_owned())).await;
    // The saga is ahead of its journal by a moment.
    until("its reserve is on disk", async || lab.journal(saga).await.contains(&"step_done".to_owned())).await;
    (worker, saga, gate)
}

#[test]
fn a_saga_completes_and_its_journal_tells_how() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Completed).await;
        assert_eq!(world.calls(), ["do reserve 1", "do pay 1", "do sell 1", "do tell 1"]);
        assert_eq!(
            lab.journal(saga).await,
            ["started", "step_done", "step_done", "pivot_begun", "step_done", "step_done", "completed"]
        );
    });
}

#[test]
fn a_refusal_undoes_the_refused_step_too() {
    with_database(async |lab| {
        let world = World::new();
        world.script("pay", [refused()]);
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Undone).await;
        assert_eq!(world.calls(), ["do reserve 1", "do pay 1", "undo pay", "undo reserve"]);
        assert_eq!(
            lab.journal(saga).await,
            ["started", "step_done", "turned", "undo_done", "undo_done", "undone"]
        );
    });
}

#[test]
fn a_failing_step_is_tried_again_and_then_undone() {
    with_database(async |lab| {
        let world = World::new();
        world.script("reserve", [failed(), failed()]);
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Completed).await;

        world.script("pay", [failed(), failed(), failed()]);
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Undone).await;
    });
}

#[test]
fn a_lapsed_pivot_restarts_an_earlier_step_once_under_new_ids() {
    with_database(async |lab| {
        let lapsed = || Outcome::Restart { at: "reserve", max: 1, reason: "LAPSED".into() };
        let world = World::new();
        world.script("sell", [lapsed()]);
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Completed).await;
        assert_eq!(
            world.calls(),
            ["do reserve 1", "do pay 1", "do sell 1", "do reserve 2", "do sell 1", "do tell 1"]
        );
        let begun = lab.journal(saga).await.iter().filter(|event| *event == "pivot_begun").count();
        assert_eq!(begun, 2, "every pivot attempt has its own record");

        world.script("sell", [lapsed(), lapsed()]);
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Undone).await;
    });
}

#[test]
fn c50_a_participant_that_is_down_after_the_pivot_parks_the_saga() {
    with_database(async |lab| {
        let world = World::new();
        world.script("tell", [failed(), failed(), failed()]);
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Parked).await;
        assert!(
            !world.calls().iter().any(|call| call.starts_with("undo")),
            "after the pivot nothing is undone"
        );
        let error: String = sqlx::query_scalar("SELECT last_error FROM saga.sagas WHERE id = $1")
            .bind(saga.0)
            .fetch_one(&lab.pool)
            .await
            .unwrap();
        assert_eq!(error, "tell failed 3 times: down");
    });
}

#[test]
fn c57_a_cancel_takes_effect_while_a_step_backs_off() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        // Held in process (below hold_max) and given up (above it): a cancel wakes both.
        for wait_ms in [250, 60_000] {
            world.script("pay", [waits(wait_ms)]);
            let saga = lab.start(&worker, None).await;
            until("it waits", async || lab.journal(saga).await.last().unwrap() == "step_waiting").await;
            let before = tokio::time::Instant::now();
            let pays = world.calls().iter().filter(|call| *call == "do pay 1").count();
            assert!(lab.signal(&worker, saga, "k", CANCEL, json!({})).await);
            lab.reaches(&worker, saga, Status::Undone).await;
            assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
            let after = world.calls().iter().filter(|call| *call == "do pay 1").count();
            assert_eq!(pays, after, "no forward call after the cancel");
        }
    });
}

#[test]
fn a_cancel_after_the_pivot_began_changes_nothing() {
    with_database(async |lab| {
        let world = World::new();
        let gate = world.gate("sell");
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        until("it sells", async || world.calls().contains(&"do sell 1".to_owned())).await;
        assert!(lab.signal(&worker, saga, "k", CANCEL, json!({})).await);
        gate.add_permits(1);
        lab.reaches(&worker, saga, Status::Completed).await;
    });
}

#[test]
fn a_signal_counts_once_per_key_and_not_after_the_end() {
    with_database(async |lab| {
        let world = World::new();
        world.script("pay", [waits(60_000), waits(60_000)]);
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        until("it waits", async || lab.journal(saga).await.last().unwrap() == "step_waiting").await;
        for _ in 0..3 {
            assert!(lab.signal(&worker, saga, "event-1", "paid", json!({ "n": 1 })).await);
        }
        until("it waits again", async || {
            let journal = lab.journal(saga).await;
            journal.iter().filter(|event| *event == "step_waiting").count() == 2
        })
        .await;
        lab.signal(&worker, saga, "event-2", "paid", json!({ "n": 2 })).await;
        lab.reaches(&worker, saga, Status::Completed).await;
        let journal = lab.journal(saga).await;
        assert_eq!(journal.iter().filter(|event| *event == "signalled").count(), 2, "{journal:?}");
        assert!(!lab.signal(&worker, saga, "event-3", "paid", json!({})).await, "it has ended");
    });
}

#[test]
fn a_waiting_saga_is_only_a_row_and_its_deadline_closes_it() {
    with_database(async |lab| {
        let world = World::new();
        world.script("pay", [waits(60_000), waits(60_000)]);
        let worker = lab.worker("a", shop(&world)).await;
        let begun = tokio::time::Instant::now();
        let saga = lab.start(&worker, Some(Duration::from_millis(900))).await;
        let standing =
            worker.engine.wait_for(saga, Duration::from_secs(5), |seen| seen.at_rest).await.unwrap().unwrap();
        assert_eq!(standing.status, Status::Running);
        let owner: Option<i64> = sqlx::query_scalar("SELECT owner FROM saga.sagas WHERE id = $1")
            .bind(saga.0)
            .fetch_one(&lab.pool)
            .await
            .unwrap();
        assert_eq!(owner, None);
        lab.reaches(&worker, saga, Status::Undone).await;
        assert!(begun.elapsed() >= Duration::from_millis(900), "not early");
        assert_eq!(
            world.calls(),
            ["do reserve 1", "do pay 1", "do pay 1", "undo pay", "undo reserve"],
            "asked once more at the deadline, then undone"
        );
    });
}

#[test]
fn c56_a_deadline_that_fires_while_the_saga_completes_changes_nothing_twice() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let mut sagas = Vec::new();
        for patience_ms in 0..40 {
            sagas.push(lab.start(&worker, Some(Duration::from_millis(patience_ms))).await);
        }
        for saga in sagas {
            let end =
                worker.engine.wait_for(saga, Duration::from_secs(5), |seen| seen.status.is_final()).await;
            let end = end.unwrap().unwrap().status;
            let journal = lab.journal(saga).await;
            let turns = journal.iter().filter(|event| *event == "turned").count();
            match end {
                Status::Completed => assert_eq!(turns, 0, "{journal:?}"),
                Status::Undone => assert_eq!(turns, 1, "{journal:?}"),
                other => panic!("{other:?}: {journal:?}"),
            }
        }
    });
}

#[test]
fn a_dead_workers_saga_is_taken_over_and_its_step_repeated() {
    with_database(async |lab| {
        let world = World::new();
        let (first, saga, gate) = paying(&lab, &world).await;
        first.die();

        let second = lab.worker("b", shop(&world)).await;
        gate.add_permits(2);
        lab.reaches(&second, saga, Status::Completed).await;
        assert_eq!(
            world.calls(),
            ["do reserve 1", "do pay 1", "do pay 1", "do sell 1", "do tell 1"],
            "what is recorded is not repeated, what is not recorded is"
        );
        let epoch: i64 = sqlx::query_scalar("SELECT epoch FROM saga.sagas WHERE id = $1")
            .bind(saga.0)
            .fetch_one(&lab.pool)
            .await
            .unwrap();
        assert_eq!(epoch, 2);
    });
}

#[test]
fn a_restarted_worker_does_not_wait_for_its_own_lease() {
    with_database(async |lab| {
        let world = World::new();
        let (first, saga, gate) = paying(&lab, &world).await;
        first.die();
        // A lease that outlives the test: only the name can free the saga.
        sqlx::query("UPDATE saga.workers SET lease_until = clock_timestamp() + interval '1 hour'")
            .execute(&lab.pool)
            .await
            .unwrap();
        let again = lab.worker("a", shop(&world)).await;
        gate.add_permits(2);
        lab.reaches(&again, saga, Status::Completed).await;
    });
}

#[test]
fn c52_a_worker_that_lost_its_saga_cannot_write() {
    with_database(async |lab| {
        let world = World::new();
        let (first, saga, gate) = paying(&lab, &world).await;
        // While the first worker is frozen inside its step.
        lab.take_away(saga).await;
        let before = lab.journal(saga).await;
        gate.add_permits(1);
        // It wakes, finds zero rows, and drops the saga.
        until("it let go", async || world.gate("pay").available_permits() == 0).await;
        let probe = lab.start(&first, Some(Duration::ZERO)).await;
        lab.reaches(&first, probe, Status::Undone).await;
        assert_eq!(lab.journal(saga).await, before);
        assert!(!world.calls().contains(&"do sell 1".to_owned()));
    });
}

#[test]
fn a_stopped_worker_frees_its_sagas_at_once() {
    with_database(async |lab| {
        let world = World::new();
        let (first, saga, gate) = paying(&lab, &world).await;
        first.engine.stop(Duration::from_millis(50)).await.unwrap();
        first.die();
        let owned: i64 = sqlx::query_scalar("SELECT count(*) FROM saga.instances WHERE owner IS NOT NULL")
            .fetch_one(&lab.pool)
            .await
            .unwrap();
        assert_eq!(owned, 0);
        let second = lab.worker("b", shop(&world)).await;
        gate.add_permits(2);
        lab.reaches(&second, saga, Status::Completed).await;
    });
}

#[test]
fn c55_an_unreadable_journal_row_parks_its_saga_alone() {
    with_database(async |lab| {
        let world = World::new();
        world.script("pay", [waits(60_000), waits(60_000)]);
        let worker = lab.worker("a", shop(&world)).await;
        let (broken, sound) = (lab.start(&worker, None).await, lab.start(&worker, None).await);
        for saga in [broken, sound] {
            worker.engine.wait_for(saga, Duration::from_secs(5), |seen| seen.at_rest).await.unwrap();
        }
        sqlx::query(
            r#"UPDATE saga.events SET events = '[{"event": "moonwalk"}]' WHERE saga_id = $1 AND seq = 2"#,
        )
        .bind(broken.0)
        .execute(&lab.pool)
        .await
        .unwrap();
        for saga in [broken, sound] {
            lab.signal(&worker, saga, "k", "paid", json!({})).await;
        }
        lab.reaches(&worker, sound, Status::Completed).await;
        lab.reaches(&worker, broken, Status::Parked).await;
        let error: String = sqlx::query_scalar("SELECT last_error FROM saga.sagas WHERE id = $1")
            .bind(broken.0)
            .fetch_one(&lab.pool)
            .await
            .unwrap();
        assert!(error.contains("event 2 cannot be read"), "{error}");
    });
}

#[test]
fn c58_an_undo_that_keeps_failing_parks_the_saga_and_holds_up_no_other() {
    with_database(async |lab| {
        let world = World::new();
        world.script("sell", [refused()]);
        world.stuck.lock().unwrap().push("pay");
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Parked).await;
        let calls = world.calls();
        assert!(calls.contains(&"undo reserve".to_owned()), "a stuck refund holds no stock: {calls:?}");
        assert_eq!(calls.iter().filter(|call| *call == "undo pay").count(), 3);
        assert_eq!(lab.journal(saga).await.last().unwrap(), "parked");
    });
}

#[test]
fn a_saga_that_never_gets_anywhere_is_parked() {
    with_database(async |lab| {
        let world = World::new();
        world.script("pay", [waits(60_000)]);
        let worker = lab.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        worker.engine.wait_for(saga, Duration::from_secs(5), |seen| seen.at_rest).await.unwrap();
        // As ten processes would leave it that it killed one after the other.
        sqlx::query("UPDATE saga.instances SET claims = 10, due_at = clock_timestamp() WHERE id = $1")
            .bind(saga.0)
            .execute(&lab.pool)
            .await
            .unwrap();
        lab.reaches(&worker, saga, Status::Parked).await;
    });
}

#[test]
fn two_workers_share_the_work_and_do_nothing_twice() {
    with_database(async |lab| {
        let world = World::new();
        let (first, second) = (lab.worker("a", shop(&world)).await, lab.worker("b", shop(&world)).await);
        let mut sagas = Vec::new();
        for _ in 0..20 {
            world.script("reserve", [waits(350)]);
            sagas.push(lab.start(&first, None).await);
        }
        for saga in &sagas {
            lab.reaches(&second, *saga, Status::Completed).await;
        }
        let calls = world.calls();
        for (step, times) in [("do reserve 1", 40), ("do pay 1", 20), ("do sell 1", 20), ("do tell 1", 20)] {
            assert_eq!(calls.iter().filter(|call| *call == step).count(), times, "{step}");
        }
    });
}
