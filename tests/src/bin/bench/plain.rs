//! The baseline: what a careful hand writes without an engine. One statement per transition, each its own commit: the
//! row moves under a guard and the event is inserted beside it. Same steps, same durable history, no leases, no timers,
//! no side rows. It has tables of its own with the indexes such a service needs, and nothing else in its way:
//! prepared statements, HOT updates, no question before a connection is used.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sqlx::PgPool;
use uuid::Uuid;

/// More connections than cores: a commit waits for the disk most of its time, and waiting commits share one sync.
pub(crate) const CONNECTIONS: u32 = 32;

const SCHEMA: &str = "
CREATE SCHEMA plain;
CREATE TABLE plain.sagas (
    id          uuid PRIMARY KEY,
    kind        text NOT NULL,
    status      text NOT NULL CHECK (status IN ('RUNNING', 'UNDOING', 'COMPLETED', 'UNDONE')),
    seq         bigint NOT NULL,
    step        text,
    input       jsonb NOT NULL,
    last_error  text,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);
-- What a restarted service looks for. It names no column that a step changes, so that updates stay HOT.
CREATE INDEX sagas_running ON plain.sagas (created_at) WHERE status IN ('RUNNING', 'UNDOING');
CREATE TABLE plain.events (
    saga_id  uuid NOT NULL,
    seq      bigint NOT NULL,
    event    jsonb NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (saga_id, seq)
);";

const START: &str = "
WITH begun AS (
    INSERT INTO plain.sagas (id, kind, status, seq, input) VALUES ($1, 'bench', 'RUNNING', 1, $2) RETURNING id
)
INSERT INTO plain.events (saga_id, seq, event) SELECT id, 1, $3 FROM begun";

/// $1 id, $2 seq before, $3 status, $4 step, $5 events.
const MOVE: &str = "
WITH moved AS (
    UPDATE plain.sagas SET seq = seq + cardinality($5::jsonb[]), status = $3, step = $4, updated_at = clock_timestamp()
    WHERE id = $1 AND seq = $2 AND status = 'RUNNING' RETURNING id
)
INSERT INTO plain.events (saga_id, seq, event)
SELECT moved.id, $2 + e.number, e.event FROM moved, unnest($5::jsonb[]) WITH ORDINALITY AS e (event, number)";

/// Makes the baseline's tables.
pub(crate) async fn prepare(pool: &PgPool) -> Result<()> {
    sqlx::raw_sql(SCHEMA).execute(pool).await?;
    Ok(())
}

/// Runs one saga from its start to its durable end.
pub(crate) async fn once(pool: &PgPool) -> Result<()> {
    let saga = Uuid::now_v7();
    let first = json!({ "event": "started", "input": null });
    sqlx::query(START).bind(saga).bind(Value::Null).bind(first).execute(pool).await?;
    move_on(pool, saga, 1, "RUNNING", "first", vec![done("first")]).await?;
    move_on(pool, saga, 2, "RUNNING", "second", vec![done("second")]).await?;
    move_on(pool, saga, 3, "RUNNING", "pivot", vec![json!({ "event": "pivot_begun", "step": "pivot" })])
        .await?;
    move_on(pool, saga, 4, "COMPLETED", "pivot", vec![done("pivot"), json!({ "event": "completed" })]).await
}

fn done(step: &str) -> Value {
    json!({ "event": "step_done", "step": step, "output": null })
}

async fn move_on(
    pool: &PgPool,
    saga: Uuid,
    seq: i64,
    status: &str,
    step: &str,
    events: Vec<Value>,
) -> Result<()> {
    let expected = u64::try_from(events.len())?;
    let statement = sqlx::query(MOVE).bind(saga).bind(seq).bind(status).bind(step).bind(events);
    let written = statement.execute(pool).await?.rows_affected();
    ensure!(written == expected, "saga {saga} was not at {seq}");
    Ok(())
}
