//! The database's clock jumps. It cannot be set in a test, so the sessions of the workers see another
//! `clock_timestamp` before the server's own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say so at once")]

use std::{
    fmt::{self, Write as _},
    sync::{Mutex, OnceLock},
};

use chrono::{TimeDelta, Utc};
use saga::{SagaId, Status, operate::Scope};
use sqlx::AssertSqlSafe;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::{
    PATIENCE, asked, hearts_beat,
    lab::{Lab, World, shop, until, with_database},
    operations_of, waits,
};

/// From here on the workers' database is ahead by `seconds`.
async fn jump(lab: &Lab, seconds: i64) {
    sqlx::query("UPDATE shadow.offset_of_clock SET seconds = $1")
        .bind(seconds)
        .execute(&lab.pool)
        .await
        .unwrap();
}

async fn shadow_the_clock(lab: &Lab) {
    let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&lab.pool).await.unwrap();
    let shadow = format!(
        "CREATE SCHEMA shadow;
         CREATE TABLE shadow.offset_of_clock AS SELECT 0::bigint AS seconds;
         CREATE FUNCTION shadow.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
         'SELECT pg_catalog.clock_timestamp() + seconds * interval ''1 second'' FROM shadow.offset_of_clock';
         ALTER DATABASE {name} SET search_path = shadow, pg_catalog, public;"
    );
    sqlx::raw_sql(AssertSqlSafe(shadow)).execute(&lab.pool).await.unwrap();
}

/// Keeps the errors and warnings of this process.
struct Alarms;

static ALARMS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LISTENING: OnceLock<()> = OnceLock::new();

impl Subscriber for Alarms {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                let _ = write!(self.0, "{}={value:?} ", field.name());
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        ALARMS.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn alarmed(text: &str) -> bool {
    ALARMS.lock().unwrap().iter().any(|alarm| alarm.contains(text))
}

#[test]
fn a_jump_of_the_databases_time_holds_what_is_due_until_an_operator_accepts_it() {
    LISTENING.get_or_init(|| tracing::subscriber::set_global_default(Alarms).unwrap());
    with_database(async |lab| {
        shadow_the_clock(&lab).await;
        let world = World::new();
        let worker = lab.worker("a", shop(&world)).await;
        let operations = operations_of(&lab, &worker);
        let mut ahead = 0;
        for (by, first, second) in [(3_600, "r1", "r1 again"), (-7_200, "r2", "r2 again")] {
            let before = worker.engine.now();
            world.script("pay", [waits(1_500)]);
            let saga = lab.start(&worker, None).await;
            worker.engine.wait_for(saga, PATIENCE, |standing| standing.at_rest).await.unwrap();
            let due = operations.explain(saga).await.unwrap().unwrap().saga.due_at.unwrap();
            ahead += by;
            jump(&lab, ahead).await;
            until("the worker doubts the clock", async || operations.pauses().await.unwrap().len() == 1)
                .await;
            assert!(alarmed("the database's clock jumped"));

            // Its time comes, by the clock that goes on as before, and passes.
            until("it is due", async || worker.engine.now() > due + TimeDelta::milliseconds(500)).await;
            assert!(worker.engine.now() - before < TimeDelta::seconds(60), "the jump is not followed");
            is_held(&operations, saga).await;
            // What was ordered before the doubt says nothing about it.
            if first == "r2" {
                operations.resume(&Scope::Clock, &asked("r1")).await.unwrap();
                hearts_beat(&lab).await;
                is_held(&operations, saga).await;
            }
            operations.resume(&Scope::Clock, &asked(first)).await.unwrap();
            until("the time is accepted", async || operations.pauses().await.unwrap().is_empty()).await;
            assert!(alarmed("is taken for right"));
            if by > 0 {
                lab.reaches(&worker, saga, Status::Completed).await;
            } else {
                // By a clock that went back, its time has not come.
                let explained = operations.explain(saga).await.unwrap().unwrap();
                assert_eq!(
                    (explained.saga.status, explained.explanation.next_at),
                    (Status::Running, Some(due))
                );
            }
            let now = worker.engine.now() - Utc::now();
            assert!((now - TimeDelta::seconds(ahead)).abs() < TimeDelta::seconds(5), "{now}");
            // An order with nothing in doubt is kept and changes nothing.
            operations.resume(&Scope::Clock, &asked(second)).await.unwrap();
        }
    });
}

async fn is_held(operations: &saga::Operations, saga: SagaId) {
    let explained = operations.explain(saga).await.unwrap().unwrap();
    assert_eq!((explained.saga.status, explained.saga.owner), (Status::Running, None));
    assert_eq!(explained.explanation.next, "nothing while the clock is paused");
    let unblocks = &explained.explanation.unblocks[0];
    assert!(unblocks.starts_with("resume the clock: paused by engine"), "{unblocks}");
    assert_eq!(explained.pauses[0].scope, Scope::Clock);
}
