//! What a step is told when it runs.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;

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

    /// What step `S` gave, if it is done and gave that type.
    pub fn output_of<S: Step>(&self) -> Option<S::Output> {
        let output = self.state.steps.get(S::NAME)?.output.clone()?;
        serde_json::from_value(output).ok()
    }

    /// The payloads of signals of this name that have the asked type, oldest first.
    pub fn signals<'s, T: DeserializeOwned>(&'s self, name: &'s str) -> impl Iterator<Item = T> + 's {
        self.state.signals_named(name).filter_map(|payload| serde_json::from_value(payload.clone()).ok())
    }
}
