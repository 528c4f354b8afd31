//! What operators may do to one saga, and what they are told: an order is judged against where the saga stands, and
//! either way it becomes an event. Pure; how orders travel and who may give them is not known here.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    decide::{Shape, cursor},
    event::{Event, Verb},
    state::{Parked, Phase, State},
};

mod explain;
#[cfg(test)]
mod tests;
mod view;

pub use self::{
    explain::explain,
    view::{Explanation, Owner, Pause, Scope, View},
};

/// The name of the durable signal that carries an [`Order`].
pub const SIGNAL: &str = "operator";

/// Characters of a request id, at most.
pub const REQUEST_ID_CHARS_MAX: usize = 128;
/// Characters of an actor's name, at most.
pub const ACTOR_CHARS_MAX: usize = 200;
/// Characters of a reason, at most.
pub const REASON_CHARS_MAX: usize = 2_000;
/// Bytes of an order as JSON, at most: it stands in the journal for ever.
pub const ORDER_BYTES_MAX: usize = 64 * 1_024;

/// Who asks for something, why, and under which id what became of it is found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub(crate) request_id: String,
    pub(crate) actor: String,
    pub(crate) reason: String,
}

impl Asked {
    /// `request_id` is whoever asks's own; who asks and why is not optional.
    pub fn new(
        request_id: impl Into<String>,
        actor: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<Self, OrderError> {
        let asked = Self { request_id: request_id.into(), actor: actor.into(), reason: reason.into() };
        if asked.request_id.is_empty() {
            return Err(OrderError::RequestIdMissing);
        }
        if asked.request_id.chars().count() > REQUEST_ID_CHARS_MAX {
            return Err(OrderError::RequestIdTooLong);
        }
        if asked.actor.trim().is_empty() {
            return Err(OrderError::ActorMissing);
        }
        if asked.actor.chars().count() > ACTOR_CHARS_MAX {
            return Err(OrderError::ActorTooLong);
        }
        if asked.reason.trim().is_empty() {
            return Err(OrderError::ReasonMissing);
        }
        if asked.reason.chars().count() > REASON_CHARS_MAX {
            return Err(OrderError::ReasonTooLong);
        }
        if [&asked.request_id, &asked.actor, &asked.reason].into_iter().any(|text| text.contains('\0')) {
            return Err(OrderError::HasNul);
        }
        Ok(asked)
    }
}

/// What an operator asks of one saga: the payload of a [`SIGNAL`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Order {
    pub(crate) request_id: String,
    pub(crate) verb: Verb,
    pub(crate) actor: String,
    pub(crate) reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    request_id: String,
    verb: Verb,
    actor: String,
    reason: String,
}

/// An order nobody can be asked about later, or that the journal cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// No request id.
    #[error("the request id is missing")]
    RequestIdMissing,
    /// Too long a request id.
    #[error("the request id has more than {REQUEST_ID_CHARS_MAX} characters")]
    RequestIdTooLong,
    /// No actor.
    #[error("the actor is missing")]
    ActorMissing,
    /// Too long an actor.
    #[error("the actor has more than {ACTOR_CHARS_MAX} characters")]
    ActorTooLong,
    /// No reason.
    #[error("the reason is missing")]
    ReasonMissing,
    /// Too long a reason.
    #[error("the reason has more than {REASON_CHARS_MAX} characters")]
    ReasonTooLong,
    /// The database cannot store it.
    #[error("the order has a NUL character in it")]
    HasNul,
    /// Too much in all.
    #[error("the order has more than {ORDER_BYTES_MAX} bytes")]
    TooLarge,
}

impl Order {
    /// The order to do this.
    pub fn new(asked: Asked, verb: Verb) -> Result<Self, OrderError> {
        let Asked { request_id, actor, reason } = asked;
        let order = Self { request_id, verb, actor, reason };
        let json = serde_json::to_value(&order).expect("an order is strings and JSON, which JSON holds");
        if has_nul(&json) {
            return Err(OrderError::HasNul);
        }
        if json.to_string().len() > ORDER_BYTES_MAX {
            return Err(OrderError::TooLarge);
        }
        Ok(order)
    }

    /// The engine's own word to a saga that was parked because no worker knew its version.
    pub(crate) fn known_again() -> Self {
        Self {
            // No caller of SagaService can give such an id.
            request_id: "engine/known_again".into(),
            verb: Verb::Retry,
            actor: "engine".into(),
            reason: "a worker that knows this version started".into(),
        }
    }
}

impl TryFrom<Unchecked> for Order {
    type Error = OrderError;

    fn try_from(Unchecked { request_id, verb, actor, reason }: Unchecked) -> Result<Self, OrderError> {
        Self::new(Asked::new(request_id, actor, reason)?, verb)
    }
}

/// Postgres' `jsonb` holds every character but this one.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The event that an operator's signal becomes: what was asked, and if it is refused, why. It can follow as long as
/// the saga has not ended.
pub fn operated(state: &State, shape: &Shape, payload: &Value, at: DateTime<Utc>) -> Event {
    match Order::deserialize(payload) {
        Ok(Order { request_id, mut verb, actor, reason }) => {
            if let Verb::ResolveStep { step, passes_pivot, .. } = &mut verb {
                *passes_pivot = would_pass_pivot(state, shape, step);
            }
            let refused = judge(state, shape, &verb).err();
            Event::Operated { request_id, verb, actor, reason, at, refused }
        }
        Err(error) => {
            let text = |field: &str| payload[field].as_str().unwrap_or("unknown").to_owned();
            Event::Operated {
                request_id: text("request_id"),
                actor: text("actor"),
                reason: text("reason"),
                verb: Verb::Unknown { order: payload.clone() },
                at,
                refused: Some(format!("the order cannot be read: {error}")),
            }
        }
    }
}

/// Why a verb is refused of a saga that stands like this.
pub fn judge(state: &State, shape: &Shape, verb: &Verb) -> Result<(), String> {
    let whereabouts = || whereabouts(state, shape);
    if matches!(state.phase, Phase::Completed | Phase::Undone) {
        return Err(whereabouts());
    }
    if let Some(step) = shape.lacks(state) {
        return Err(format!("its journal names step {step}, which its definition does not have"));
    }
    match verb {
        Verb::Retry if state.is_paused() => Err(format!("{}; resume it", whereabouts())),
        Verb::Pause if state.parked.is_some() => Err(whereabouts()),
        Verb::Retry | Verb::Pause => Ok(()),
        Verb::Compensate => match state.phase {
            Phase::Forward if state.pivoted => {
                Err(format!("{}; its pivot has begun, and what may be sold is not undone", whereabouts()))
            }
            Phase::Forward => Ok(()),
            _ => Err(whereabouts()),
        },
        Verb::ResolveStep { step, passes_pivot, .. } => {
            known(shape, step)?;
            if state.phase != Phase::Forward {
                return Err(format!("{}; its undo can be resolved", whereabouts()));
            }
            if cursor(state, shape) != shape.index_of(step) {
                return Err(format!("step {step} is not at work: {}", whereabouts()));
            }
            if *passes_pivot != would_pass_pivot(state, shape, step) {
                return Err(format!("{}; the order is mistaken about its pivot", whereabouts()));
            }
            Ok(())
        }
        Verb::ResolveUndo { step } => {
            let index = known(shape, step)?;
            if state.phase != Phase::Undoing {
                return Err(format!("{}; nothing is being undone", whereabouts()));
            }
            if !shape.steps[index].undoable {
                return Err(format!("step {step} has no undo: {}", whereabouts()));
            }
            if state.steps.get(step.as_str()).is_some_and(|entry| entry.undo.done) {
                return Err(format!("step {step} is undone already: {}", whereabouts()));
            }
            Ok(())
        }
        Verb::Resume if state.is_paused() => Ok(()),
        Verb::Resume => Err(format!("it is not paused: {}", whereabouts())),
        Verb::Unknown { .. } => Err(format!("the verb is unknown; {}", whereabouts())),
    }
}

/// Whether to resolve `step` by hand is to pass a pivot that no attempt ever began.
fn would_pass_pivot(state: &State, shape: &Shape, step: &str) -> bool {
    shape.pivot.is_some() && shape.pivot == shape.index_of(step) && !state.pivoted
}

fn known(shape: &Shape, step: &str) -> Result<usize, String> {
    shape.index_of(step).ok_or_else(|| {
        let names: Vec<_> = shape.steps.iter().map(|step| step.name).collect();
        format!("it has no step {step:?}: its steps are {}", names.join(", "))
    })
}

/// Where a saga stands, in words that begin with "it".
fn whereabouts(state: &State, shape: &Shape) -> String {
    let heading = match state.phase {
        Phase::Completed => return "it has ended: every step is done".into(),
        Phase::Undone => return "it has ended: everything is undone".into(),
        Phase::Undoing => "being undone".to_owned(),
        Phase::Forward => match cursor(state, shape) {
            Some(step) if shape.pivot == Some(step) => format!("at its pivot {}", shape.steps[step].name),
            Some(step) => format!("at step {}", shape.steps[step].name),
            None => "past its last step".to_owned(),
        },
    };
    match &state.parked {
        None => format!("it is {heading}"),
        Some(Parked::Paused { reason }) => format!("it is {heading}, {reason}"),
        Some(Parked::Fault { reason }) => format!("it is {heading}, parked: {reason}"),
    }
}
