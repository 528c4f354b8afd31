//! The journal in Postgres. All SQL of this crate is in `postgres/sql.rs`, the flush in `postgres/flush.rs`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use super::{
    Audit, Beat, Claimable, Claimed, ClockOrder, Entry, Fate, Journal, JournalError, Look, OpenSignal,
    Pauses, Position, Read, Sent, Sighting, SignalId, Status,
};
use crate::{
    definition::Definition,
    event::Event,
    id::{Epoch, SagaId, Seq, WorkerId},
    operate,
    state::State,
};
use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use futures::future::BoxFuture;
use serde_json::Value;
use sqlx::{
    AssertSqlSafe, PgConnection, PgPool, Row as _,
    postgres::{PgListener, PgPoolOptions, PgRow, types::PgInterval},
};

mod flush;
pub(crate) mod operations;
mod sql;

/// Most signals one saga may hold in its life: more is a sender gone wild.
const SIGNALS_MAX: i64 = 1_000;
/// Timers fire by a clock that is a little off.
const CLAIM_SLACK: TimeDelta = TimeDelta::milliseconds(50);
/// Days whose partitions are made ahead.
const DAYS_AHEAD: i64 = 7;
/// Two claims, a read of signals, a scan.
const READERS: u32 = 4;
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// One worker's journal.
pub(crate) struct PgJournal {
    name: String,
    owner: OnceLock<WorkerId>,
    /// Under which number starts are sent.
    fence: AtomicI64,
    /// The caller's pool: signals only.
    pool: PgPool,
    /// Claims and reads, with plans pinned as the writer's are.
    reader: PgPool,
    /// The writer's own connection.
    writer: PgPool,
    /// The heartbeat's own connection: a lease is not lost because handlers use up the pool.
    heart: PgPool,
    /// The listener's own connection.
    ear: PgPool,
    listener: Mutex<Option<PgListener>>,
}

impl PgJournal {
    pub(crate) fn new(pool: PgPool, name: String) -> Self {
        let own = |options, connections| {
            PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(ACQUIRE_TIMEOUT)
                .test_before_acquire(false)
                .connect_lazy_with(options)
        };
        let options = pool.connect_options().as_ref().clone();
        let (heart, ear) = (own(options.clone(), 1), own(options.clone(), 1));
        let pinned = options.options(flush::SESSION);
        let (writer, reader) = (own(pinned.clone(), 1), own(pinned, READERS));
        Self {
            name,
            owner: OnceLock::new(),
            fence: AtomicI64::new(0),
            pool,
            reader,
            writer,
            heart,
            ear,
            listener: Mutex::new(None),
        }
    }

    async fn make_partitions(&self, today: NaiveDate) -> Result<(), sqlx::Error> {
        let there = self.partitions().await?;
        for ahead in 0..=DAYS_AHEAD {
            let day = today + TimeDelta::days(ahead);
            let next = day + TimeDelta::days(1);
            if there.contains(&partition(day)) {
                continue;
            }
            let statement = format!(
                "CREATE TABLE saga.finished_{} PARTITION OF saga.finished FOR VALUES FROM ('{day}') TO ('{next}')",
                day.format("%Y%m%d")
            );
            if let Err(error) = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.heart).await
                // Another worker may have made it at the same time.
                && !self.partitions().await?.contains(&partition(day))
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The day partitions there are, oldest first.
    async fn partitions(&self) -> Result<Vec<String>, sqlx::Error> {
        sqlx::query_scalar(sql::PARTITIONS).fetch_all(&self.heart).await
    }

    async fn drop_partitions(&self, before: NaiveDate) -> Result<(), sqlx::Error> {
        let oldest = partition(before);
        for name in self.partitions().await?.into_iter().filter(|name| *name < oldest) {
            sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE IF EXISTS saga.{name}")))
                .execute(&self.heart)
                .await?;
            tracing::info!(partition = name, "finished sagas of one day are dropped");
        }
        Ok(())
    }

    async fn look_over(&self, now: DateTime<Utc>, retain_days: u32) -> Result<Audit, JournalError> {
        let oversleeping = sqlx::query(sql::MEND_OVERSLEEPING).execute(&self.heart).await?.rows_affected();
        let unknown = sqlx::query(sql::PARK_UNKNOWN).bind(now).execute(&self.heart).await?.rows_affected();
        let overdue: i64 = sqlx::query_scalar(sql::COUNT_OVERDUE).bind(now).fetch_one(&self.heart).await?;
        sqlx::query(sql::FORGET_WORKERS).execute(&self.heart).await?;
        self.make_partitions(now.date_naive()).await?;
        self.drop_partitions(now.date_naive() - TimeDelta::days(i64::from(retain_days))).await?;
        Ok(Audit { overdue: overdue.unsigned_abs(), oversleeping, unknown })
    }

    async fn take(
        &self,
        sagas: &[SagaId],
        claimable: &Claimable,
        now: DateTime<Utc>,
    ) -> Result<Vec<Claimed>, JournalError> {
        let rows = sqlx::query(sql::CLAIM)
            .bind(self.owner().0)
            .bind(ids(sagas))
            .bind(now + CLAIM_SLACK)
            .bind(&claimable.knows)
            .bind(&claimable.paused_kinds)
            .bind(operate::SIGNAL)
            .fetch_all(&self.reader)
            .await?;
        let taken: Vec<_> = rows.iter().map(|row| row.try_get("id").map(SagaId)).collect::<Result<_, _>>()?;
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let mut parts: HashMap<SagaId, Vec<(i64, String)>> = HashMap::with_capacity(taken.len());
        for row in sqlx::query(sql::EVENTS).bind(ids(&taken)).fetch_all(&self.reader).await? {
            let part = (row.try_get("seq")?, row.try_get("events")?);
            parts.entry(SagaId(row.try_get("saga_id")?)).or_default().push(part);
        }
        let mut signals = self.open_signals(&taken).await?;
        let claimed = |row: &PgRow| -> Result<Claimed, sqlx::Error> {
            let saga = SagaId(row.try_get("id")?);
            Ok(Claimed {
                saga,
                kind: row.try_get("kind")?,
                version: row.try_get("version")?,
                epoch: Epoch(row.try_get("epoch")?),
                seq: Seq(row.try_get("seq")?),
                claims: row.try_get("claims")?,
                interrupted: row.try_get("interrupted")?,
                journal: read(row.try_get("started")?, parts.remove(&saga).unwrap_or_default()),
                signals: signals.remove(&saga).unwrap_or_default(),
            })
        };
        Ok(rows.iter().map(claimed).collect::<Result<_, _>>()?)
    }
}

/// Puts a journal together. `Err`: why it cannot be.
fn read(started: String, parts: Vec<(i64, String)>) -> Result<Read, String> {
    let unreadable = |seq: i64, error: &serde_json::Error| format!("event {seq} cannot be read: {error}");
    let first: Event = serde_json::from_str(&started).map_err(|error| unreadable(1, &error))?;
    let mut journal = Read { events: vec![first], json: started };
    for (seq, part) in parts {
        let expected = Seq::default().plus(journal.events.len() + 1).0;
        if seq != expected {
            return Err(format!("event {expected} is missing"));
        }
        let events: Vec<Value> = serde_json::from_str(&part).map_err(|error| unreadable(seq, &error))?;
        for (event, seq) in events.into_iter().zip(seq..) {
            journal.events.push(serde_json::from_value(event).map_err(|error| unreadable(seq, &error))?);
        }
        journal.json.push(',');
        journal.json.push_str(part.trim().trim_start_matches('[').trim_end_matches(']'));
    }
    Ok(journal)
}

/// Writes a saga's beginning in the caller's transaction; gives its journal as JSON.
pub(crate) async fn start_in(
    connection: &mut PgConnection,
    owner: WorkerId,
    saga: SagaId,
    definition: &Definition,
    first: &Event,
    state: &State,
) -> Result<String, JournalError> {
    let json = serde_json::to_string(first)?;
    sqlx::query(sql::START_IN)
        .bind(saga.0)
        .bind(definition.kind)
        .bind(definition.version)
        .bind(owner.0)
        .bind(state.deadline)
        .bind(serde_json::to_string(&*state.attributes)?)
        .bind(&json)
        .execute(connection)
        .await?;
    Ok(json)
}

/// Stores a signal once per key, in the caller's transaction.
pub(crate) async fn send(
    connection: &mut PgConnection,
    saga: SagaId,
    key: &str,
    name: &str,
    payload: &Value,
) -> Result<Sent, JournalError> {
    let sent: String = sqlx::query_scalar(sql::SEND)
        .bind(saga.0)
        .bind(key)
        .bind(name)
        .bind(payload)
        .bind(SIGNALS_MAX)
        .fetch_one(connection)
        .await?;
    match sent.as_str() {
        "STORED" => Ok(Sent::Stored),
        "ENDED" => Ok(Sent::Ended),
        _ => Ok(Sent::Full),
    }
}

impl Journal for PgJournal {
    fn owner(&self) -> WorkerId {
        *self.owner.get().expect("an engine registers before it does anything else")
    }

    fn register<'a>(
        &'a self,
        lease: Duration,
        knows: &'a [String],
    ) -> BoxFuture<'a, Result<Beat, JournalError>> {
        Box::pin(async move {
            // Before anything can end, and before the clock is read: making them takes a moment.
            let today = sqlx::query_scalar(sql::TODAY).fetch_one(&self.heart).await?;
            self.make_partitions(today).await?;
            let row = sqlx::query(sql::REGISTER)
                .bind(&self.name)
                .bind(interval(lease))
                .bind(knows)
                .bind(operate::SIGNAL)
                .bind(serde_json::to_value(operate::Order::known_again())?)
                .fetch_one(&self.heart)
                .await?;
            let _ = self.owner.set(WorkerId(row.try_get("id")?));
            Ok(beat(&row)?)
        })
    }

    fn heartbeat(&self, lease: Duration) -> BoxFuture<'_, Result<Beat, JournalError>> {
        Box::pin(async move {
            let row = sqlx::query(sql::HEARTBEAT)
                .bind(self.owner().0)
                .bind(interval(lease))
                .fetch_optional(&self.heart)
                .await?;
            Ok(beat(&row.ok_or_else(|| JournalError::Replaced(self.name.clone()))?)?)
        })
    }

    fn flush<'a>(&'a self, entries: &'a [Entry]) -> BoxFuture<'a, Vec<Fate>> {
        Box::pin(async move {
            let author = flush::Author { owner: self.owner(), fence: self.fence.load(Ordering::Acquire) };
            flush::flush(&self.writer, author, entries).await
        })
    }

    fn fence_off(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let fence = self.fence.load(Ordering::Acquire) + 1;
            sqlx::query(sql::RAISE_FENCE).bind(self.owner().0).bind(fence).execute(&self.writer).await?;
            self.fence.fetch_max(fence, Ordering::AcqRel);
            Ok(())
        })
    }

    fn positions<'a>(
        &'a self,
        sagas: &'a [SagaId],
    ) -> BoxFuture<'a, Result<BTreeMap<SagaId, Position>, JournalError>> {
        Box::pin(async move {
            let rows = sqlx::query(sql::POSITIONS).bind(ids(sagas)).fetch_all(&self.reader).await?;
            let position = |row: &PgRow| -> Result<(SagaId, Position), sqlx::Error> {
                let status: String = row.try_get("status")?;
                let unknown = || sqlx::Error::Decode(format!("no saga has status {status:?}").into());
                let position = Position {
                    owner: row.try_get::<Option<i64>, _>("owner")?.map(WorkerId),
                    epoch: Epoch(row.try_get("epoch")?),
                    seq: Seq(row.try_get("seq")?),
                    status: Status::parse(&status).ok_or_else(unknown)?,
                    due: row.try_get("due_at")?,
                    deadline: row.try_get("deadline_at")?,
                };
                Ok((SagaId(row.try_get("id")?), position))
            };
            Ok(rows.iter().map(position).collect::<Result<_, _>>()?)
        })
    }

    fn scan<'a>(
        &'a self,
        look: &'a Look,
        claimable: &'a Claimable,
    ) -> BoxFuture<'a, Result<Vec<Sighting>, JournalError>> {
        Box::pin(async move {
            let mut rows = sqlx::query(sql::SCAN)
                .bind(look.due_before)
                .bind(self.owner().0)
                .bind(&claimable.knows)
                .bind(&claimable.paused_kinds)
                .bind(look.limit)
                .bind(operate::SIGNAL)
                .fetch_all(&self.reader)
                .await?;
            if let Some(held) = &look.adopt_except {
                let forgotten =
                    sqlx::query(sql::FORGOTTEN).bind(self.owner().0).bind(ids(held)).bind(look.limit);
                rows.extend(forgotten.fetch_all(&self.reader).await?);
            }
            let sighting = |row: &PgRow| -> Result<Sighting, sqlx::Error> {
                Ok(Sighting { saga: SagaId(row.try_get("id")?), due: row.try_get("due_at")? })
            };
            Ok(rows.iter().map(sighting).collect::<Result<_, _>>()?)
        })
    }

    fn claim<'a>(
        &'a self,
        sagas: &'a [SagaId],
        claimable: &'a Claimable,
        now: DateTime<Utc>,
    ) -> BoxFuture<'a, Result<Vec<Claimed>, JournalError>> {
        Box::pin(self.take(sagas, claimable, now))
    }

    fn open_signals<'a>(
        &'a self,
        sagas: &'a [SagaId],
    ) -> BoxFuture<'a, Result<BTreeMap<SagaId, Vec<OpenSignal>>, JournalError>> {
        Box::pin(async move {
            let rows = sqlx::query(sql::OPEN_SIGNALS).bind(ids(sagas)).fetch_all(&self.reader).await?;
            let mut signals: BTreeMap<SagaId, Vec<OpenSignal>> = BTreeMap::new();
            for row in rows {
                signals.entry(SagaId(row.try_get("saga_id")?)).or_default().push(OpenSignal {
                    id: SignalId(row.try_get("id")?),
                    name: row.try_get("name")?,
                    payload: row.try_get("payload")?,
                });
            }
            Ok(signals)
        })
    }

    fn quarantine<'a>(
        &'a self,
        saga: SagaId,
        epoch: Epoch,
        reason: &'a str,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            let statement =
                sqlx::query(sql::QUARANTINE).bind(saga.0).bind(self.owner().0).bind(epoch.0).bind(reason);
            statement.bind(operate::SIGNAL).execute(&self.pool).await?;
            Ok(())
        })
    }

    fn send<'a>(
        &'a self,
        saga: SagaId,
        key: &'a str,
        name: &'a str,
        payload: &'a Value,
    ) -> BoxFuture<'a, Result<Sent, JournalError>> {
        Box::pin(async move { send(&mut *self.pool.acquire().await?, saga, key, name, payload).await })
    }

    fn hint<'a>(&'a self, sagas: &'a [SagaId]) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            let text = sagas.iter().map(|saga| saga.0.simple().to_string()).collect::<Vec<_>>().join(" ");
            sqlx::query(sql::HINT).bind(text).execute(&self.writer).await?;
            Ok(())
        })
    }

    fn hinted(&self) -> BoxFuture<'_, Result<Vec<SagaId>, JournalError>> {
        Box::pin(async move {
            // Taken out while in use: after an error the next call connects anew.
            let known = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut listener = if let Some(listener) = known {
                listener
            } else {
                let mut listener = PgListener::connect_with(&self.ear).await?;
                listener.listen(CHANNEL).await?;
                listener
            };
            let heard = listener.recv().await?;
            *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
            let ids = heard.payload().split(' ').filter_map(|id| uuid::Uuid::parse_str(id).ok());
            Ok(ids.map(SagaId).collect())
        })
    }

    fn audit(&self, now: DateTime<Utc>, retain_days: u32) -> BoxFuture<'_, Result<Audit, JournalError>> {
        Box::pin(self.look_over(now, retain_days))
    }

    fn resign(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            sqlx::query(sql::RESIGN).bind(self.owner().0).execute(&self.heart).await?;
            Ok(())
        })
    }
}

/// Brings schema `saga` up to date. Its bookkeeping is a table of its own, so other migrators may share the database.
pub async fn migrate(pool: &PgPool) -> Result<(), JournalError> {
    let mut migrator = sqlx::migrate!();
    migrator.create_schema("saga");
    migrator.dangerous_set_table_name("saga.migrations");
    migrator.run(pool).await?;
    Ok(())
}

fn beat(row: &PgRow) -> Result<Beat, sqlx::Error> {
    let (scopes, names): (Vec<String>, Vec<String>) = (row.try_get("scopes")?, row.try_get("names")?);
    let mut pauses = Pauses::default();
    for (scope, name) in scopes.into_iter().zip(names) {
        if scope == "KIND" { pauses.kinds.push(name) } else { pauses.participants.push(name) }
    }
    Ok(Beat { now: row.try_get("now")?, pauses, clock_order: ClockOrder(row.try_get("clock_order")?) })
}

/// The name of a day's partition.
fn partition(day: NaiveDate) -> String {
    format!("finished_{}", day.format("%Y%m%d"))
}

fn ids(sagas: &[SagaId]) -> Vec<uuid::Uuid> {
    sagas.iter().map(|saga| saga.0).collect()
}

fn interval(duration: Duration) -> PgInterval {
    let microseconds = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    PgInterval { months: 0, days: 0, microseconds }
}

const CHANNEL: &str = "holdfast_saga";
