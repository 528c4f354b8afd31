//! What a step is told when it runs.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize as _, de::DeserializeOwned};

use crate::{
    definition::Step,
    id::{Epoch, SagaId},
    state::State,
};

/// What one attempt of a step, or of its undo, is told.
#[derive(Debug)]
pub struct Context<'a, I> {
    /// The saga; ids of effects derive from it.
    pub saga: SagaId,
    /// Under which ownership it runs.
    pub epoch: Epoch,
    /// What the saga was started with.
    pub input: &'a I,
    /// Which round of this step this is, from 1: a restart begins a new round, under new ids.
    pub round: u32,
    /// Which attempt of the round, from 1.
    pub attempt: u32,
    /// The deadline has passed: after this answer the deadline policy decides.
    pub last_ask: bool,
    /// The database's time.
    pub now: DateTime<Utc>,
    /// The saga's deadline, while it applies.
    pub deadline: Option<DateTime<Utc>>,
    pub(crate) state: &'a State,
}

impl<I> Context<'_, I> {
    /// How long ago the saga was started.
    pub fn age(&self) -> Duration {
        (self.now - self.state.started_at).to_std().unwrap_or_default()
    }

    /// What step `S` gave; nothing while it is not done.
    pub fn output_of<S: Step>(&self) -> Result<Option<S::Output>, Unreadable> {
        let output = self.state.steps.get(S::NAME).and_then(|step| step.output.as_ref());
        let read = |output| S::Output::deserialize(output).map_err(|error| Unreadable::new(S::NAME, &error));
        output.map(read).transpose()
    }

    /// The payloads of signals of this name, oldest first.
    pub fn signals<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, Unreadable> {
        let read = |payload| T::deserialize(payload).map_err(|error| Unreadable::new(name, &error));
        self.state.signals_named(name).map(read).collect()
    }
}

/// Something that was recorded is not what the definition takes it for. To leave it out would be to act on half of
/// what is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what {of:?} recorded cannot be read: {why}")]
pub struct Unreadable {
    of: String,
    why: String,
}

impl Unreadable {
    fn new(of: &str, why: &serde_json::Error) -> Self {
        Self { of: of.to_owned(), why: why.to_string() }
    }
}
