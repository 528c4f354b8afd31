//! Gathers all that is known of a saga at one moment, and has it explained.

use super::{Explained, Operations};
use crate::{
    decide::Shape,
    id::SagaId,
    journal::{
        JournalError,
        postgres::operations::{self as journal, Known},
    },
    operate::{Owner, Pause, Scope, View, explain},
    state::State,
};

impl Operations {
    /// Says who has a saga, what happens next, and what would unblock it. `None`: there is no such saga.
    pub async fn explain(&self, saga: SagaId) -> Result<Option<Explained>, JournalError> {
        Ok(journal::known(&self.pool, saga).await?.map(|known| self.explained(known)))
    }

    fn explained(&self, known: Known) -> Explained {
        let pauses = self.with_doubt(known.pauses);
        let state = folded(known.events);
        let row = &known.saga;
        let definition = self.engine.definition(&row.kind, row.version);
        let shape = definition.as_ref().map(|definition| definition.shape.as_ref());
        let owner = row.owner.as_deref().zip(row.lease_until);
        let explanation = explain(&View {
            kind: &row.kind,
            version: row.version,
            now: known.now,
            status: row.status,
            state: state.as_ref().map_err(String::as_str),
            shape,
            owner: owner.map(|(name, lease_until)| Owner { name, lease_until }),
            due_at: row.due_at,
            deadline: row.deadline,
            claims: row.claims,
            last_error: row.last_error.as_deref(),
            open_signals: &known.open_signals,
            pauses: &pauses,
        });
        let concern = |pause: &Pause| concerns(pause, &row.kind, row.due_at.is_some(), shape);
        Explained {
            explanation,
            pauses: pauses.into_iter().filter(concern).collect(),
            open_signals: known.open_signals,
            saga: known.saga,
        }
    }
}

/// Where a journal leads, or why it cannot be read.
pub(super) fn folded(events: Result<Vec<crate::event::Event>, String>) -> Result<State, String> {
    State::replay(&events?).map_err(|illegal| illegal.to_string())
}

fn concerns(pause: &Pause, kind: &str, waits: bool, shape: Option<&Shape>) -> bool {
    match &pause.scope {
        Scope::Kind(paused) => paused == kind,
        Scope::Participant(paused) => {
            shape.is_some_and(|shape| shape.steps.iter().any(|step| step.participant == paused))
        }
        Scope::Clock => waits,
    }
}
