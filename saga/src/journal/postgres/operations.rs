//! What operators ask of the database. Its SQL is in `operations/sql.rs`; what it means is said in `operations.rs` of the
//! crate.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, PgPool, Postgres, Row as _, Transaction, postgres::PgRow};

use super::{Sent, claims::read, interval, send, status_of};
use crate::{
    event::Event,
    id::{Epoch, SagaId, Seq},
    journal::{JournalError, Status},
    operate::{self, Order, Pause, Scope},
    operations::{Filter, Found, JournalEntry, Page, Saga},
};

mod sql;

/// Most events read at once.
const EVENTS_MAX: i64 = 1_000;

/// Everything that is known of one saga at one moment.
pub(crate) struct Known {
    pub(crate) saga: Saga,
    /// Its journal, or why it cannot be read.
    pub(crate) events: Result<Vec<Event>, String>,
    pub(crate) open_signals: Vec<String>,
    pub(crate) pauses: Vec<Pause>,
    /// A live worker has its definition.
    pub(crate) has_worker: bool,
    pub(crate) now: DateTime<Utc>,
}

/// A line of the log of orders. Two requests of one id are the same if their lines are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) request_id: String,
    pub(crate) verb: &'static str,
    pub(crate) scope: &'static str,
    pub(crate) name: String,
    pub(crate) actor: String,
    pub(crate) reason: String,
    pub(crate) detail: String,
}

/// Whether a request id was used before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    New,
    /// By the same request.
    Again,
    /// By another one.
    Reused,
}

/// Where an order to one saga is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// This event took it in.
    TakenBy(Seq),
    /// The saga was parked before it could hear it.
    Unheard,
    /// It is gone, as all signals of a saga that ends.
    Gone,
}

/// How an order was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Stored,
    /// Stored before, by the same request.
    Before,
    Reused,
    Ended,
    Full,
}

pub(crate) async fn list(pool: &PgPool, filter: &Filter, page: Page) -> Result<Found, JournalError> {
    let limit = i64::from(page.size) + 1;
    let (name, value) = filter.attribute.as_ref().map(|(name, value)| (name, value)).unzip();
    let mut transaction = snapshot(pool).await?;
    // Planned anew each time: which filters are given decides which plan is good.
    let rows = sqlx::query(sql::LIST)
        .bind(limit)
        .bind(page.after.map(|saga| saga.0))
        .bind(&filter.kind)
        .bind(filter.status.map(Status::as_str))
        .bind(name)
        .bind(value)
        .bind(filter.older_than.map(interval))
        .bind(&filter.error_contains)
        .persistent(false)
        .fetch_all(&mut *transaction)
        .await?;
    transaction.commit().await?;
    let mut sagas = rows.iter().map(saga_of).collect::<Result<Vec<_>, _>>()?;
    let is_last = sagas.len() <= usize::from(page.size);
    sagas.truncate(usize::from(page.size));
    Ok(Found { sagas, is_last })
}

pub(crate) async fn row(pool: &PgPool, saga: SagaId) -> Result<Option<Saga>, JournalError> {
    one(&mut *pool.acquire().await?, saga).await
}

pub(crate) async fn entries(
    pool: &PgPool,
    saga: SagaId,
    after: Seq,
) -> Result<Option<(Saga, Vec<JournalEntry>)>, JournalError> {
    let mut transaction = snapshot(pool).await?;
    let row = one(&mut transaction, saga).await?;
    let entries = entries_after(&mut transaction, saga, after, EVENTS_MAX).await?;
    transaction.commit().await?;
    Ok(row.map(|row| (row, entries)))
}

pub(crate) async fn known(pool: &PgPool, saga: SagaId) -> Result<Option<Known>, JournalError> {
    let mut transaction = snapshot(pool).await?;
    let Some(row) = one(&mut transaction, saga).await? else { return Ok(None) };
    let mut events = journal(&mut transaction, saga).await?;
    let number = events.as_ref().map_or(row.seq.0, |events| i64::try_from(events.len()).unwrap_or(i64::MAX));
    if number != row.seq.0 {
        events = Err(format!("its row is at {}, its journal has {number} events", row.seq.0));
    }
    let open_signals = sqlx::query_scalar(sql::OPEN).bind(saga.0).fetch_all(&mut *transaction).await?;
    let pauses = pauses_of(&mut transaction).await?;
    let tag = format!("{}@{}", row.kind, row.version);
    let has_worker = sqlx::query_scalar(sql::IS_KNOWN).bind(tag).fetch_one(&mut *transaction).await?;
    let now = sqlx::query_scalar(sql::NOW).fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Some(Known { saga: row, events, open_signals, pauses, has_worker, now }))
}

pub(crate) async fn pauses(pool: &PgPool) -> Result<Vec<Pause>, JournalError> {
    pauses_of(&mut *pool.acquire().await?).await
}

/// Whether this request was made before.
pub(crate) async fn use_of(pool: &PgPool, line: &Line) -> Result<Use, JournalError> {
    logged(&mut *pool.acquire().await?, line).await
}

/// Stores an order to one saga, once per request id.
pub(crate) async fn take(
    pool: &PgPool,
    saga: SagaId,
    line: &Line,
    order: &Order,
) -> Result<Taken, JournalError> {
    let order = serde_json::to_value(order)?;
    let mut transaction = bounded(pool).await?;
    match log(&mut transaction, line).await? {
        Use::New => {}
        Use::Again => return Ok(Taken::Before),
        Use::Reused => return Ok(Taken::Reused),
    }
    match send(&mut transaction, saga, &key(&line.request_id), operate::SIGNAL, &order).await? {
        Sent::Stored => {}
        // Nothing stays of it: neither the line.
        Sent::Ended => return Ok(Taken::Ended),
        Sent::Full => return Ok(Taken::Full),
    }
    transaction.commit().await?;
    Ok(Taken::Stored)
}

/// Where the order of this request is.
pub(crate) async fn way_of(pool: &PgPool, saga: SagaId, request_id: &str) -> Result<Way, JournalError> {
    let found: Option<Option<i64>> =
        sqlx::query_scalar(sql::SIGNAL).bind(saga.0).bind(key(request_id)).fetch_optional(pool).await?;
    Ok(match found {
        None => Way::Gone,
        Some(None) => Way::Open,
        Some(Some(0)) => Way::Unheard,
        Some(Some(seq)) => Way::TakenBy(Seq(seq)),
    })
}

/// The event of this seq; `None`: there is none, or none that can be read.
pub(crate) async fn event(pool: &PgPool, saga: SagaId, seq: Seq) -> Result<Option<Event>, JournalError> {
    let entries = entries_after(&mut *pool.acquire().await?, saga, Seq(seq.0 - 1), 1).await?;
    Ok(entries.first().and_then(|entry| serde_json::from_str(&entry.json).ok()))
}

/// What became of an order, by the whole journal.
pub(crate) async fn operated(
    pool: &PgPool,
    saga: SagaId,
    request_id: &str,
) -> Result<Option<Event>, JournalError> {
    let mut transaction = snapshot(pool).await?;
    let events = journal(&mut transaction, saga).await?.unwrap_or_default();
    transaction.commit().await?;
    let is_it = |event: &Event| matches!(event, Event::Operated { request_id: of, .. } if of == request_id);
    Ok(events.into_iter().find(is_it))
}

/// Pauses, or ends a pause, once per request id. Gives all that is paused then.
pub(crate) async fn set_pause(
    pool: &PgPool,
    line: &Line,
    scope: &Scope,
) -> Result<(Use, Vec<Pause>), JournalError> {
    let mut transaction = bounded(pool).await?;
    sqlx::query(sql::ONE_BY_ONE).execute(&mut *transaction).await?;
    let used = log(&mut transaction, line).await?;
    let (column, name) = columns(scope);
    match (used, line.verb, scope) {
        (Use::New, _, Scope::Clock) | (Use::Again | Use::Reused, _, _) => {}
        (Use::New, "pause", _) => {
            let statement = sqlx::query(sql::PAUSE).bind(column).bind(name);
            statement.bind(&line.actor).bind(&line.reason).execute(&mut *transaction).await?;
        }
        (Use::New, _, _) => {
            sqlx::query(sql::RESUME).bind(column).bind(name).execute(&mut *transaction).await?;
        }
    }
    let pauses = pauses_of(&mut transaction).await?;
    transaction.commit().await?;
    Ok((used, pauses))
}

/// A scope as the columns hold it.
pub(crate) fn columns(scope: &Scope) -> (&'static str, &str) {
    match scope {
        Scope::Kind(kind) => ("KIND", kind),
        Scope::Participant(participant) => ("PARTICIPANT", participant),
        Scope::Clock => ("CLOCK", ""),
    }
}

/// Other signals have other keys: a caller's request id may be any text.
fn key(request_id: &str) -> String {
    format!("operator/{request_id}")
}

async fn snapshot(pool: &PgPool) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let mut transaction = pool.begin_with(sql::SNAPSHOT).await?;
    sqlx::query(sql::BOUND).execute(&mut *transaction).await?;
    Ok(transaction)
}

async fn bounded(pool: &PgPool) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    sqlx::query(sql::BOUND).execute(&mut *transaction).await?;
    Ok(transaction)
}

async fn one(connection: &mut PgConnection, saga: SagaId) -> Result<Option<Saga>, JournalError> {
    let row = sqlx::query(sql::ONE).bind(1_i64).bind(saga.0).fetch_optional(connection).await?;
    Ok(row.as_ref().map(saga_of).transpose()?)
}

/// A saga's events, or why they cannot be read.
async fn journal(
    connection: &mut PgConnection,
    saga: SagaId,
) -> Result<Result<Vec<Event>, String>, JournalError> {
    let Some(row) = sqlx::query(sql::JOURNAL).bind(saga.0).fetch_optional(&mut *connection).await? else {
        return Ok(Ok(Vec::new()));
    };
    if let Some(history) = row.try_get::<Option<String>, _>("history")? {
        return Ok(read_history(&history));
    }
    let started = row.try_get("started")?;
    let parts = sqlx::query(super::sql::EVENTS).bind(vec![saga.0]).fetch_all(connection).await?;
    let part = |row: &PgRow| Ok::<_, sqlx::Error>((row.try_get("seq")?, row.try_get("events")?));
    let parts = parts.iter().map(part).collect::<Result<_, _>>()?;
    Ok(read(started, parts).map(|journal| journal.events))
}

fn read_history(history: &str) -> Result<Vec<Event>, String> {
    let events: Vec<Value> =
        serde_json::from_str(history).map_err(|error| format!("its history cannot be read: {error}"))?;
    let event = |(event, seq): (Value, i64)| {
        serde_json::from_value(event).map_err(|error| format!("event {seq} cannot be read: {error}"))
    };
    events.into_iter().zip(1..).map(event).collect()
}

async fn entries_after(
    connection: &mut PgConnection,
    saga: SagaId,
    after: Seq,
    limit: i64,
) -> Result<Vec<JournalEntry>, JournalError> {
    let statement = sqlx::query(sql::EVENTS).bind(saga.0).bind(after.0).bind(limit);
    let rows = statement.fetch_all(connection).await?;
    let entry = |row: &PgRow| -> Result<JournalEntry, sqlx::Error> {
        Ok(JournalEntry {
            seq: Seq(row.try_get("seq")?),
            json: row.try_get("event")?,
            written_at: row.try_get("at")?,
        })
    };
    Ok(rows.iter().map(entry).collect::<Result<_, _>>()?)
}

async fn log(connection: &mut PgConnection, line: &Line) -> Result<Use, JournalError> {
    let written = sqlx::query(sql::LOG)
        .bind(&line.request_id)
        .bind(line.verb)
        .bind(line.scope)
        .bind(&line.name)
        .bind(&line.actor)
        .bind(&line.reason)
        .bind(&line.detail)
        .execute(&mut *connection)
        .await?;
    if written.rows_affected() == 1 { Ok(Use::New) } else { logged(connection, line).await }
}

async fn logged(connection: &mut PgConnection, line: &Line) -> Result<Use, JournalError> {
    let row = sqlx::query(sql::LOGGED).bind(&line.request_id).fetch_optional(connection).await?;
    let Some(row) = row else { return Ok(Use::New) };
    let text = |column: &str| row.try_get::<String, _>(column);
    let known =
        [text("verb")?, text("scope")?, text("name")?, text("actor")?, text("reason")?, text("detail")?];
    let asked = [line.verb, line.scope, &line.name, &line.actor, &line.reason, &line.detail];
    Ok(if known == asked { Use::Again } else { Use::Reused })
}

async fn pauses_of(connection: &mut PgConnection) -> Result<Vec<Pause>, JournalError> {
    let rows = sqlx::query(sql::PAUSES).fetch_all(connection).await?;
    let pause = |row: &PgRow| -> Result<Pause, sqlx::Error> {
        let (scope, name): (String, String) = (row.try_get("scope")?, row.try_get("name")?);
        Ok(Pause {
            scope: if scope == "KIND" { Scope::Kind(name) } else { Scope::Participant(name) },
            actor: row.try_get("actor")?,
            reason: row.try_get("reason")?,
            since: row.try_get("since")?,
        })
    };
    Ok(rows.iter().map(pause).collect::<Result<_, _>>()?)
}

fn saga_of(row: &PgRow) -> Result<Saga, sqlx::Error> {
    let claims: i32 = row.try_get("claims")?;
    let attributes: BTreeMap<String, Value> = serde_json::from_value(row.try_get("attributes")?)
        .map_err(|error| sqlx::Error::Decode(error.into()))?;
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(Saga {
        saga: SagaId(row.try_get("id")?),
        kind: row.try_get("kind")?,
        version: row.try_get("version")?,
        status: status_of(row)?,
        seq: Seq(row.try_get("seq")?),
        epoch: Epoch(row.try_get("epoch")?),
        owner: row.try_get("owner")?,
        lease_until: row.try_get("lease_until")?,
        due_at: row.try_get("due_at")?,
        deadline: row.try_get("deadline_at")?,
        claims: u32::try_from(claims).unwrap_or(0),
        last_error: row.try_get("last_error")?,
        attributes: attributes.into_iter().map(|(name, value)| (name, text(value))).collect(),
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        finished_at: row.try_get("finished_at")?,
        traceparent: row.try_get("traceparent")?,
    })
}
