//! The journal as the engine sees it: every write is conditional, and zero rows have a name. Postgres keeps it in
//! `journal/postgres.rs`; a journal in memory is for simulation only (`testing.rs`). No decisions are made here.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    definition::Definition,
    event::Event,
    id::{Epoch, SagaId, Seq, WorkerId},
    state::{Phase, State},
};

pub(crate) mod postgres;

/// The journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The database failed, or an answer was lost: what was asked may have happened.
    #[error("the journal's database failed: {0}")]
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
    /// A saga holds only so many signals.
    #[error("saga {0} holds as many signals as it may")]
    TooManySignals(SagaId),
}

/// Where a saga stands, as anyone may see it.
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

    /// From the column.
    pub fn parse(column: &str) -> Option<Self> {
        [Self::Running, Self::Undoing, Self::Completed, Self::Undone, Self::Parked]
            .into_iter()
            .find(|status| status.as_str() == column)
    }

    /// Whether nothing more will happen by itself.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Running | Self::Undoing)
    }

    /// Whether it ended: its row leaves the live table.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Undone)
    }
}

/// What one saga has for one flush.
pub(crate) struct Entry {
    pub(crate) saga: SagaId,
    pub(crate) epoch: Epoch,
    /// The seq it continues; zero when it begins the saga.
    pub(crate) after: Seq,
    /// May be none: then only the row changes.
    pub(crate) events: Vec<Event>,
    /// The events as JSON, separated by commas.
    pub(crate) json: String,
    /// With the events taken in.
    pub(crate) state: Arc<State>,
    /// Give the saga up until then.
    pub(crate) release: Option<DateTime<Utc>>,
    /// Signals taken in, each with the seq of the event that did.
    pub(crate) signals: Vec<(SignalId, Seq)>,
    pub(crate) definition: Definition,
    /// Set when it begins the saga: the caller's row that is written with it.
    pub(crate) begins: Option<Arc<dyn Any + Send + Sync>>,
    /// Set when the saga ends: all its events, these included.
    pub(crate) history: Option<String>,
}

impl Entry {
    /// The seq it leads to.
    pub(crate) fn end(&self) -> Seq {
        self.after.plus(self.events.len())
    }

    /// Where the saga stands with it.
    pub(crate) fn standing(&self) -> Standing {
        Standing { status: Status::of(&self.state), at_rest: self.releases(), seq: self.end() }
    }

    /// Whether the saga is given up with it, for a while or for good.
    pub(crate) fn releases(&self) -> bool {
        self.release.is_some() || Status::of(&self.state).is_final()
    }
}

/// How an entry fared in one flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    Written,
    /// The row was not where the entry expected it, the flush failed, or its commit was not answered: only the row
    /// knows.
    Unknown,
    /// The caller's row was not accepted, so the saga does not begin.
    Declined,
    /// The database, or the caller's rows, refused this very entry, for this reason.
    Refused(String),
}

/// A signal's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SignalId(pub(crate) i64);

/// Who owns a saga, and how far it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) owner: Option<WorkerId>,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
    pub(crate) status: Status,
    pub(crate) due: Option<DateTime<Utc>>,
    pub(crate) deadline: Option<DateTime<Utc>>,
}

/// A saga that wants to be looked at.
#[derive(Debug, Clone, Copy)]
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
    /// Its journal, or why it cannot be read.
    pub(crate) journal: Result<Read, String>,
    pub(crate) signals: Vec<OpenSignal>,
}

/// A journal that was read.
pub(crate) struct Read {
    pub(crate) events: Vec<Event>,
    /// The same as JSON, separated by commas.
    pub(crate) json: String,
}

/// A signal nobody has taken in yet.
#[derive(Debug, Clone)]
pub(crate) struct OpenSignal {
    pub(crate) id: SignalId,
    pub(crate) name: String,
    pub(crate) payload: Value,
}

/// What a heartbeat learns.
#[derive(Debug, Clone)]
pub(crate) struct Beat {
    pub(crate) now: DateTime<Utc>,
    pub(crate) pauses: Pauses,
    pub(crate) clock_order: ClockOrder,
}

/// The newest of the operators' orders to take the database's clock for right; zero when there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClockOrder(pub(crate) i64);

/// What operators stopped for a while, beside single sagas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    pub(crate) kinds: Vec<String>,
    pub(crate) participants: Vec<String>,
}

/// What a scan looks for.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    /// Due times before this.
    pub(crate) due_before: Option<DateTime<Utc>>,
    /// Also sagas this worker owns but is not known to hold: those among them are held.
    pub(crate) adopt_except: Option<BTreeSet<SagaId>>,
    /// At most so many of each reason.
    pub(crate) limit: i64,
}

/// What may be claimed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claimable {
    /// `kind@version` of the definitions this worker has.
    pub(crate) knows: Vec<String>,
    pub(crate) paused_kinds: Vec<String>,
}

impl Claimable {
    /// The kinds of which anything may be claimed.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let kinds = self.knows.iter().filter_map(|tag| Some(tag.rsplit_once('@')?.0));
        let unpaused: BTreeSet<_> =
            kinds.filter(|kind| !self.paused_kinds.iter().any(|paused| paused == kind)).collect();
        unpaused.into_iter().map(str::to_owned).collect()
    }
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is stored, by this call or by an earlier one under the same key.
    Stored,
    /// The saga has ended, or there is none.
    Ended,
    /// The saga holds as many as it may.
    Full,
}

/// What the slow second look found, and mended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Sagas that nobody looked at though they were due: a timer was lost.
    pub(crate) overdue: u64,
    /// Sagas that would have slept past their deadline.
    pub(crate) oversleeping: u64,
    /// Sagas of a version that no live worker knows: parked.
    pub(crate) unknown: u64,
}

/// Where the journal is kept. Everything a worker writes names it as owner.
pub(crate) trait Journal: Send + Sync + 'static {
    /// This worker's present life.
    fn owner(&self) -> WorkerId;

    /// Takes the lease under this worker's name; a predecessor's sagas are free from here on.
    fn register<'a>(
        &'a self,
        lease: Duration,
        knows: &'a [String],
    ) -> BoxFuture<'a, Result<Beat, JournalError>>;

    /// Renews the lease and reads the clock.
    fn heartbeat(&self, lease: Duration) -> BoxFuture<'_, Result<Beat, JournalError>>;

    /// One try to write all entries, in the order of their sagas. One that cannot be written fails no other.
    fn flush<'a>(&'a self, entries: &'a [Entry]) -> BoxFuture<'a, Vec<Fate>>;

    /// Starts that were sent and have not arrived are refused from now on. Without that one whose answer was lost might
    /// arrive after the saga it begins was begun by its repetition, ran to its end and left the table: it would run again.
    fn fence_off(&self) -> BoxFuture<'_, Result<(), JournalError>>;

    fn positions<'a>(
        &'a self,
        sagas: &'a [SagaId],
    ) -> BoxFuture<'a, Result<BTreeMap<SagaId, Position>, JournalError>>;

    /// Sagas that are due, left by a dead worker, signalled, or ours and forgotten.
    fn scan<'a>(
        &'a self,
        look: &'a Look,
        claimable: &'a Claimable,
    ) -> BoxFuture<'a, Result<Vec<Sighting>, JournalError>>;

    /// Takes ownership of those that nobody living owns and that are due by `now`, were left, or have signals.
    fn claim<'a>(
        &'a self,
        sagas: &'a [SagaId],
        claimable: &'a Claimable,
        now: DateTime<Utc>,
    ) -> BoxFuture<'a, Result<Vec<Claimed>, JournalError>>;

    fn open_signals<'a>(
        &'a self,
        sagas: &'a [SagaId],
    ) -> BoxFuture<'a, Result<BTreeMap<SagaId, Vec<OpenSignal>>, JournalError>>;

    /// Parks a saga that cannot be read or written, by its row alone. Operators' orders that wait for it are closed
    /// unheard: each would only wake it again.
    fn quarantine<'a>(
        &'a self,
        saga: SagaId,
        epoch: Epoch,
        reason: &'a str,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// Stores a signal once per key.
    fn send<'a>(
        &'a self,
        saga: SagaId,
        key: &'a str,
        name: &'a str,
        payload: &'a Value,
    ) -> BoxFuture<'a, Result<Sent, JournalError>>;

    /// Tells other workers that these sagas have signals.
    fn hint<'a>(&'a self, sagas: &'a [SagaId]) -> BoxFuture<'a, Result<(), JournalError>>;

    /// The next sagas that some worker hinted at.
    fn hinted(&self) -> BoxFuture<'_, Result<Vec<SagaId>, JournalError>>;

    /// Compares what should agree and mends it; drops days that are kept no longer.
    fn audit(&self, now: DateTime<Utc>, retain_days: u32) -> BoxFuture<'_, Result<Audit, JournalError>>;

    /// Frees everything this worker owns, and its lease.
    fn resign(&self) -> BoxFuture<'_, Result<(), JournalError>>;
}
