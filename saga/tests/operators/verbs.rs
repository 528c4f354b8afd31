//! Verbs for one saga, from the order to its effect.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say so at once")]

use std::time::Duration;

use saga::{
    CANCEL, Outcome, SagaId, Seq, Status, Verb,
    operations::{self, OperateError},
};
use serde_json::json;

use crate::{
    PATIENCE, asked, done, failed, give, hearts_beat,
    lab::{Lab, Worker, World, shop, until, with_database},
    operations_of, order, ordered, refused, resolve, resolve_undo, waits,
};

/// A saga that waits a minute for its payment, as a row only.
async fn waiting(lab: &Lab, world: &World, worker: &Worker) -> SagaId {
    world.script("pay", [waits(60_000)]);
    let saga = lab.start(worker, None).await;
    worker.engine.wait_for(saga, PATIENCE, |seen| seen.at_rest).await.unwrap();
    saga
}

fn calls(world: &World, call: &str) -> usize {
    world.calls().iter().filter(|known| *known == call).count()
}

#[test]
fn c58_an_operators_retry_finishes_what_was_parked() {
    with_database(async |lab| {
        let world = World::new();
        world.script("pay", [Outcome::Abort { reason: "NO".into(), detail: json!(null) }]);
        world.stuck.lock().unwrap().push("reserve");
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Parked).await;

        let explained = operations.explain(saga).await.unwrap().unwrap();
        assert_eq!(
            explained.saga.last_error.as_deref(),
            Some("undo keeps failing: undo reserve: it is stuck")
        );
        assert_eq!(explained.explanation.next, "nothing, until an operator says so");
        let unblocks = explained.explanation.unblocks;
        assert!(unblocks[0].starts_with("retry: "), "{unblocks:?}");
        assert!(unblocks[1].starts_with("resolve_undo reserve: "), "{unblocks:?}");

        // Nothing was mended: it is carried out, and parks again.
        done(&operations, saga, "retry-1", Verb::Retry).await;
        until("it parks again", async || calls(&world, "undo reserve") == 6).await;
        lab.reaches(&worker, saga, Status::Parked).await;

        world.stuck.lock().unwrap().clear();
        done(&operations, saga, "retry-2", Verb::Retry).await;
        lab.reaches(&worker, saga, Status::Undone).await;
        assert_eq!(ordered(&operations, saga).await, ["retry-1", "retry-2"]);

        // The same request finds what became of it, also now that the saga has ended; another one does not.
        done(&operations, saga, "retry-1", Verb::Retry).await;
        let reused = give(&operations, saga, "retry-1", Verb::Pause).await;
        assert!(matches!(reused, Err(OperateError::RequestIdReused)), "{reused:?}");
        let why = refused(&operations, saga, "late", Verb::Retry).await;
        assert_eq!(why, "it has ended: everything is undone");
        let unknown = give(&operations, SagaId::generate(), "elsewhere", Verb::Retry).await;
        assert!(matches!(unknown, Err(OperateError::UnknownSaga)), "{unknown:?}");
        assert_eq!(ordered(&operations, saga).await, ["retry-1", "retry-2"]);
    });
}

#[test]
fn what_waits_is_compensated_and_what_may_be_sold_is_not() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let saga = waiting(&lab, &world, &worker).await;
        done(&operations, saga, "undo it", Verb::Compensate).await;
        lab.reaches(&worker, saga, Status::Undone).await;
        assert_eq!(world.calls(), ["do reserve 1", "do pay 1", "undo pay", "undo reserve"]);

        world.script("tell", [failed(), failed(), failed()]);
        let sold = lab.start(&worker, None).await;
        lab.reaches(&worker, sold, Status::Parked).await;
        let why = refused(&operations, sold, "undo that", Verb::Compensate).await;
        assert!(why.ends_with("its pivot has begun, and what may be sold is not undone"), "{why}");
        lab.reaches(&worker, sold, Status::Parked).await;
        let why = refused(&operations, sold, "wrong step", resolve("pay")).await;
        assert!(why.starts_with("step pay is not at work: it is at step tell, parked"), "{why}");
        done(&operations, sold, "told by hand", resolve("tell")).await;
        lab.reaches(&worker, sold, Status::Completed).await;
        assert_eq!(ordered(&operations, sold).await, ["undo that!", "wrong step!", "told by hand"]);
        assert_eq!(calls(&world, "do tell 1"), 3, "what was seen to by hand is not tried again");
        // A refusal is found again too.
        assert!(refused(&operations, sold, "undo that", Verb::Compensate).await.starts_with("it is at step"));
    });
}

#[test]
fn an_undo_that_was_seen_to_by_hand_is_not_tried_again() {
    with_database(async |lab| {
        let world = World::new();
        world.script("pay", [Outcome::Abort { reason: "NO".into(), detail: json!(null) }]);
        world.stuck.lock().unwrap().push("reserve");
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Parked).await;
        let why = refused(&operations, saga, "not that one", resolve_undo("pay")).await;
        assert!(why.starts_with("step pay is undone already"), "{why}");
        done(&operations, saga, "given back", resolve_undo("reserve")).await;
        lab.reaches(&worker, saga, Status::Undone).await;
        assert_eq!(calls(&world, "undo reserve"), 3);
    });
}

#[test]
fn one_saga_is_paused_and_what_it_was_told_meanwhile_counts_after_the_resume() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let saga = waiting(&lab, &world, &worker).await;
        let why = refused(&operations, saga, "too early", Verb::Resume).await;
        assert!(why.starts_with("it is not paused"), "{why}");
        done(&operations, saga, "hold", Verb::Pause).await;
        let standing = lab.reaches(&worker, saga, Status::Parked).await;
        assert!(standing.at_rest);
        assert!(lab.signal(&worker, saga, "c", CANCEL, json!({})).await);
        let why = refused(&operations, saga, "again", Verb::Retry).await;
        assert!(why.contains("paused by ann: it has to be"), "{why}");
        let explained = operations.explain(saga).await.unwrap().unwrap();
        assert_eq!(explained.open_signals, [CANCEL]);
        assert_eq!(explained.saga.last_error.as_deref(), Some("paused by ann: it has to be"));
        done(&operations, saga, "go", Verb::Resume).await;
        lab.reaches(&worker, saga, Status::Undone).await;
        assert_eq!(calls(&world, "do pay 1"), 1);
    });
}

#[test]
fn a_cancel_that_waited_while_its_saga_was_parked_takes_effect_after_the_retry() {
    with_database(async |lab| {
        let world = World::new();
        world.script("pay", [Outcome::Park { reason: "a riddle".into() }]);
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Parked).await;
        assert!(lab.signal(&worker, saga, "c", CANCEL, json!({})).await);
        done(&operations, saga, "go", Verb::Retry).await;
        lab.reaches(&worker, saga, Status::Undone).await;
        assert_eq!(calls(&world, "do pay 1"), 1, "it was cancelled before anything else was tried");
    });
}

#[test]
fn one_request_id_is_one_order_however_it_is_asked() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let saga = waiting(&lab, &world, &worker).await;
        let other = waiting(&lab, &world, &worker).await;
        let same = || give(&operations, saga, "r", Verb::Pause);
        let (one, two, three) = tokio::join!(same(), same(), same());
        for outcome in [one, two, three] {
            assert_eq!(outcome.unwrap(), operations::Outcome::Done);
        }
        assert_eq!(ordered(&operations, saga).await, ["r"]);
        let elsewhere = give(&operations, other, "r", Verb::Pause).await;
        assert!(matches!(elsewhere, Err(OperateError::RequestIdReused)), "{elsewhere:?}");
        let kind = operations::Many::Kind("shop".into());
        let of_many = operations.pause(kind, &asked("r")).await;
        assert!(matches!(of_many, Err(OperateError::RequestIdReused)), "{of_many:?}");
        assert_eq!(operations.pauses().await.unwrap(), []);
    });
}

#[test]
fn an_order_that_is_not_decided_on_in_time_is_accepted_and_found_again() {
    with_database(async |lab| {
        let world = World::new();
        let gate = world.gate("pay");
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let saga = lab.start(&worker, None).await;
        until("it pays", async || calls(&world, "do pay 1") == 1).await;
        let pause = order("hold", Verb::Pause);
        // No attempt that is under way is cut.
        let accepted = operations.operate(saga, &pause, Duration::from_millis(100)).await.unwrap();
        assert_eq!(accepted.outcome, operations::Outcome::Accepted);
        gate.add_permits(1);
        let decided = operations.operate(saga, &pause, PATIENCE).await.unwrap();
        assert_eq!((decided.outcome, decided.saga.status), (operations::Outcome::Done, Status::Parked));
        done(&operations, saga, "go", Verb::Resume).await;
        lab.reaches(&worker, saga, Status::Completed).await;
    });
}

#[test]
fn an_order_to_a_saga_that_cannot_be_read_changes_nothing_and_wakes_nobody() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let saga = waiting(&lab, &world, &worker).await;
        let sound: String =
            sqlx::query_scalar("SELECT events::text FROM saga.events WHERE saga_id = $1 AND seq = 2")
                .bind(saga.0)
                .fetch_one(&lab.pool)
                .await
                .unwrap();
        let write = async |events: &str| {
            let statement =
                sqlx::query("UPDATE saga.events SET events = $2::json WHERE saga_id = $1 AND seq = 2");
            statement.bind(saga.0).bind(events).execute(&lab.pool).await.unwrap();
        };
        write(r#"{"event": "moonwalk"}"#).await;
        assert!(lab.signal(&worker, saga, "k", "paid", json!({})).await);
        lab.reaches(&worker, saga, Status::Parked).await;

        let told = operations.get(saga, Seq(0)).await.unwrap().unwrap();
        assert_eq!(told.entries[1].json, r#"{"event": "moonwalk"}"#);
        let explained = operations.explain(saga).await.unwrap().unwrap().explanation;
        assert!(explained.summary.contains("its journal cannot be read: event 2"), "{}", explained.summary);
        let why = refused(&operations, saga, "go", Verb::Retry).await;
        assert!(why.starts_with("its journal cannot be read"), "{why}");

        // One that is on its way all the same is closed unheard, once: nobody claims the saga again and again.
        let order = serde_json::to_value(order("on its way", Verb::Retry)).unwrap();
        assert!(lab.signal(&worker, saga, "operator/on its way", saga::operate::SIGNAL, order).await);
        let closed = "SELECT taken_seq FROM saga.signals WHERE dedup_key LIKE 'operator/%'";
        until("the order is closed", async || {
            sqlx::query_scalar(closed).fetch_one(&lab.pool).await.is_ok_and(|seq: Option<i64>| seq == Some(0))
        })
        .await;
        lab.reaches(&worker, saga, Status::Parked).await;
        let row = operations.explain(saga).await.unwrap().unwrap().saga;
        // Many scans later.
        hearts_beat(&lab).await;
        assert_eq!(operations.explain(saga).await.unwrap().unwrap().saga.epoch, row.epoch);

        write(&sound).await;
        done(&operations, saga, "go, mended", Verb::Retry).await;
        lab.reaches(&worker, saga, Status::Completed).await;
    });
}
