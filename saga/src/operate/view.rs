//! What is known of a saga at one moment, and what an operator is told of it. Only types: the words are chosen in
//! `explain.rs`.

use std::fmt;

use chrono::{DateTime, Utc};

use crate::{decide::Shape, journal::Status, state::State};

/// All that is known of a saga at one moment.
#[derive(Debug, Clone, Copy)]
pub struct View<'v> {
    /// Its kind.
    pub kind: &'v str,
    /// The version it began with.
    pub version: i32,
    /// The database's time.
    pub now: DateTime<Utc>,
    /// What its row says.
    pub status: Status,
    /// Where its journal leads, or why that cannot be read.
    pub state: Result<&'v State, &'v str>,
    /// Its definition; `None`: this process does not have it.
    pub shape: Option<&'v Shape>,
    /// The worker that has it.
    pub owner: Option<Owner<'v>>,
    /// When a saga without owner is picked up.
    pub due_at: Option<DateTime<Utc>>,
    /// Until when the steps before the pivot may take, by its row.
    pub deadline: Option<DateTime<Utc>>,
    /// Claims since the last durable progress.
    pub claims: u32,
    /// The last failure, by its row.
    pub last_error: Option<&'v str>,
    /// Names of the signals nobody has taken in yet, in their order.
    pub open_signals: &'v [String],
    /// What is paused besides single sagas, concerning this one or not.
    pub pauses: &'v [Pause],
}

/// The worker that has a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'v> {
    /// Its name.
    pub name: &'v str,
    /// Past this anyone may take its sagas over.
    pub lease_until: DateTime<Utc>,
}

/// Something that operators, or the engine, stopped for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// What.
    pub scope: Scope,
    /// By whom.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: DateTime<Utc>,
}

/// What a pause beyond one saga covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All sagas of a kind.
    Kind(String),
    /// All calls of a participant.
    Participant(String),
    /// Everything that waits for a time: the database's clock jumped.
    Clock,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "kind {kind}"),
            Self::Participant(participant) => write!(f, "participant {participant}"),
            Self::Clock => f.write_str("the clock"),
        }
    }
}

/// What an operator is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// One sentence: where it stands.
    pub summary: String,
    /// The worker that has it.
    pub owner: Option<String>,
    /// What the owner's lease is worth.
    pub lease: String,
    /// What happens next, if nobody does anything.
    pub next: String,
    /// When that is; `None`: now, or never.
    pub next_at: Option<DateTime<Utc>>,
    /// The last failure.
    pub last_error: Option<String>,
    /// What would unblock it, each beginning with the verb that does. Empty: nothing blocks it.
    pub unblocks: Vec<String>,
}
