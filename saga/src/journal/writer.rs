//! The journal's one writer: appends of all running sagas go out together. What arrived while a flush was under way
//! goes out in the next one, as a few statements in one transaction; an idle writer flushes at once and waits for
//! no company. A flush that fails is bisected, so that one bad row never fails its neighbours.

use std::{ops::Range, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::{Status, sql};
use crate::{
    event::Event,
    id::{Epoch, SagaId, Seq},
    side_rows::{Change, SideRows},
    state::State,
};

/// Most appends that wait for a flush; past it, sagas wait to hand theirs in.
const WAITING_MAX: usize = 8_192;
/// Most appends of one transaction.
const FLUSH_MAX: usize = 256;
/// A row that somebody else holds must not hold up the whole flush for longer.
const LOCK_TIMEOUT: &str = "200ms";

/// What an append moves.
pub(crate) struct Append {
    pub(crate) saga: SagaId,
    pub(crate) epoch: Epoch,
    /// The seq it continues.
    pub(crate) after: Seq,
    pub(crate) events: Vec<Event>,
    /// With the events taken in.
    pub(crate) state: State,
    /// Give the saga up until then, or for good when it ended.
    pub(crate) release: Option<DateTime<Utc>>,
    pub(crate) signals_taken: Vec<i64>,
    /// The caller's rows that ride along.
    pub(crate) side_rows: Option<Arc<dyn SideRows>>,
}

/// How an append ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Appended {
    Yes,
    /// The row was not where the append expected it. Read it again.
    No,
    /// The flush failed, or its commit was not answered. Only the row knows.
    Unknown,
    /// The database, or the caller's side rows, refused this very append, for this reason.
    Refused(String),
}

/// Hands appends to the writer. Cheap to clone.
#[derive(Clone)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
}

struct Job {
    append: Arc<Append>,
    done: oneshot::Sender<Appended>,
}

impl Writer {
    /// Starts the writer of this owner on a connection of its own, whose plans are pinned: a plan that was made while
    /// a table was small must not stay when it is large.
    pub(super) fn start(pool: &PgPool, owner: String) -> Self {
        let options = pool.connect_options().as_ref().clone().options([
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
            ("enable_seqscan", "off"),
            ("jit", "off"),
            ("lock_timeout", LOCK_TIMEOUT),
        ]);
        let connection = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .connect_lazy_with(options);
        let (jobs, waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(write(connection, owner, waiting));
        Self { jobs }
    }

    /// Appends with the next flush.
    pub(super) async fn append(&self, append: Arc<Append>) -> Appended {
        let (done, answer) = oneshot::channel();
        if self.jobs.send(Job { append, done }).await.is_err() {
            return Appended::Unknown;
        }
        answer.await.unwrap_or(Appended::Unknown)
    }
}

/// Flushes what waits until every handle is gone.
async fn write(pool: PgPool, owner: String, mut waiting: mpsc::Receiver<Job>) {
    let mut jobs = Vec::with_capacity(FLUSH_MAX);
    while waiting.recv_many(&mut jobs, FLUSH_MAX).await > 0 {
        // In the order of ids, as every writer does.
        jobs.sort_by_key(|job: &Job| job.append.saga);
        let appends: Vec<_> = jobs.iter().map(|job| Arc::clone(&job.append)).collect();
        let outcomes = flush(&pool, &owner, &appends).await;
        for (job, outcome) in jobs.drain(..).zip(outcomes) {
            // A saga that does not wait any more reads its row.
            let _ = job.done.send(outcome);
        }
    }
}

/// Writes all appends, halving what the database refuses until the refused ones stand alone.
async fn flush(pool: &PgPool, owner: &str, appends: &[Arc<Append>]) -> Vec<Appended> {
    let mut outcomes = vec![Appended::Unknown; appends.len()];
    let mut open: Vec<Range<usize>> = std::iter::once(0..appends.len()).collect();
    while let Some(part) = open.pop() {
        let error = match transact(pool, owner, &appends[part.clone()]).await {
            Ok(written) => {
                outcomes[part].clone_from_slice(&written);
                continue;
            }
            Err(error) => error,
        };
        match blame(&error) {
            Blame::Row | Blame::InTheWay if part.len() > 1 => {
                let middle = part.start + part.len() / 2;
                open.extend([middle..part.end, part.start..middle]);
            }
            Blame::Row => outcomes[part.start] = Appended::Refused(error.to_string()),
            Blame::InTheWay | Blame::Session => {
                tracing::warn!(%error, appends = part.len(), "a flush of the journal failed or its fate is unknown");
            }
        }
    }
    outcomes
}

/// What a failed flush failed of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// A row that cannot be written, now or later.
    Row,
    /// Somebody holds a row, or it was changed under us: waiting helps.
    InTheWay,
    /// The connection or the server. No row is to blame, so no saga may be parked for it.
    Session,
}

/// Only what is known to be a row's fault is a row's fault.
fn blame(error: &sqlx::Error) -> Blame {
    use sqlx::Error::{ColumnDecode, ColumnNotFound, Database, Decode, Encode, RowNotFound};
    match error {
        RowNotFound | Decode(_) | Encode(_) | ColumnDecode { .. } | ColumnNotFound(_) => Blame::Row,
        Database(database) => match database.code().as_deref() {
            // Data exception, constraint violation.
            Some(code) if code.starts_with("22") || code.starts_with("23") => Blame::Row,
            // Serialization failure or deadlock, lock timeout.
            Some(code) if code.starts_with("40") || code == "55P03" => Blame::InTheWay,
            _ => Blame::Session,
        },
        _ => Blame::Session,
    }
}

async fn transact(pool: &PgPool, owner: &str, appends: &[Arc<Append>]) -> Result<Vec<Appended>, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    let moved = move_rows(&mut transaction, owner, appends).await?;
    let won: Vec<&Append> =
        appends.iter().zip(&moved).filter(|(_, moved)| **moved).map(|(append, _)| append.as_ref()).collect();
    take_signals(&mut transaction, &won).await?;
    write_side_rows(&mut transaction, &won).await?;
    transaction.commit().await?;
    Ok(moved.into_iter().map(|moved| if moved { Appended::Yes } else { Appended::No }).collect())
}

/// The compare-and-set of every append, and the events of those that won: one statement.
async fn move_rows(
    connection: &mut PgConnection,
    owner: &str,
    appends: &[Arc<Append>],
) -> Result<Vec<bool>, sqlx::Error> {
    let mut events: (Vec<Uuid>, Vec<i64>, Vec<Value>) = Default::default();
    for append in appends {
        for (place, event) in append.events.iter().enumerate() {
            events.0.push(append.saga.0);
            events.1.push(append.after.plus(place + 1).0);
            events.2.push(serde_json::to_value(event).map_err(|error| sqlx::Error::Encode(error.into()))?);
        }
    }
    let each = |append: &Arc<Append>| Status::of(&append.state);
    let moved: Vec<Uuid> = sqlx::query_scalar(sql::APPEND)
        .bind(owner)
        .bind(appends.iter().map(|append| append.saga.0).collect::<Vec<_>>())
        .bind(appends.iter().map(|append| append.epoch.0).collect::<Vec<_>>())
        .bind(appends.iter().map(|append| append.after.0).collect::<Vec<_>>())
        .bind(appends.iter().map(|append| append.after.plus(append.events.len()).0).collect::<Vec<_>>())
        .bind(appends.iter().map(|append| each(append).as_str()).collect::<Vec<_>>())
        .bind(
            appends
                .iter()
                .map(|append| append.release.is_some() || each(append).is_final())
                .collect::<Vec<_>>(),
        )
        .bind(
            appends
                .iter()
                .map(|append| append.release.filter(|_| !each(append).is_final()))
                .collect::<Vec<_>>(),
        )
        .bind(appends.iter().map(|append| append.state.deadline).collect::<Vec<_>>())
        .bind(
            appends
                .iter()
                .map(|append| append.state.parked.clone().or_else(|| append.state.last_error.clone()))
                .collect::<Vec<_>>(),
        )
        .bind(events.0)
        .bind(events.1)
        .bind(events.2)
        .fetch_all(connection)
        .await?;
    Ok(appends.iter().map(|append| moved.contains(&append.saga.0)).collect())
}

async fn take_signals(connection: &mut PgConnection, won: &[&Append]) -> Result<(), sqlx::Error> {
    let taken =
        || won.iter().flat_map(|append| append.signals_taken.iter().map(move |signal| (append, *signal)));
    let signals: Vec<i64> = taken().map(|(_, signal)| signal).collect();
    if signals.is_empty() {
        return Ok(());
    }
    let seqs: Vec<i64> = taken().map(|(append, _)| append.after.0 + 1).collect();
    sqlx::query(sql::TAKE_SIGNALS).bind(signals).bind(seqs).execute(connection).await?;
    Ok(())
}

/// Each definition's side rows once, with all changes of its sagas.
async fn write_side_rows(connection: &mut PgConnection, won: &[&Append]) -> Result<(), sqlx::Error> {
    let mut open: Vec<(&Arc<dyn SideRows>, Vec<Change<'_>>)> = Vec::new();
    for append in won {
        let Some(side_rows) = &append.side_rows else { continue };
        let change = Change { saga: append.saga, state: &append.state, events: &append.events };
        match open.iter_mut().find(|(known, _)| Arc::ptr_eq(known, side_rows)) {
            Some((_, changes)) => changes.push(change),
            None => open.push((side_rows, vec![change])),
        }
    }
    for (side_rows, changes) in open {
        side_rows.write(connection, &changes).await?;
    }
    Ok(())
}

const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rows_own_fault_is_a_rows_fault() {
        assert_eq!(blame(&sqlx::Error::Decode("this row cannot be".into())), Blame::Row);
        assert_eq!(blame(&sqlx::Error::RowNotFound), Blame::Row);
        for session in [sqlx::Error::PoolTimedOut, sqlx::Error::WorkerCrashed, sqlx::Error::PoolClosed] {
            assert_eq!(blame(&session), Blame::Session, "{session:?}");
        }
    }
}
