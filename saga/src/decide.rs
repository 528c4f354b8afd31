//! What a saga does next: a pure function of its state, its definition's shape and the time.

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use crate::{
    event::{Cause, Event, Progress},
    retry::Retry,
    state::{Phase, State},
};

/// What `decide` needs to know of a definition.
#[derive(Debug, Clone)]
pub struct Shape {
    /// In forward order.
    pub steps: Vec<StepShape>,
    /// The step after which the saga only goes forward.
    pub pivot: Option<usize>,
    /// Asked when the deadline passed and the step at work answered once more.
    pub at_deadline: DeadlinePolicy,
}

impl Shape {
    /// A step that the state knows and the definition does not: then the journal was written by another definition,
    /// and nothing may be decided on it.
    pub fn lacks<'s>(&self, state: &'s State) -> Option<&'s str> {
        state.steps.keys().map(|name| &**name).find(|name| self.index_of(name).is_none())
    }

    /// Where the step of this name stands.
    pub fn index_of(&self, step: &str) -> Option<usize> {
        self.steps.iter().position(|known| known.name == step)
    }
}

/// Answers when the deadline passed and the step at work answered once more. Must be pure.
#[derive(Clone)]
pub struct DeadlinePolicy(pub Arc<dyn Fn(DeadlineView) -> AtDeadline + Send + Sync>);

impl fmt::Debug for DeadlinePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeadlinePolicy")
    }
}

/// One step, as far as decisions go.
#[derive(Debug, Clone)]
pub struct StepShape {
    /// Its name, unique in the definition.
    pub name: &'static str,
    /// Who is called: the scope of breakers, retry budgets and pauses.
    pub participant: &'static str,
    /// How often it is tried.
    pub retry: Retry,
    /// How often its undo is tried.
    pub undo_retry: Retry,
    /// Whether it has an undo.
    pub undoable: bool,
    /// Whether everything recorded must be on disk before an attempt begins.
    pub durable_before: bool,
}

/// What a deadline policy is shown.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineView {
    /// What the step at work last said.
    pub progress: Progress,
    /// How often the deadline was moved already.
    pub extensions: u32,
}

/// What a deadline policy answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtDeadline {
    /// Go on as if there were no deadline.
    Proceed,
    /// Move the deadline by this much.
    Extend(Duration),
    /// Undo everything.
    Turn,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Nothing: it ended or is parked.
    Rest,
    /// Record this, and ask again.
    Record(Event),
    /// Run one attempt of a step. `last_ask`: the deadline has passed, this is the last question before the turn.
    Run {
        /// Index in the shape.
        step: usize,
        /// Whether the deadline has passed.
        last_ask: bool,
    },
    /// Nothing until then.
    Wait {
        /// When to ask again.
        until: DateTime<Utc>,
    },
    /// Run one undo attempt of each of these side by side, started in this order.
    Undo {
        /// Indices in the shape, last step first.
        steps: Vec<usize>,
    },
}

/// What to do next.
pub fn decide(state: &State, shape: &Shape, now: DateTime<Utc>) -> Next {
    if state.parked.is_some() {
        return Next::Rest;
    }
    match state.phase {
        Phase::Completed | Phase::Undone => Next::Rest,
        Phase::Forward => forward(state, shape, now),
        Phase::Undoing => undoing(state, shape, now),
    }
}

fn forward(state: &State, shape: &Shape, now: DateTime<Utc>) -> Next {
    let Some(cursor) = cursor(state, shape) else { return Next::Record(Event::Completed) };
    let step = &shape.steps[cursor];
    let waiting = state.steps.get(step.name).and_then(|entry| entry.waiting.as_ref());
    let armed = state.deadline.filter(|_| shape.pivot.is_none_or(|pivot| cursor < pivot));

    if let Some(deadline) = armed.filter(|deadline| now >= *deadline) {
        return match waiting {
            // Nothing is under way, so there is nobody to ask.
            None => Next::Record(Event::Turned { cause: Cause::Deadline, span: None }),
            Some(answer) if answer.at < deadline => Next::Run { step: cursor, last_ask: true },
            Some(answer) => {
                let view = DeadlineView { progress: answer.progress, extensions: state.extensions };
                Next::Record(match (shape.at_deadline.0)(view) {
                    AtDeadline::Proceed => Event::DeadlineMoved { to: None },
                    AtDeadline::Extend(by) => Event::DeadlineMoved { to: Some(later(deadline, by)) },
                    AtDeadline::Turn => Event::Turned { cause: Cause::Deadline, span: None },
                })
            }
        };
    }
    if let Some(until) = waiting.map(|answer| answer.due).filter(|due| *due > now) {
        return Next::Wait { until: armed.map_or(until, |deadline| deadline.min(until)) };
    }
    if shape.pivot == Some(cursor) && !state.pivot_begun {
        return Next::Record(Event::PivotBegun { step: step.name.to_owned() });
    }
    Next::Run { step: cursor, last_ask: false }
}

fn undoing(state: &State, shape: &Shape, now: DateTime<Utc>) -> Next {
    let open = to_undo(state, shape);
    if open.is_empty() {
        return Next::Record(Event::Undone);
    }
    let undo_of = |step: &usize| state.steps.get(shape.steps[*step].name).map(|entry| &entry.undo);
    let spent = |step: &usize| {
        undo_of(step).is_some_and(|undo| undo.attempts >= shape.steps[*step].undo_retry.attempts_max)
    };
    // A stuck undo must not hold up the others: it parks the saga only when nothing else is left to do.
    let open: Vec<usize> = open.into_iter().filter(|step| !spent(step)).collect();
    if open.is_empty() {
        let reason = state.last_error.clone().unwrap_or_default();
        return Next::Record(Event::Parked { reason: format!("undo keeps failing: {reason}") });
    }
    let due_of = |step: &usize| undo_of(step).and_then(|undo| undo.due).filter(|due| *due > now);
    let ready: Vec<usize> = open.iter().copied().filter(|step| due_of(step).is_none()).collect();
    if ready.is_empty() {
        let until =
            open.iter().filter_map(due_of).min().expect("no open undo is ready, so each has a due time");
        return Next::Wait { until };
    }
    Next::Undo { steps: ready }
}

/// `then` plus `by`. A time nobody lives to see is as good as any later one.
fn later(then: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    let by = TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX).min(WAIT_MAX);
    then.checked_add_signed(by).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// No single wait is longer: a thousand years.
const WAIT_MAX: TimeDelta = TimeDelta::days(365_250);

/// The first step that is not done.
pub fn cursor(state: &State, shape: &Shape) -> Option<usize> {
    shape.steps.iter().position(|step| state.steps.get(step.name).is_none_or(|entry| entry.output.is_none()))
}

/// Every step that has an undo and is not undone, last first; also one that this saga never asked. Its record may be
/// lost, its answer may never have come, and what it does may be done by others in the saga's name (a customer pays
/// before the goods are reserved). An undo of something that never happened leaves a tombstone, which is what keeps it
/// from happening later.
pub(crate) fn to_undo(state: &State, shape: &Shape) -> Vec<usize> {
    let open =
        |step: &StepShape| step.undoable && state.steps.get(step.name).is_none_or(|entry| !entry.undo.done);
    (0..shape.steps.len()).rev().filter(|index| open(&shape.steps[*index])).collect()
}

/// One attempt's answer, stripped of its type.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It had its effect.
    Done(Value),
    /// Ask again later.
    Pending {
        /// After this long.
        ask_again_after: Duration,
        /// Whether something is under way.
        progress: Progress,
    },
    /// Failed, or its fate is unknown.
    Retry(String),
    /// Refused: it had no effect and never will.
    Abort {
        /// A stable reason.
        reason: String,
        /// What else the participant said.
        detail: Value,
    },
    /// Something is wrong that no retry and no undo mends.
    Park(String),
    /// Only from a pivot: run an earlier step anew.
    Restart {
        /// That step.
        at: &'static str,
        /// How often at most.
        max: u32,
        /// Why.
        reason: String,
    },
}

/// What an answer of step `index` records.
pub fn record(
    state: &State,
    shape: &Shape,
    index: usize,
    answer: Answer,
    now: DateTime<Utc>,
    jitter: f64,
    span: Option<String>,
) -> Event {
    let step = &shape.steps[index];
    let name = step.name.to_owned();
    let at_or_past_pivot = shape.pivot.is_some_and(|pivot| index >= pivot);
    match answer {
        Answer::Done(output) => Event::StepDone { step: name, output, span },
        Answer::Pending { ask_again_after, progress } => {
            Event::StepWaiting { step: name, at: now, due: later(now, ask_again_after), progress, span }
        }
        Answer::Retry(reason) => {
            let failures = state.steps.get(step.name).map_or(0, |entry| entry.failures) + 1;
            if failures < step.retry.attempts_max {
                let due = later(now, step.retry.wait(failures, jitter));
                Event::StepFailed { step: name, at: now, due, reason, span }
            } else if at_or_past_pivot {
                Event::Parked { reason: format!("{name} failed {failures} times: {reason}") }
            } else {
                Event::Turned { cause: Cause::Exhausted { step: name, reason }, span }
            }
        }
        Answer::Abort { reason, detail } => {
            if shape.pivot.is_some_and(|pivot| index > pivot) {
                Event::Parked { reason: format!("{name} was refused after the pivot: {reason}") }
            } else {
                Event::Turned { cause: Cause::Refused { step: name, reason, detail }, span }
            }
        }
        Answer::Park(reason) => Event::Parked { reason: format!("{name}: {reason}") },
        Answer::Restart { at, max, reason } => {
            let known =
                shape.pivot == Some(index) && shape.steps[..index].iter().any(|earlier| earlier.name == at);
            let restarts = state.steps.get(at).map_or(0, |entry| entry.restarts);
            if !known {
                Event::Parked {
                    reason: format!(
                        "{name} asked to restart {at:?}, which only a pivot may, and only a step before it"
                    ),
                }
            } else if restarts < max {
                Event::Restarted { at: at.to_owned(), reason, span }
            } else {
                Event::Turned { cause: Cause::Refused { step: name, reason, detail: Value::Null }, span }
            }
        }
    }
}

/// What a failed undo attempt of step `index` records.
pub fn record_failed_undo(
    state: &State,
    shape: &Shape,
    index: usize,
    reason: String,
    now: DateTime<Utc>,
    jitter: f64,
) -> Event {
    let step = &shape.steps[index];
    let attempts = state.steps.get(step.name).map_or(0, |entry| entry.undo.attempts) + 1;
    Event::UndoFailed {
        step: step.name.to_owned(),
        due: later(now, step.undo_retry.wait(attempts, jitter)),
        reason,
    }
}

#[cfg(test)]
mod tests;
