//! One flush: everything that all running sagas recorded, in one statement; with the caller's rows, in one transaction.
//! What cannot be written is found by halving, so that one bad row never fails its neighbours.

use std::{ops::Range, sync::Arc};

use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::{
    CALL_MAX, Entry, Fate, Status,
    own::{Own, within},
    sql,
};
use crate::{
    id::{SagaId, WorkerId},
    side_rows::{Change, ErasedSideRows},
};

/// The writer's session. Plans are pinned to index lookups: a plan that was made while a table was small must not stay
/// when it is large. A row that somebody else holds must not hold up the whole flush for longer.
pub(super) const SESSION: [(&str, &str); 9] = [
    ("max_parallel_workers_per_gather", "0"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_seqscan", "off"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("lock_timeout", "50ms"),
    ("idle_in_transaction_session_timeout", "2s"),
];

/// Who flushes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Author {
    pub(super) owner: WorkerId,
    /// Under which fence its starts are sent.
    pub(super) fence: i64,
}

/// How a flush goes about rows that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Locked {
    /// It waits for them, for as long as the session lets it.
    Wait,
    /// It leaves them to the next flush.
    Skip,
}

/// Writes all entries, halving what the database refuses until the refused ones stand alone.
pub(super) async fn flush(writer: &Own, author: Author, entries: &[Entry]) -> Vec<Fate> {
    let mut fates = vec![Fate::Unknown; entries.len()];
    let mut open: Vec<Range<usize>> = std::iter::once(0..entries.len()).collect();
    let mut locked = Locked::Wait;
    while let Some(part) = open.pop() {
        let error = match transact(writer, author, &entries[part.clone()], locked).await {
            Ok(written) => {
                fates[part].clone_from_slice(&written);
                continue;
            }
            Err(error) => error,
        };
        match error.blame() {
            // One wait is enough for all that is in the way.
            Blame::InTheWay if locked == Locked::Wait => {
                locked = Locked::Skip;
                open.push(part);
            }
            Blame::Row | Blame::InTheWay if part.len() > 1 => {
                let middle = part.start + part.len() / 2;
                open.extend([middle..part.end, part.start..middle]);
            }
            Blame::Row => fates[part.start] = Fate::Refused(error.to_string()),
            Blame::InTheWay | Blame::Session => {
                tracing::warn!(%error, entries = part.len(), "a flush of the journal failed or its fate is unknown");
            }
        }
    }
    fates
}

/// Why nothing of a flush is on disk, or nobody knows.
#[derive(Debug, thiserror::Error)]
enum FlushError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A saga that was to begin is there already, or its start came too late: its side row must not stay without it.
    #[error("a start was not written, so its side row must not be either")]
    LoneSideRow,
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

impl FlushError {
    fn blame(&self) -> Blame {
        match self {
            Self::Database(error) => blame(error),
            Self::LoneSideRow => Blame::InTheWay,
        }
    }
}

/// Connection, resources, an operator's hand, the system, the server itself, a read-only server.
const OF_THE_SERVER: [&str; 6] = ["08", "53", "57", "58", "XX", "25006"];

/// Only what is known to be a row's fault is a row's fault. What is neither that nor the server's state stands in the way:
/// it is separated from its neighbours and tried again.
fn blame(error: &sqlx::Error) -> Blame {
    use sqlx::Error::{ColumnDecode, ColumnNotFound, Database, Decode, Encode, RowNotFound};
    match error {
        RowNotFound | Decode(_) | Encode(_) | ColumnDecode { .. } | ColumnNotFound(_) => Blame::Row,
        Database(database) => match database.code().as_deref() {
            // Data exception, constraint violation.
            Some(code) if code.starts_with("22") || code.starts_with("23") => Blame::Row,
            // Something failed before and kept it to itself: side rows that are no better later.
            Some("25P02") => Blame::Row,
            Some(code) if OF_THE_SERVER.iter().any(|class| code.starts_with(class)) => Blame::Session,
            // Serialization failure, deadlock, lock timeout; and whatever a trigger or a limit says.
            Some(_) => Blame::InTheWay,
            None => Blame::Session,
        },
        _ => Blame::Session,
    }
}

/// One try, on the writer's connection.
async fn transact(
    writer: &Own,
    author: Author,
    entries: &[Entry],
    locked: Locked,
) -> Result<Vec<Fate>, FlushError> {
    let mut connection = writer.take().await?;
    let tried = tokio::time::timeout(CALL_MAX, attempt(&mut connection, author, entries, locked)).await;
    let outcome = tried.unwrap_or(Err(FlushError::Database(sqlx::Error::PoolTimedOut)));
    let is_sound = match &outcome {
        Ok(_) => true,
        // Nobody knows what the connection is in the middle of.
        Err(error) if error.blame() == Blame::Session => false,
        // The rollback goes out now: until it does, the transaction holds its rows.
        Err(_) => within(CALL_MAX, connection.ping()).await.is_ok(),
    };
    if is_sound {
        connection.give_back();
    }
    outcome
}

async fn attempt(
    connection: &mut PgConnection,
    author: Author,
    entries: &[Entry],
    locked: Locked,
) -> Result<Vec<Fate>, FlushError> {
    let alone = entries.iter().all(|entry| entry.definition.side_rows.is_none());
    if alone {
        // One statement is a transaction by itself, in one round trip.
        let everyone: Vec<_> = entries.iter().collect();
        let written = write(connection, author, &everyone, locked).await?;
        return Ok(fates(entries, &written, &[]));
    }
    let mut transaction = connection.begin().await?;
    if locked == Locked::Skip {
        sqlx::query(sql::SHORT_PATIENCE).execute(&mut *transaction).await?;
    }
    let declined = begin_side_rows(&mut transaction, entries).await?;
    let wanted: Vec<_> = entries.iter().filter(|entry| !declined.contains(&entry.saga)).collect();
    let written = write(&mut transaction, author, &wanted, locked).await?;
    let is_lone = |entry: &&Entry| {
        let has_row = entry.begins.is_some() && entry.definition.side_rows.is_some();
        has_row && written.binary_search(&entry.saga).is_err()
    };
    if wanted.iter().any(is_lone) {
        return Err(FlushError::LoneSideRow);
    }
    change_side_rows(&mut transaction, entries, &written).await?;
    // A COMMIT of a transaction that failed answers like any other. Side rows that kept an error to themselves show here.
    sqlx::query(sql::STILL_THERE).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(fates(entries, &written, &declined))
}

fn fates(entries: &[Entry], written: &[SagaId], declined: &[SagaId]) -> Vec<Fate> {
    let fate = |entry: &Entry| {
        if written.binary_search(&entry.saga).is_ok() {
            Fate::Written
        } else if declined.contains(&entry.saga) {
            Fate::Declined
        } else {
            Fate::Unknown
        }
    };
    entries.iter().map(fate).collect()
}

/// The statement. Gives what was written, sorted.
async fn write(
    connection: &mut PgConnection,
    author: Author,
    entries: &[&Entry],
    locked: Locked,
) -> Result<Vec<SagaId>, sqlx::Error> {
    let (begins, appends): (Vec<&Entry>, Vec<&Entry>) =
        entries.iter().copied().partition(|entry| entry.begins.is_some());
    let column = |name: fn(&Entry) -> i64| appends.iter().map(|entry| name(entry)).collect::<Vec<_>>();
    let status = |entry: &Entry| Status::of(&entry.state);
    let error = |entry: &&Entry| {
        entry.state.parked_reason().map(str::to_owned).or_else(|| entry.state.last_error.clone())
    };
    let body = |entry: &&Entry| {
        (entry.history.is_none() && !entry.events.is_empty()).then(|| format!("[{}]", entry.json))
    };
    let due = |entry: &&Entry| entry.release.filter(|_| !status(entry).is_final());
    let attributes = |entry: &&Entry| {
        serde_json::to_string(&*entry.state.attributes).map_err(|error| sqlx::Error::Encode(error.into()))
    };
    // The signals of a saga that ends go with it.
    let signals = || appends.iter().filter(|entry| entry.history.is_none()).flat_map(|entry| &entry.signals);
    let statement = match locked {
        Locked::Wait => sql::FLUSH,
        Locked::Skip => sql::FLUSH_PAST_LOCKS,
    };
    let written: Vec<Uuid> = sqlx::query_scalar(statement)
        .bind(author.owner.0)
        .bind(appends.iter().map(|entry| entry.saga.0).collect::<Vec<_>>())
        .bind(column(|entry| entry.epoch.0))
        .bind(column(|entry| entry.after.0))
        .bind(column(|entry| entry.end().0))
        .bind(appends.iter().map(|entry| status(entry).as_str()).collect::<Vec<_>>())
        .bind(appends.iter().map(|entry| entry.releases()).collect::<Vec<_>>())
        .bind(appends.iter().map(due).collect::<Vec<_>>())
        .bind(appends.iter().map(|entry| entry.state.deadline).collect::<Vec<_>>())
        .bind(appends.iter().map(error).collect::<Vec<_>>())
        .bind(appends.iter().map(body).collect::<Vec<_>>())
        .bind(
            appends
                .iter()
                .map(|entry| entry.history.as_ref().map(|all| format!("[{all}]")))
                .collect::<Vec<_>>(),
        )
        .bind(begins.iter().map(|entry| entry.saga.0).collect::<Vec<_>>())
        .bind(begins.iter().map(|entry| entry.definition.kind).collect::<Vec<_>>())
        .bind(begins.iter().map(|entry| entry.definition.version).collect::<Vec<_>>())
        .bind(begins.iter().map(|entry| entry.state.deadline).collect::<Vec<_>>())
        .bind(begins.iter().map(attributes).collect::<Result<Vec<_>, _>>()?)
        .bind(begins.iter().map(|entry| entry.json.as_str()).collect::<Vec<_>>())
        .bind(signals().map(|(signal, _)| signal.0).collect::<Vec<_>>())
        .bind(signals().map(|(_, seq)| seq.0).collect::<Vec<_>>())
        .bind(author.fence)
        .fetch_all(connection)
        .await?;
    let mut written: Vec<_> = written.into_iter().map(SagaId).collect();
    written.sort_unstable();
    Ok(written)
}

/// Each definition's side rows once, with everything this flush has of it.
fn by_side_rows<'e>(
    entries: impl Iterator<Item = &'e Entry>,
) -> Vec<(&'e Arc<dyn ErasedSideRows>, Vec<&'e Entry>)> {
    let mut open: Vec<(&Arc<dyn ErasedSideRows>, Vec<&Entry>)> = Vec::new();
    for entry in entries {
        let Some(side_rows) = &entry.definition.side_rows else { continue };
        match open.iter_mut().find(|(known, _)| Arc::ptr_eq(known, side_rows)) {
            Some((_, entries)) => entries.push(entry),
            None => open.push((side_rows, vec![entry])),
        }
    }
    open
}

/// The rows of sagas that begin. Gives those that must not.
async fn begin_side_rows(
    connection: &mut PgConnection,
    entries: &[Entry],
) -> Result<Vec<SagaId>, sqlx::Error> {
    let mut declined = Vec::new();
    for (side_rows, entries) in by_side_rows(entries.iter().filter(|entry| entry.begins.is_some())) {
        let rows = entries.iter().filter_map(|entry| Some((entry.saga, &**entry.begins.as_ref()?))).collect();
        let accepted = side_rows.begin(connection, rows).await?;
        let refused = entries.iter().zip(accepted).filter(|(_, accepted)| !accepted);
        declined.extend(refused.map(|(entry, _)| entry.saga));
    }
    Ok(declined)
}

async fn change_side_rows(
    connection: &mut PgConnection,
    entries: &[Entry],
    written: &[SagaId],
) -> Result<(), sqlx::Error> {
    let appended = entries.iter().filter(|entry| {
        entry.begins.is_none() && !entry.events.is_empty() && written.binary_search(&entry.saga).is_ok()
    });
    for (side_rows, entries) in by_side_rows(appended) {
        let changes: Vec<_> = entries
            .iter()
            .map(|entry| Change { saga: entry.saga, state: &entry.state, events: &entry.events })
            .collect();
        side_rows.change(connection, &changes).await?;
    }
    Ok(())
}

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
