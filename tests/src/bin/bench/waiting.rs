//! Sagas that wait, written as the rows they are: a million of them through the engine's front door would measure that
//! door. Each row is what the engine itself leaves behind when a step answers Pending: the instance with its due time and
//! without owner, and the event that says so.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use chrono::{DateTime, Utc};
use sqlx::PgPool;
use uuid::Uuid;

use crate::server::Server;

/// Some sagas that wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    /// See [`Waited`](crate::sagas::Waited); also the first digits of their ids.
    pub(crate) group: usize,
    pub(crate) count: u64,
    /// The first is due this long after the rows begin to be written.
    pub(crate) first_in: Duration,
    /// Each further one is due this much later.
    pub(crate) spacing: Duration,
    /// So many of the first do not count.
    pub(crate) warm_up: u64,
}

/// $1 the ids' first digits, $2 group, $3 first, $4 how many, $5 due of the first, $6 microseconds of spacing, $7 how
/// many of the first do not count.
const WRITE: &str = "
WITH waiting AS MATERIALIZED (
    SELECT n, ($1 || lpad(to_hex(n), 12, '0'))::uuid AS id,
           $5::timestamptz + make_interval(secs => n * $6::bigint / 1e6) AS due
    FROM generate_series($3::bigint, $3::bigint + $4::bigint - 1) AS n
), instances AS (
    INSERT INTO saga.instances (id, kind, version, status, seq, epoch, owner, due_at, attributes, started)
    SELECT id, 'waiting', 1, 'RUNNING', 2, 1, NULL, due, '{}', json_build_object(
        'event', 'started', 'at', now(), 'deadline', NULL, 'traceparent', NULL, 'attributes', '{}'::json,
        'input', json_build_object('group', $2::bigint, 'counts', n >= $7::bigint,
                                   'due_us', (extract(epoch FROM due) * 1000000)::bigint))
    FROM waiting
)
INSERT INTO saga.events (saga_id, seq, epoch, events)
SELECT id, 2, 1, json_build_array(json_build_object(
    'event', 'step_waiting', 'step', 'wait', 'at', now(), 'due', due, 'progress', 'idle', 'span', NULL))
FROM waiting";

/// Rows of one statement.
const BATCH: u64 = 50_000;

impl Rows {
    /// Writes them; gives when the first is due. They must all be there well before that.
    pub(crate) async fn write(&self, pool: &PgPool) -> Result<DateTime<Utc>> {
        let begun = Instant::now();
        let due = self.insert(pool).await?;
        let took = begun.elapsed();
        let early = self.first_in.saturating_sub(took);
        // Even after the last row, those that are due first lie beyond the window that an engine loads ahead.
        ensure!(early >= AHEAD, "{} rows took {took:?} to write: they were not there in time", self.count);
        Ok(due)
    }

    /// Writes them, however long it takes; gives when the first is due, or was.
    pub(crate) async fn insert(&self, pool: &PgPool) -> Result<DateTime<Utc>> {
        let now: DateTime<Utc> = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(pool).await?;
        let due = now + self.first_in;
        let mut written = 0;
        while written < self.count {
            let batch = BATCH.min(self.count - written);
            sqlx::query(WRITE)
                .bind(self.prefix())
                .bind(i64::try_from(self.group)?)
                .bind(i64::try_from(written)?)
                .bind(i64::try_from(batch)?)
                .bind(due)
                .bind(i64::try_from(self.spacing.as_micros())?)
                .bind(i64::try_from(self.warm_up)?)
                .execute(pool)
                .await?;
            written += batch;
        }
        Ok(due)
    }

    /// How many of them did not end.
    pub(crate) async fn unfinished(&self, pool: &PgPool) -> Result<i64> {
        let sql = "SELECT count(*) FROM saga.instances WHERE id BETWEEN $1 AND $2";
        let id = |digits: &str| Uuid::parse_str(&format!("{}{digits}", self.prefix()));
        let (first, last) = (id("000000000000")?, id("ffffffffffff")?);
        Ok(sqlx::query_scalar(sql).bind(first).bind(last).fetch_one(pool).await?)
    }

    /// Older than the ids of sagas that are started now, as waiting sagas are.
    fn prefix(&self) -> String {
        format!("000000{:02x}-0000-7000-8000-", self.group)
    }
}

/// How long before the first due time the rows must be there.
const AHEAD: Duration = Duration::from_millis(2_500);

/// Lets the planner know what is there, as autovacuum would in time, and writes it out.
pub(crate) async fn analyse(server: &Server) -> Result<()> {
    sqlx::raw_sql("VACUUM (ANALYZE) saga.instances, saga.events").execute(&server.pool(1).await?).await?;
    server.settle().await
}
