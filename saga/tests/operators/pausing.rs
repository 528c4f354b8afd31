//! Pauses of a kind and of a participant, for every worker.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say so at once")]

use saga::{
    Operations, SagaId, Status,
    operate::{Pause, Scope},
    operations::Many,
};

use crate::{
    PATIENCE, asked, hearts_beat,
    lab::{Worker, World, shop, with_database},
    operations_of,
};

/// Waits until a worker lets the saga rest because of a pause.
async fn held(operations: &Operations, worker: &Worker, saga: SagaId) {
    worker.engine.wait_for(saga, PATIENCE, |standing| standing.at_rest).await.unwrap();
    let row = operations.explain(saga).await.unwrap().unwrap().saga;
    assert_eq!((row.status, row.owner), (Status::Running, None));
}

async fn completes(worker: &Worker, saga: SagaId) {
    let ended = worker.engine.wait_for(saga, PATIENCE, |standing| standing.status.is_end()).await.unwrap();
    assert_eq!(ended.unwrap().status, Status::Completed);
}

fn scopes(pauses: &[Pause]) -> Vec<&Scope> {
    pauses.iter().map(|pause| &pause.scope).collect()
}

#[test]
fn a_paused_kind_rests_on_every_worker_until_it_is_resumed() {
    with_database(async |lab| {
        let world = World::new();
        let (a, b) = (lab.worker("a", shop(&world)).await, lab.worker("b", shop(&world)).await);
        let operations = operations_of(&lab, &a);
        let kind = Scope::Kind("shop".into());
        let paused = operations.pause(Many::Kind("shop".into()), &asked("p")).await.unwrap();
        assert_eq!(scopes(&paused), [&kind]);
        // All workers know within a heartbeat.
        hearts_beat(&lab).await;
        let sagas = [lab.start(&a, None).await, lab.start(&b, None).await];
        held(&operations, &a, sagas[0]).await;
        held(&operations, &b, sagas[1]).await;
        assert_eq!(world.calls(), Vec::<String>::new());
        let explained = operations.explain(sagas[1]).await.unwrap().unwrap();
        assert_eq!(explained.explanation.next, "nothing while kind shop is paused");
        assert_eq!(explained.explanation.unblocks[0], "resume kind shop: paused by ann: it has to be");
        assert_eq!(scopes(&explained.pauses), [&kind]);

        assert_eq!(operations.resume(&kind, &asked("r")).await.unwrap(), []);
        // A late repeat of the first request does not pause again.
        assert_eq!(operations.pause(Many::Kind("shop".into()), &asked("p")).await.unwrap(), []);
        for saga in sagas {
            completes(&a, saga).await;
        }
        let verbs: Vec<String> =
            sqlx::query_scalar("SELECT verb || ' ' || actor FROM saga.operator_log ORDER BY id")
                .fetch_all(&lab.pool)
                .await
                .unwrap();
        assert_eq!(verbs, ["pause ann", "resume ann"]);
    });
}

#[test]
fn a_paused_participant_is_not_called_and_the_others_are() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let gate = world.gate("reserve");
        let saga = lab.start(&worker, None).await;
        let pay = Scope::Participant("pay".into());
        operations.pause(Many::Participant("pay".into()), &asked("p")).await.unwrap();
        // Paused twice is paused once, by the first.
        let again = saga::operate::Asked::new("p2", "bob", "me too").unwrap();
        let paused = operations.pause(Many::Participant("pay".into()), &again).await.unwrap();
        assert_eq!((scopes(&paused), paused[0].actor.as_str()), (vec![&pay], "ann"));
        hearts_beat(&lab).await;
        gate.add_permits(1);
        held(&operations, &worker, saga).await;
        assert_eq!(world.calls(), ["do reserve 1"]);
        let explained = operations.explain(saga).await.unwrap().unwrap();
        assert!(
            explained.explanation.next.ends_with("once participant pay is no longer paused"),
            "{}",
            explained.explanation.next
        );
        assert_eq!(
            operations.resume(&Scope::Participant("mail".into()), &asked("r1")).await.unwrap().len(),
            1
        );
        assert_eq!(operations.resume(&pay, &asked("r2")).await.unwrap(), []);
        completes(&worker, saga).await;
    });
}
