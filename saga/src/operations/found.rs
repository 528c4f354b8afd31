//! What operators look for and what they are shown: plain types.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};

use crate::{
    id::{Epoch, SagaId, Seq},
    journal::Status,
    operate::{Explanation, Pause},
};

/// What to look for; everything that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Its kind.
    pub kind: Option<String>,
    /// Where it stands.
    pub status: Option<Status>,
    /// One of its attributes: name and value.
    pub attribute: Option<(String, String)>,
    /// It was started longer ago than this.
    pub older_than: Option<Duration>,
    /// A part of its last error, or of the reason it is parked for.
    pub error_contains: Option<String>,
}

/// A part of what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The last saga of the page before; `None`: the first page.
    pub after: Option<SagaId>,
    /// At most so many.
    pub size: u16,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Newest first.
    pub sagas: Vec<Saga>,
    /// Nothing comes after these.
    pub is_last: bool,
}

/// A saga by its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saga {
    /// Its id.
    pub saga: SagaId,
    /// Its kind.
    pub kind: String,
    /// The version of its definition.
    pub version: i32,
    /// Where it stands.
    pub status: Status,
    /// How many events it has.
    pub seq: Seq,
    /// How often it changed its worker, plus one.
    pub epoch: Epoch,
    /// The name of the worker that has it, while that one lives or is not replaced.
    pub owner: Option<String>,
    /// Past this anyone may take it over from its owner.
    pub lease_until: Option<DateTime<Utc>>,
    /// When a saga without owner is picked up.
    pub due_at: Option<DateTime<Utc>>,
    /// Until when the steps before the pivot may take.
    pub deadline: Option<DateTime<Utc>>,
    /// Claims since the last durable progress.
    pub claims: u32,
    /// The last failure, or why it is parked.
    pub last_error: Option<String>,
    /// What it can be found by.
    pub attributes: BTreeMap<String, String>,
    /// When it was started.
    pub created_at: DateTime<Utc>,
    /// When its row last changed.
    pub updated_at: DateTime<Utc>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// Trace context of the call that began it.
    pub traceparent: Option<String>,
}

/// A saga with a part of its journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// By its row.
    pub saga: Saga,
    /// Oldest first.
    pub entries: Vec<JournalEntry>,
}

/// One entry of a journal as it is kept, whether this version can read it or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// 1 for the first.
    pub seq: Seq,
    /// JSON.
    pub json: String,
    /// When it was written; `None` once the saga has ended.
    pub written_at: Option<DateTime<Utc>>,
}

/// A saga explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// By its row.
    pub saga: Saga,
    /// What that means.
    pub explanation: Explanation,
    /// Names of signals that it has not taken in yet, in their order.
    pub open_signals: Vec<String>,
    /// What is paused besides single sagas and concerns it.
    pub pauses: Vec<Pause>,
}
