//! Sagas whose version nobody alive knows.

use std::time::Duration;

use saga::{EngineConfig, Status, Verb, operations::Filter, operations::Page};

use crate::{
    PATIENCE,
    lab::{World, shop, shop_of, with_database},
    operations_of, ordered, refused, waits,
};

#[test]
fn an_unknown_version_is_parked_with_its_reason_and_revived_by_a_worker_that_knows_it() {
    with_database(async |lab| {
        let world = World::new();
        world.script("pay", [waits(60_000)]);
        let first = lab.worker("a", shop_of(&world, 2)).await;
        let saga = lab.start(&first, None).await;
        first.engine.wait_for(saga, PATIENCE, |seen| seen.at_rest).await.unwrap();
        first.engine.stop(Duration::from_secs(1)).await.unwrap();
        first.die();
        // It has been due for longer than a restart takes.
        sqlx::query("UPDATE saga.instances SET due_at = clock_timestamp() - interval '2 minutes'")
            .execute(&lab.pool)
            .await
            .unwrap();

        let quick = |config| EngineConfig { audit_every: Duration::from_millis(50), ..config };
        let old = lab.worker_with("b", shop(&world), quick).await;
        lab.reaches(&old, saga, Status::Parked).await;
        let operations = operations_of(&lab, &old);
        let filter = Filter { error_contains: Some("of version 2".into()), ..Filter::default() };
        let found = operations.list(&filter, Page { after: None, size: 10 }).await.unwrap();
        assert_eq!(found.sagas.len(), 1);
        assert_eq!(found.sagas[0].last_error.as_deref(), Some("no live worker knows shop of version 2"));
        let explained = operations.explain(saga).await.unwrap().unwrap().explanation;
        assert_eq!(explained.unblocks, ["run a worker that has shop version 2"]);
        let why = refused(&operations, saga, "go", Verb::Retry).await;
        assert_eq!(why, "no live worker knows shop of version 2");

        let new = lab.worker("c", shop_of(&world, 2)).await;
        lab.reaches(&new, saga, Status::Completed).await;
        assert_eq!(ordered(&operations, saga).await, ["engine/known_again"]);
    });
}
