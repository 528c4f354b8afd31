//! The journal in Postgres. Its SQL is in `postgres/sql.rs`, what operators ask beside it in `postgres/operations.rs`, the
//! flush in `postgres/flush.rs`, the days of what has ended in `postgres/partitions.rs`.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde_json::Value;
use sqlx::{
    PgConnection, PgPool, Postgres, Row as _,
    postgres::{PgArguments, PgListener, PgPoolOptions, PgRow, types::PgInterval},
    query::Query,
};

use super::{
    Audit, Beat, Claimable, Claimed, ClockOrder, Entry, Fate, Journal, JournalError, Look, OpenSignal,
    Pauses, Position, Sent, Sighting, SignalId, Status,
};
use crate::{
    definition::Definition,
    event::Event,
    id::{Epoch, SagaId, Seq, WorkerId},
    operate,
    state::State,
};

mod claims;
mod flush;
pub(crate) mod operations;
mod own;
mod partitions;
mod sql;

use self::own::{Own, within};

/// Most signals one saga may hold in its life, and most orders of operators besides: more is a sender gone wild.
const SIGNALS_MAX: i64 = 1_000;
/// Two claims, a read of signals, a scan.
const READERS: usize = 4;
/// A call that takes longer is given up: its connection is closed, and what it did is unknown.
const CALL_MAX: Duration = Duration::from_secs(10);
/// A heartbeat is tried again while its lease still lives.
const BEAT_MAX: Duration = Duration::from_secs(3);
/// The second look reads every row that waits, and there may be millions.
const LOOK_MAX: Duration = Duration::from_mins(1);

/// One worker's journal.
pub(crate) struct PgJournal {
    name: String,
    owner: OnceLock<WorkerId>,
    /// Under which number starts are sent.
    fence: AtomicI64,
    /// The caller's pool: signals only.
    pool: PgPool,
    /// Claims and reads, with plans pinned as the writer's are.
    reader: Own,
    /// The writer's own connection.
    writer: Own,
    /// The heartbeat's own connection: a lease is not lost because handlers use up the pool.
    heart: Own,
    /// The second look's own connection: tables that are made and dropped wait for readers.
    keeper: Own,
    /// The listener's own connection.
    ear: PgPool,
    listener: Mutex<Option<PgListener>>,
}

impl PgJournal {
    pub(crate) fn new(pool: PgPool, name: String) -> Self {
        let options = pool.connect_options().as_ref().clone();
        let ear = PgPoolOptions::new().max_connections(1).connect_lazy_with(options.clone());
        let (heart, keeper) = (Own::new(options.clone(), 1), Own::new(options.clone(), 1));
        let pinned = options.options(flush::SESSION);
        let (writer, reader) = (Own::new(pinned.clone(), 1), Own::new(pinned, READERS));
        Self {
            name,
            owner: OnceLock::new(),
            fence: AtomicI64::new(0),
            pool,
            reader,
            writer,
            heart,
            keeper,
            ear,
            listener: Mutex::new(None),
        }
    }

    /// Reads, on a connection with pinned plans.
    async fn read(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut reader = self.reader.take().await?;
        let rows = within(CALL_MAX, query.fetch_all(&mut *reader)).await?;
        reader.give_back();
        Ok(rows)
    }

    async fn look_over(&self, now: DateTime<Utc>, retain_days: u32) -> Result<Audit, JournalError> {
        let owner = self.owner().0;
        let known_again = serde_json::to_value(operate::Order::known_again())?;
        let mut keeper = self.keeper.take().await?;
        let connection = &mut *keeper;
        let found = within(LOOK_MAX, async {
            let mended = sqlx::query(sql::MEND_OVERSLEEPING).execute(&mut *connection).await?;
            let parked =
                sqlx::query(sql::PARK_UNKNOWN).bind(now).bind(owner).execute(&mut *connection).await?;
            let revive = sqlx::query(sql::REVIVE_KNOWN).bind(owner).bind(operate::SIGNAL).bind(known_again);
            revive.execute(&mut *connection).await?;
            let overdue: i64 =
                sqlx::query_scalar(sql::COUNT_OVERDUE).bind(now).fetch_one(&mut *connection).await?;
            sqlx::query(sql::DROP_ORPHANS).execute(&mut *connection).await?;
            sqlx::query(sql::FORGET_WORKERS).execute(&mut *connection).await?;
            Ok(Audit {
                overdue: overdue.unsigned_abs(),
                oversleeping: mended.rows_affected(),
                unknown: parked.rows_affected(),
            })
        })
        .await?;
        keeper.give_back();
        self.keep_days(now.date_naive(), retain_days).await;
        Ok(found)
    }
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
        .bind(operate::SIGNAL)
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
            let mut heart = self.heart.take().await?;
            let today = within(CALL_MAX, sqlx::query_scalar(sql::TODAY).fetch_one(&mut *heart)).await?;
            self.make_partitions(today).await;
            let register = sqlx::query(sql::REGISTER)
                .bind(&self.name)
                .bind(interval(lease))
                .bind(knows)
                .bind(operate::SIGNAL)
                .bind(serde_json::to_value(operate::Order::known_again())?);
            let row = within(CALL_MAX, register.fetch_one(&mut *heart)).await?;
            heart.give_back();
            let _ = self.owner.set(WorkerId(row.try_get("id")?));
            Ok(beat(&row)?)
        })
    }

    fn heartbeat(&self, lease: Duration) -> BoxFuture<'_, Result<Beat, JournalError>> {
        Box::pin(async move {
            let mut heart = self.heart.take().await?;
            let beats = sqlx::query(sql::HEARTBEAT).bind(self.owner().0).bind(interval(lease));
            let row = within(BEAT_MAX, beats.fetch_optional(&mut *heart)).await?;
            heart.give_back();
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
            let raise = sqlx::query(sql::RAISE_FENCE).bind(self.owner().0).bind(fence);
            let mut writer = self.writer.take().await?;
            within(CALL_MAX, raise.execute(&mut *writer)).await?;
            writer.give_back();
            self.fence.fetch_max(fence, Ordering::AcqRel);
            Ok(())
        })
    }

    fn positions<'a>(
        &'a self,
        sagas: &'a [SagaId],
    ) -> BoxFuture<'a, Result<BTreeMap<SagaId, Position>, JournalError>> {
        Box::pin(async move {
            let rows = self.read(sqlx::query(sql::POSITIONS).bind(ids(sagas))).await?;
            let position = |row: &PgRow| -> Result<(SagaId, Position), sqlx::Error> {
                let position = Position {
                    owner: row.try_get::<Option<i64>, _>("owner")?.map(WorkerId),
                    epoch: Epoch(row.try_get("epoch")?),
                    seq: Seq(row.try_get("seq")?),
                    status: status_of(row)?,
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
            let scan = sqlx::query(sql::SCAN)
                .bind(look.due_before)
                .bind(self.owner().0)
                .bind(&claimable.knows)
                .bind(&claimable.paused_kinds)
                .bind(look.limit)
                .bind(operate::SIGNAL)
                .bind(claimable.kinds());
            let rows = self.read(scan).await?;
            let sighting = |row: &PgRow| -> Result<Sighting, sqlx::Error> {
                Ok(Sighting { saga: SagaId(row.try_get("id")?), due: row.try_get("due_at")? })
            };
            let mut sightings: Vec<_> = rows.iter().map(sighting).collect::<Result<_, _>>()?;
            if let Some(held) = &look.adopt_except {
                let owned = sqlx::query(sql::FORGOTTEN).bind(self.owner().0).bind(look.limit);
                for row in self.read(owned).await? {
                    let sighting = sighting(&row)?;
                    if !held.contains(&sighting.saga) {
                        sightings.push(sighting);
                    }
                }
            }
            Ok(sightings)
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
            let rows =
                self.read(sqlx::query(sql::OPEN_SIGNALS).bind(ids(sagas)).bind(operate::SIGNAL)).await?;
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
            let owner = self.owner().0;
            let park = sqlx::query(sql::QUARANTINE).bind(saga.0).bind(owner).bind(epoch.0).bind(reason);
            let mut reader = self.reader.take().await?;
            within(CALL_MAX, park.bind(operate::SIGNAL).execute(&mut *reader)).await?;
            reader.give_back();
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
            let mut writer = self.writer.take().await?;
            within(CALL_MAX, sqlx::query(sql::HINT).bind(text).execute(&mut *writer)).await?;
            writer.give_back();
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
                listener.listen(sql::CHANNEL).await?;
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
            let mut heart = self.heart.take().await?;
            within(CALL_MAX, sqlx::query(sql::RESIGN).bind(self.owner().0).execute(&mut *heart)).await?;
            heart.give_back();
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

fn status_of(row: &PgRow) -> Result<Status, sqlx::Error> {
    let status: String = row.try_get("status")?;
    Status::parse(&status).ok_or_else(|| sqlx::Error::Decode(format!("no saga has status {status:?}").into()))
}

fn ids(sagas: &[SagaId]) -> Vec<uuid::Uuid> {
    sagas.iter().map(|saga| saga.0).collect()
}

fn interval(duration: Duration) -> PgInterval {
    let microseconds = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    PgInterval { months: 0, days: 0, microseconds }
}
