//! The Postgres journal: every write is conditional, and zero rows have a name. All SQL of this crate is in
//! `journal/sql.rs`; decisions are not made here.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{
    PgConnection, PgPool, Row as _,
    postgres::{PgRow, types::PgInterval},
};

use crate::{
    event::Event,
    id::{Epoch, SagaId, Seq, Worker},
    state::{Phase, State},
};

mod sql;
mod writer;

use self::writer::Writer;
pub(crate) use self::writer::{Append, Appended};

/// The journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The database failed, or an answer was lost: what was asked may have happened.
    #[error("the journal's database failed")]
    Database(#[from] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("the journal's schema could not be migrated")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A value could not be written as JSON.
    #[error("a value could not be written as JSON")]
    Encode(#[from] serde_json::Error),
    /// Another process of this name was started; this one must stop.
    #[error("worker {0} was replaced by a newer process of the same name")]
    Replaced(String),
}

/// Where a saga's row stands, as anyone may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// RUNNING, UNDOING, COMPLETED, UNDONE or PARKED.
    pub status: Status,
    /// Nobody runs it: it ended, is parked, or waits for a time or a signal.
    pub at_rest: bool,
    /// How many events it has.
    pub seq: Seq,
}

/// The status of a saga's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Going forward.
    Running,
    /// Going backward.
    Undoing,
    /// Every step is done.
    Completed,
    /// Every step is undone.
    Undone,
    /// Waiting for an operator.
    Parked,
}

impl Status {
    /// Of this state.
    pub fn of(state: &State) -> Self {
        match (&state.parked, state.phase) {
            (Some(_), _) => Self::Parked,
            (None, Phase::Forward) => Self::Running,
            (None, Phase::Undoing) => Self::Undoing,
            (None, Phase::Completed) => Self::Completed,
            (None, Phase::Undone) => Self::Undone,
        }
    }

    /// As the column holds it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Undoing => "UNDOING",
            Self::Completed => "COMPLETED",
            Self::Undone => "UNDONE",
            Self::Parked => "PARKED",
        }
    }

    fn parse(column: &str) -> Result<Self, sqlx::Error> {
        [Self::Running, Self::Undoing, Self::Completed, Self::Undone, Self::Parked]
            .into_iter()
            .find(|status| status.as_str() == column)
            .ok_or_else(|| sqlx::Error::Decode(format!("no saga has status {column:?}").into()))
    }

    /// Whether nothing more will happen by itself.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Running | Self::Undoing)
    }
}

/// Who owns a saga, and how far it is.
pub(crate) struct Position {
    pub(crate) owner: Option<String>,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
}

/// A saga that wants to be looked at.
#[derive(Debug)]
pub(crate) struct Sighting {
    pub(crate) saga: SagaId,
    /// Not before then; `None`: now.
    pub(crate) due: Option<DateTime<Utc>>,
}

/// A saga that is now ours.
pub(crate) struct Claimed {
    pub(crate) saga: SagaId,
    pub(crate) kind: String,
    pub(crate) version: i32,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
    /// Claims since the last progress, this one included.
    pub(crate) claims: i32,
    /// Somebody ran it before and did not give it up.
    pub(crate) interrupted: bool,
}

/// A signal nobody has taken in yet.
pub(crate) struct OpenSignal {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) payload: Value,
}

pub(crate) struct Journal {
    pool: PgPool,
    worker: Worker,
    owner: String,
    writer: Writer,
}

impl Journal {
    pub(crate) fn new(pool: PgPool, worker: Worker) -> Self {
        let owner = worker.to_string();
        let writer = Writer::start(&pool, owner.clone());
        Self { pool, worker, owner, writer }
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Takes the lease under this worker's name; a predecessor's sagas are free from here on.
    pub(crate) async fn register(&self, lease: Duration) -> Result<DateTime<Utc>, JournalError> {
        let row = sqlx::query(sql::REGISTER)
            .bind(&self.owner)
            .bind(self.worker.name())
            .bind(interval(lease))
            .fetch_one(&self.pool)
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Renews the lease and reads the clock. Zero rows: [`JournalError::Replaced`].
    pub(crate) async fn heartbeat(&self, lease: Duration) -> Result<DateTime<Utc>, JournalError> {
        let row = sqlx::query(sql::HEARTBEAT)
            .bind(&self.owner)
            .bind(interval(lease))
            .fetch_optional(&self.pool)
            .await?;
        let row = row.ok_or_else(|| JournalError::Replaced(self.owner.clone()))?;
        Ok(row.try_get(0)?)
    }

    /// Writes the first event in the caller's transaction, owned by this worker.
    pub(crate) async fn start(
        &self,
        connection: &mut PgConnection,
        saga: SagaId,
        kind: &str,
        version: i32,
        first: &Event,
    ) -> Result<State, JournalError> {
        let state = State::start(first).expect("the engine starts sagas with Started");
        sqlx::query(sql::START)
            .bind(saga.0)
            .bind(kind)
            .bind(version)
            .bind(&self.owner)
            .bind(state.deadline)
            .bind(serde_json::to_value(&state.attributes)?)
            .bind(&state.traceparent)
            .bind(serde_json::to_value(first)?)
            .execute(connection)
            .await?;
        Ok(state)
    }

    /// Appends under owner, epoch and seq, with the next flush.
    pub(crate) async fn append(&self, append: Arc<Append>) -> Appended {
        self.writer.append(append).await
    }

    /// Gives up a saga that needs nothing recorded, until `due`.
    pub(crate) async fn release(
        &self,
        saga: SagaId,
        epoch: Epoch,
        seq: Seq,
        due: DateTime<Utc>,
    ) -> Result<Appended, JournalError> {
        let done = sqlx::query(sql::RELEASE)
            .bind(saga.0)
            .bind(&self.owner)
            .bind(epoch.0)
            .bind(seq.0)
            .bind(due)
            .execute(&self.pool)
            .await?;
        Ok(if done.rows_affected() == 0 { Appended::No } else { Appended::Yes })
    }

    pub(crate) async fn position(&self, saga: SagaId) -> Result<Option<Position>, JournalError> {
        let row = sqlx::query(sql::POSITION).bind(saga.0).fetch_optional(&self.pool).await?;
        row.map(|row| {
            Ok(Position {
                owner: row.try_get("owner")?,
                epoch: Epoch(row.try_get("epoch")?),
                seq: Seq(row.try_get("seq")?),
            })
        })
        .transpose()
    }

    pub(crate) async fn standing(&self, saga: SagaId) -> Result<Option<Standing>, JournalError> {
        let row = sqlx::query(sql::POSITION).bind(saga.0).fetch_optional(&self.pool).await?;
        row.map(|row| {
            let status = Status::parse(row.try_get("status")?)?;
            let owner: Option<String> = row.try_get("owner")?;
            Ok(Standing { status, at_rest: owner.is_none(), seq: Seq(row.try_get("seq")?) })
        })
        .transpose()
    }

    /// Sagas that are due within `window`, whose worker is dead, that are ours but not among `held`, or that have
    /// signals. At most `limit` of each.
    pub(crate) async fn scan(
        &self,
        window: Duration,
        held: &[uuid::Uuid],
        limit: i64,
    ) -> Result<Vec<Sighting>, JournalError> {
        let rows = sqlx::query(sql::SCAN)
            .bind(interval(window))
            .bind(&self.owner)
            .bind(held)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
        let sighting = |row: &PgRow| -> Result<Sighting, sqlx::Error> {
            Ok(Sighting { saga: SagaId(row.try_get("id")?), due: row.try_get("due_at")? })
        };
        Ok(rows.iter().map(sighting).collect::<Result<_, _>>()?)
    }

    /// Takes ownership of those that nobody living owns.
    pub(crate) async fn claim(&self, sagas: &[SagaId]) -> Result<Vec<Claimed>, JournalError> {
        let ids: Vec<_> = sagas.iter().map(|saga| saga.0).collect();
        let rows = sqlx::query(sql::CLAIM).bind(&self.owner).bind(ids).fetch_all(&self.pool).await?;
        let claimed = |row: &PgRow| -> Result<Claimed, sqlx::Error> {
            Ok(Claimed {
                saga: SagaId(row.try_get("id")?),
                kind: row.try_get("kind")?,
                version: row.try_get("version")?,
                epoch: Epoch(row.try_get("epoch")?),
                seq: Seq(row.try_get("seq")?),
                claims: row.try_get("claims")?,
                interrupted: row.try_get("interrupted")?,
            })
        };
        Ok(rows.iter().map(claimed).collect::<Result<_, _>>()?)
    }

    /// The events of these sagas, in order. An unreadable one is an error of its saga alone.
    pub(crate) async fn events(
        &self,
        sagas: &[SagaId],
    ) -> Result<BTreeMap<SagaId, Result<Vec<Event>, String>>, JournalError> {
        let ids: Vec<_> = sagas.iter().map(|saga| saga.0).collect();
        let rows = sqlx::query(sql::EVENTS).bind(ids).fetch_all(&self.pool).await?;
        let mut by_saga: BTreeMap<SagaId, Result<Vec<Event>, String>> = BTreeMap::new();
        for row in rows {
            let saga = SagaId(row.try_get("saga_id")?);
            let (seq, event): (i64, Value) = (row.try_get("seq")?, row.try_get("event")?);
            let events = by_saga.entry(saga).or_insert_with(|| Ok(Vec::new()));
            let Ok(read) = events else { continue };
            match serde_json::from_value(event) {
                Ok(event) if seq == Seq::default().plus(read.len() + 1).0 => read.push(event),
                Ok(_) => *events = Err(format!("event {} is missing", read.len() + 1)),
                Err(error) => *events = Err(format!("event {seq} cannot be read: {error}")),
            }
        }
        Ok(by_saga)
    }

    /// Parks a saga whose journal cannot be folded, by its row alone.
    pub(crate) async fn quarantine(
        &self,
        saga: SagaId,
        epoch: Epoch,
        reason: &str,
    ) -> Result<(), JournalError> {
        sqlx::query(sql::QUARANTINE)
            .bind(saga.0)
            .bind(&self.owner)
            .bind(epoch.0)
            .bind(reason)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Stores a signal once per key. `false`: there is no such saga, or it has ended.
    pub(crate) async fn send(
        connection: &mut PgConnection,
        saga: SagaId,
        key: &str,
        name: &str,
        payload: &Value,
    ) -> Result<bool, JournalError> {
        let row = sqlx::query(sql::SEND)
            .bind(saga.0)
            .bind(key)
            .bind(name)
            .bind(payload)
            .fetch_one(connection)
            .await?;
        Ok(row.try_get(0)?)
    }

    pub(crate) async fn open_signals(&self, saga: SagaId) -> Result<Vec<OpenSignal>, JournalError> {
        let rows = sqlx::query(sql::OPEN_SIGNALS).bind(saga.0).fetch_all(&self.pool).await?;
        let signal = |row: &PgRow| -> Result<OpenSignal, sqlx::Error> {
            Ok(OpenSignal {
                id: row.try_get("id")?,
                name: row.try_get("name")?,
                payload: row.try_get("payload")?,
            })
        };
        Ok(rows.iter().map(signal).collect::<Result<_, _>>()?)
    }

    /// Frees everything this worker owns, and its lease.
    pub(crate) async fn resign(&self) -> Result<(), JournalError> {
        sqlx::query(sql::RESIGN).bind(&self.owner).execute(&self.pool).await?;
        Ok(())
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

fn interval(duration: Duration) -> PgInterval {
    let microseconds = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    PgInterval { months: 0, days: 0, microseconds }
}
