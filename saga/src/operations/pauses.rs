//! Pauses of more than one saga: rows that every worker reads with its heartbeat. So is the order to take the database's
//! clock for right after it jumped.

use super::{OperateError, Operations};
use crate::{
    event::Verb,
    journal::postgres::operations::{self as journal, Line, Use},
    operate::{Asked, Pause, Scope},
};

/// More than one saga, as operators may pause them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Many {
    /// All sagas of a kind.
    Kind(String),
    /// All calls of a participant.
    Participant(String),
}

impl From<Many> for Scope {
    fn from(many: Many) -> Self {
        match many {
            Many::Kind(kind) => Self::Kind(kind),
            Many::Participant(participant) => Self::Participant(participant),
        }
    }
}

impl Operations {
    /// Pauses. All workers know within a heartbeat. Gives all that is paused then besides single sagas.
    pub async fn pause(&self, many: Many, asked: &Asked) -> Result<Vec<Pause>, OperateError> {
        self.set_pause(&Verb::Pause, &many.into(), asked).await
    }

    /// Ends a pause, or has the database's time taken for right by every worker that doubts it now. What was never
    /// paused is left as it is. Gives all that is still paused.
    pub async fn resume(&self, scope: &Scope, asked: &Asked) -> Result<Vec<Pause>, OperateError> {
        self.set_pause(&Verb::Resume, scope, asked).await
    }

    async fn set_pause(&self, verb: &Verb, scope: &Scope, asked: &Asked) -> Result<Vec<Pause>, OperateError> {
        let (column, name) = journal::columns(scope);
        let line = Line {
            request_id: asked.request_id.clone(),
            verb: verb.name(),
            scope: column,
            name: name.to_owned(),
            actor: asked.actor.clone(),
            reason: asked.reason.clone(),
            detail: String::new(),
        };
        match journal::set_pause(&self.pool, &line, scope).await? {
            (Use::Reused, _) => Err(OperateError::RequestIdReused),
            (Use::New | Use::Again, pauses) => Ok(self.with_doubt(pauses)),
        }
    }
}
