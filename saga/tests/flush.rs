//! Flushes of the journal: sagas that are recorded together do not depend on one another.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use saga::{Beginning, Begun, Change, SagaId, SideRows, Status};
use sqlx::PgConnection;

use crate::{
    lab::{Line, World, shop, shop_with, until, with_database},
    paying,
};

/// Side rows that refuse every saga whose id is in the list, and count the others.
struct Picky {
    refuses: Arc<Mutex<Vec<SagaId>>>,
}

impl SideRows for Picky {
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
            for change in changes {
                if self.refuses.lock().expect("no test panics while it holds it").contains(&change.saga) {
                    return Err(sqlx::Error::Decode("this row cannot be".into()));
                }
                sqlx::query("INSERT INTO side (saga_id, events) VALUES ($1, $2)")
                    .bind(change.saga.0)
                    .bind(i64::try_from(change.events.len()).expect("an append holds few events"))
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
    }
}

#[test]
fn a_row_that_is_refused_fails_no_neighbour_and_parks_its_own_saga() {
    with_database(async |lab| {
        sqlx::query("CREATE TABLE side (saga_id uuid, events bigint)").execute(&lab.pool).await.unwrap();
        let world = World::new();
        let gate = world.gate("reserve");
        let refuses = Arc::default();
        let definition = shop_with(&world, Picky { refuses: Arc::clone(&refuses) });
        let worker = lab.worker("a", definition).await;
        let mut sagas = Vec::new();
        for _ in 0..20 {
            sagas.push(lab.start(&worker, None).await);
        }
        until("all reserve", async || world.calls().len() == 20).await;
        refuses.lock().unwrap().push(sagas[7]);
        // All answer at once, so they meet in few flushes.
        gate.add_permits(20);
        for (index, saga) in sagas.iter().enumerate() {
            let end = if index == 7 { Status::Parked } else { Status::Completed };
            lab.reaches(&worker, *saga, end).await;
        }
        let counted: i64 =
            sqlx::query_scalar("SELECT sum(events)::bigint FROM side").fetch_one(&lab.pool).await.unwrap();
        let recorded: i64 = sqlx::query_scalar("SELECT count(*) FROM saga.event_list WHERE seq > 1")
            .fetch_one(&lab.pool)
            .await
            .unwrap();
        assert_eq!(counted, recorded, "side rows and events are one transaction");
    });
}

#[test]
fn a_row_that_somebody_holds_delays_only_its_own_saga() {
    with_database(async |lab| {
        let world = World::new();
        let gate = world.gate("reserve");
        let worker = lab.worker("a", shop(&world)).await;
        let (held, free) = (lab.start(&worker, None).await, lab.start(&worker, None).await);
        until("both reserve", async || world.calls().len() == 2).await;
        let mut lock = lab.pool.begin().await.unwrap();
        sqlx::query("SELECT FROM saga.instances WHERE id = $1 FOR UPDATE")
            .bind(held.0)
            .execute(&mut *lock)
            .await
            .unwrap();
        gate.add_permits(2);
        lab.reaches(&worker, free, Status::Completed).await;
        assert_eq!(lab.journal(held).await, ["started"]);
        lock.rollback().await.unwrap();
        lab.reaches(&worker, held, Status::Completed).await;
    });
}

#[test]
fn a_connection_lost_in_the_middle_of_work_loses_nothing() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let mut sagas = Vec::new();
        for _ in 0..60 {
            sagas.push(lab.start(&worker, None).await);
            // Every connection but ours, the writer's among them, and possibly in its COMMIT.
            sqlx::query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%saga.instances i%'",
            )
            .execute(&lab.pool)
            .await
            .unwrap();
        }
        for saga in sagas {
            lab.reaches(&worker, saga, Status::Completed).await;
            let journal = lab.journal(saga).await;
            assert_eq!(journal.iter().filter(|event| *event == "step_done").count(), 4, "{journal:?}");
        }
    });
}

#[test]
fn a_worker_that_lost_its_saga_takes_no_signal_from_its_owner() {
    with_database(async |lab| {
        let world = World::new();
        let (first, saga, gate) = paying(&lab, &world).await;
        // Somebody else owns the saga when the cancel arrives, and this worker does not know yet.
        lab.take_away(saga).await;
        assert!(first.engine.signal(saga, "c", saga::CANCEL, &"why".into()).await.unwrap());
        gate.add_permits(1);
        until("it let go", async || first.engine.in_flight() == 0).await;
        let open: i64 =
            sqlx::query_scalar("SELECT count(*) FROM saga.signals WHERE saga_id = $1 AND taken_seq IS NULL")
                .bind(saga.0)
                .fetch_one(&lab.pool)
                .await
                .unwrap();
        assert_eq!(open, 1, "the cancel still waits for the owner");
    });
}

#[test]
fn a_start_from_before_the_fence_begins_nothing() {
    with_database(async |lab| {
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        sqlx::query("UPDATE saga.workers SET fence = 1000000").execute(&lab.pool).await.unwrap();
        let saga = SagaId::generate();
        let begun = tokio::time::timeout(Duration::from_millis(300), lab.begin(&worker, saga)).await;
        assert!(begun.is_err(), "{begun:?}");
        assert!(worker.engine.standing(saga).await.unwrap().is_none());
        // The worker goes on trying, as it does with every start in doubt.
        sqlx::query("UPDATE saga.workers SET fence = 0").execute(&lab.pool).await.unwrap();
        lab.reaches(&worker, saga, Status::Completed).await;
    });
}

/// Side rows that fail and say that all is well.
struct Silent;

impl SideRows for Silent {
    type Row = i64;

    fn begin<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        beginnings: &'c [Beginning<'c, i64>],
    ) -> BoxFuture<'c, Result<Vec<bool>, sqlx::Error>> {
        Box::pin(async move {
            for beginning in beginnings {
                let insert = sqlx::query("INSERT INTO side (saga_id, events) VALUES ($1, $2)");
                insert.bind(beginning.saga.0).bind(beginning.row).execute(&mut *connection).await?;
            }
            Ok(vec![true; beginnings.len()])
        })
    }

    fn change<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        _: &'c [Change<'c>],
    ) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        Box::pin(async move {
            let _ = sqlx::query("SELECT 1 / 0").execute(connection).await;
            Ok(())
        })
    }
}

#[test]
fn an_error_that_side_rows_keep_to_themselves_is_no_commit() {
    with_database(async |lab| {
        sqlx::query("CREATE TABLE side (saga_id uuid, events bigint)").execute(&lab.pool).await.unwrap();
        let worker = lab.worker("a", shop_with(&World::new(), Silent)).await;
        let saga = SagaId::generate();
        assert_eq!(lab.begin_with::<Silent>(&worker, saga, 1).await.unwrap(), Begun::Yes);
        lab.reaches(&worker, saga, Status::Parked).await;
        assert_eq!(
            lab.journal(saga).await,
            ["started"],
            "nothing else is on disk, and nobody says that it is"
        );
    });
}

#[test]
fn a_start_that_is_not_written_leaves_no_side_row() {
    with_database(async |lab| {
        sqlx::query("CREATE TABLE side (saga_id uuid, events bigint)").execute(&lab.pool).await.unwrap();
        let worker = lab.worker("a", shop_with(&World::new(), Silent)).await;
        // Its id is taken, as by a start that came late.
        let saga = lab.start(&worker, None).await;
        lab.reaches(&worker, saga, Status::Parked).await;
        let _ = lab.begin_with::<Silent>(&worker, saga, 1).await;
        let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM side").fetch_one(&lab.pool).await.unwrap();
        assert_eq!(rows, 0);
    });
}

#[test]
fn a_server_that_goes_silent_is_left_and_called_anew() {
    with_database(async |lab| {
        let line = Line::default();
        let world = World::new();
        let gate = world.gate("pay");
        let worker = lab.behind(&line).await.worker("a", shop(&world)).await;
        let saga = lab.start(&worker, None).await;
        until("it pays", async || world.calls().contains(&"do pay 1".to_owned())).await;
        until("its reserve is on disk", async || lab.journal(saga).await.contains(&"step_done".to_owned()))
            .await;
        let silent = tokio::time::Instant::now();
        line.go_silent();
        gate.add_permits(1);
        // A call is given ten seconds, and the engine may have several under way one after the other.
        let ends = worker
            .engine
            .wait_for(saga, Duration::from_secs(40), |standing| standing.status == Status::Completed);
        let end = ends.await.unwrap().unwrap();
        assert_eq!(end.status, Status::Completed, "{:?}", lab.journal(saga).await);
        assert_eq!(world.calls(), ["do reserve 1", "do pay 1", "do sell 1", "do tell 1"]);
        assert!(silent.elapsed() > Duration::from_secs(5), "the writer's connection was silent");
    });
}
