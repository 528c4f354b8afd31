//! Gives one saga an operator's order and tells what became of it. The order is a signal; whoever drives the saga decides
//! on it, and that decision is an event in its journal. Asked again, the same request finds that event.

use std::time::Duration;

use tokio::time::Instant;

use super::{Operations, Saga, explained::folded};
use crate::{
    event::Event,
    id::{SagaId, Seq},
    journal::{
        JournalError,
        postgres::operations::{self as journal, Known, Line, Taken, Use, Way},
    },
    operate::Order,
    state::{Phase, State},
};

/// How often the fate of an order is looked up at least: one that is closed unheard changes no journal.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out.
    Done,
    /// It is stored and will be decided on.
    Accepted,
    /// Nothing was done, for this reason.
    Refused(String),
}

/// What became of an order, and where its saga stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operated {
    /// What became of it.
    pub outcome: Outcome,
    /// The saga by its row.
    pub saga: Saga,
}

/// An order could not be given.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// There is no such saga, or it ended so long ago that it is not kept any more.
    #[error("there is no such saga")]
    UnknownSaga,
    /// Another order was given under this request id.
    #[error("the request id was used before with another body")]
    RequestIdReused,
    /// The journal failed: ask again with the same request id.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Operations {
    /// Gives an order, and waits until it is decided on, at most for `patience`.
    pub async fn operate(
        &self,
        saga: SagaId,
        order: &Order,
        patience: Duration,
    ) -> Result<Operated, OperateError> {
        let end = Instant::now() + patience;
        let line = Line {
            request_id: order.request_id.clone(),
            verb: order.verb.name(),
            scope: "SAGA",
            name: saga.to_string(),
            actor: order.actor.clone(),
            reason: order.reason.clone(),
            detail: serde_json::to_string(&order.verb).map_err(JournalError::from)?,
        };
        let used = journal::use_of(&self.pool, &line).await?;
        if used == Use::Reused {
            return Err(OperateError::RequestIdReused);
        }
        let known = journal::known(&self.pool, saga).await?.ok_or(OperateError::UnknownSaga)?;
        let seen = known.saga.seq;
        if used == Use::New {
            let row = known.saga.clone();
            if let Some(why) = self.cannot_hear(known) {
                return Ok(Operated { outcome: Outcome::Refused(why), saga: row });
            }
            match journal::take(&self.pool, saga, &line, order).await? {
                Taken::Stored | Taken::Before => {}
                Taken::Reused => return Err(OperateError::RequestIdReused),
                // It ended since it was read.
                Taken::Ended => return self.told(saga, Outcome::Refused(TOO_LATE.into())).await,
                Taken::Full => return self.told(saga, Outcome::Refused(FULL.into())).await,
            }
        }
        self.engine.nudge(saga);
        let outcome = self.outcome(saga, &order.request_id, seen, end).await?;
        self.told(saga, outcome).await
    }

    /// Why nobody could take in an order: then it is not even stored. What is taken in and refused is on record.
    fn cannot_hear(&self, known: Known) -> Option<String> {
        let Known { saga, events, has_worker, .. } = known;
        match folded(events) {
            Ok(State { phase: Phase::Completed, .. }) => Some("it has ended: every step is done".into()),
            Ok(State { phase: Phase::Undone, .. }) => Some("it has ended: everything is undone".into()),
            Err(error) => Some(format!("its journal cannot be read: {error}")),
            Ok(_) if !has_worker => {
                Some(format!("no live worker knows {} of version {}", saga.kind, saga.version))
            }
            Ok(state) => {
                let definition = self.engine.definition(&saga.kind, saga.version)?;
                let step = definition.shape.lacks(&state)?;
                Some(format!("its journal names step {step}, which its definition does not have"))
            }
        }
    }

    async fn told(&self, saga: SagaId, outcome: Outcome) -> Result<Operated, OperateError> {
        let saga = journal::row(&self.pool, saga).await?.ok_or(OperateError::UnknownSaga)?;
        Ok(Operated { outcome, saga })
    }

    /// Waits for the decision.
    async fn outcome(
        &self,
        saga: SagaId,
        request_id: &str,
        mut seen: Seq,
        end: Instant,
    ) -> Result<Outcome, OperateError> {
        loop {
            if let Some(outcome) = self.decision(saga, request_id).await? {
                return Ok(outcome);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Outcome::Accepted);
            }
            let after = seen;
            let standing =
                self.engine.wait_for(saga, left.min(LOOK_EVERY), |standing| standing.seq > after).await?;
            seen = standing.map_or(seen, |standing| standing.seq);
        }
    }

    async fn decision(&self, saga: SagaId, request_id: &str) -> Result<Option<Outcome>, OperateError> {
        let event = match journal::way_of(&self.pool, saga, request_id).await? {
            Way::Open => return Ok(None),
            Way::Unheard => {
                let row = journal::row(&self.pool, saga).await?.ok_or(OperateError::UnknownSaga)?;
                let why = row.last_error.unwrap_or_else(|| "its journal could not be continued".into());
                return Ok(Some(Outcome::Refused(format!("it could not be heard: {why}"))));
            }
            Way::TakenBy(seq) => journal::event(&self.pool, saga, seq).await?,
            Way::Gone => None,
        };
        let is_it =
            |event: &Event| matches!(event, Event::Operated { request_id: of, .. } if of == request_id);
        let event = match event.filter(is_it) {
            Some(event) => Some(event),
            // The saga ended meanwhile, and its signals with it.
            None => journal::operated(&self.pool, saga, request_id).await?,
        };
        Ok(Some(match event {
            Some(Event::Operated { refused: None, .. }) => Outcome::Done,
            Some(Event::Operated { refused: Some(why), .. }) => Outcome::Refused(why),
            _ => Outcome::Refused(TOO_LATE.into()),
        }))
    }
}

const FULL: &str = "it holds as many signals as it may";
const TOO_LATE: &str = "it ended before the order could be taken in";
