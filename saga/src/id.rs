//! The numbers and names the engine counts by.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A saga. Participants' ids derive from it (`<saga>.reserve.1`), so it must never be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SagaId(pub Uuid);

impl SagaId {
    /// A new id, ordered by time.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for SagaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many events a saga's journal holds. An append names the seq it continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Seq(pub i64);

impl Seq {
    /// The seq after `events` more events.
    #[must_use]
    pub fn plus(self, events: usize) -> Self {
        Self(self.0 + i64::try_from(events).expect("an append holds few events"))
    }
}

/// How often a saga changed owner, plus one. An append names the epoch it was made under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub i64);

/// One life of a worker: a restarted process gets a new one, even under its old name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkerId(pub(crate) i64);
