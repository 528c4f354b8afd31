//! Operators' requests become types that cannot be wrong, with every violation named at once; sagas become messages.

use std::time::Duration;

use proto::orders::v1 as api;
use runtime::status::Violation;
use saga::{
    SagaId, Seq, Status, Verb,
    operate::{ACTOR_CHARS_MAX, Asked, Order as Operation, OrderError, Pause, REASON_CHARS_MAX, Scope},
    operations::{Explained, Filter, Found, JournalEntry, Many, Page, Saga, Told},
};
use uuid::Uuid;

use super::{PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, Violations, page, timestamp};

mod requests;
mod secrets;
#[cfg(test)]
mod tests;

pub use self::requests::{
    Paused, Resumed, compensation, filter, get, pause, resolution, resume, retry, saga_id,
};

/// The answer of ListSagas.
pub fn listed(filter: &Filter, found: &Found, pauses: &[Pause]) -> api::ListSagasResponse {
    let next_page_token = match found.sagas.last() {
        Some(last) if !found.is_last => page::token(last.saga.0, &format!("{filter:?}")),
        _ => String::new(),
    };
    api::ListSagasResponse {
        sagas: found.sagas.iter().map(saga).collect(),
        next_page_token,
        pauses: pauses.iter().map(pause_of).collect(),
    }
}

/// The answer of GetSaga.
pub fn told(told: &Told) -> api::Saga {
    let event = |entry| event(&told.saga.kind, entry);
    api::Saga { events: told.entries.iter().map(event).collect(), ..saga(&told.saga) }
}

/// The answer of ExplainSaga.
pub fn explained(explained: &Explained) -> api::ExplainSagaResponse {
    let explanation = explained.explanation.clone();
    api::ExplainSagaResponse {
        saga: Some(saga(&explained.saga)),
        summary: explanation.summary,
        lease: explanation.lease,
        lease_expire_time: explained.saga.lease_until.map(timestamp),
        next: explanation.next,
        next_time: explanation.next_at.map(timestamp),
        last_error: explanation.last_error.unwrap_or_default(),
        unblocks: explanation.unblocks,
        open_signals: explained.open_signals.clone(),
        pauses: explained.pauses.iter().map(pause_of).collect(),
    }
}

/// The message of a saga, without its events.
pub fn saga(saga: &Saga) -> api::Saga {
    let last_error = saga.last_error.clone().unwrap_or_default();
    let is_parked = saga.status == Status::Parked;
    let trace_id = saga.traceparent.as_deref().and_then(runtime::telemetry::trace_id_of);
    api::Saga {
        saga_id: saga.saga.to_string(),
        kind: saga.kind.clone(),
        version: saga.version,
        state: state(saga.status).into(),
        parked_reason: if is_parked { last_error.clone() } else { String::new() },
        seq: saga.seq.0,
        epoch: saga.epoch.0,
        owner: saga.owner.clone().unwrap_or_default(),
        due_time: saga.due_at.map(timestamp),
        deadline_time: saga.deadline.map(timestamp),
        last_error,
        attributes: saga.attributes.clone().into_iter().collect(),
        trace_id: trace_id.unwrap_or_default().to_owned(),
        create_time: Some(timestamp(saga.created_at)),
        update_time: Some(timestamp(saga.updated_at)),
        finish_time: saga.finished_at.map(timestamp),
        events: Vec::new(),
    }
}

/// The message of a pause.
pub fn pause_of(pause: &Pause) -> api::SagaPause {
    let scope = match &pause.scope {
        Scope::Kind(kind) => api::saga_pause::Scope::Kind(kind.clone()),
        Scope::Participant(participant) => api::saga_pause::Scope::Participant(participant.clone()),
        Scope::Clock => api::saga_pause::Scope::Clock(api::Clock {}),
    };
    api::SagaPause {
        scope: Some(scope),
        actor: pause.actor.clone(),
        reason: pause.reason.clone(),
        create_time: Some(timestamp(pause.since)),
    }
}

fn event(kind: &str, entry: &JournalEntry) -> api::SagaEvent {
    let (event, entry_json) = secrets::shown(kind, &entry.json);
    api::SagaEvent { seq: entry.seq.0, event, entry_json, write_time: entry.written_at.map(timestamp) }
}

fn state(status: Status) -> api::saga::State {
    match status {
        Status::Running => api::saga::State::Running,
        Status::Undoing => api::saga::State::Undoing,
        Status::Completed => api::saga::State::Completed,
        Status::Undone => api::saga::State::Undone,
        Status::Parked => api::saga::State::Parked,
    }
}
