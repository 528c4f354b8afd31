//! Where a saga stands: a fold over its events, and nothing else. Live running and recovery use the same `apply`;
//! no clock, no store and no transport is known here.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::event::{Cause, Event, Progress};

/// Which way a saga is going, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Steps are run.
    Forward,
    /// Steps are undone.
    Undoing,
    /// Ended: every step is done.
    Completed,
    /// Ended: every step is undone.
    Undone,
}

/// What is known of one step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepState {
    /// Attempts of the present round whose answer is recorded.
    pub attempts: u32,
    /// How many of the last ones failed in a row: a patient answer is no failure.
    pub failures: u32,
    /// Earlier rounds; ids of round n derive from `rounds + 1`.
    pub restarts: u32,
    /// What it gave, once done.
    pub output: Option<Value>,
    /// The last answer that was not final.
    pub waiting: Option<Waiting>,
    /// Trace context of its last recorded attempt.
    pub span: Option<String>,
    /// How far its undo is.
    pub undo: UndoState,
}

/// A step that will be asked again.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// When it answered.
    pub at: DateTime<Utc>,
    /// When to ask again.
    pub due: DateTime<Utc>,
    /// Whether something is under way.
    pub progress: Progress,
}

/// How far the undo of a step is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UndoState {
    /// Attempts whose answer is recorded.
    pub attempts: u32,
    /// When to try again.
    pub due: Option<DateTime<Utc>>,
    /// Whether it is done.
    pub done: bool,
}

/// A signal that was taken in.
#[derive(Debug, Clone, PartialEq)]
pub struct Signal {
    /// Its name.
    pub name: String,
    /// What it says.
    pub payload: Value,
}

/// Where a saga stands.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// When it was started.
    pub started_at: DateTime<Utc>,
    /// What the caller gave it.
    pub input: Value,
    /// The caller's names for it.
    pub attributes: BTreeMap<String, String>,
    /// Trace context of the call that began it.
    pub traceparent: Option<String>,
    /// Which way it is going.
    pub phase: Phase,
    /// Until when the steps before the pivot may take.
    pub deadline: Option<DateTime<Utc>>,
    /// How often the deadline was moved.
    pub extensions: u32,
    /// A recorded `PivotBegun` whose answer is not.
    pub pivot_begun: bool,
    /// Whether any pivot attempt ever began: from then on nobody can cancel.
    pub pivoted: bool,
    /// Why it turned.
    pub cause: Option<Cause>,
    /// Why it is parked.
    pub parked: Option<String>,
    /// The last failure of any step.
    pub last_error: Option<String>,
    /// Trace context of the last recorded attempt.
    pub last_span: Option<String>,
    /// Signals in the order they were taken in.
    pub signals: Vec<Signal>,
    /// By step name; a step without entry has no recorded answer.
    pub steps: BTreeMap<String, StepState>,
}

/// An event that cannot follow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {event} cannot follow in phase {phase}")]
pub struct Illegal {
    /// The event's name.
    pub event: &'static str,
    /// Where the saga stood.
    pub phase: String,
}

impl State {
    /// The state after the first event, which must be `Started`.
    pub fn start(event: &Event) -> Result<Self, Illegal> {
        let Event::Started { at, input, deadline, traceparent, attributes } = event else {
            return Err(Illegal { event: event.name(), phase: "not started".into() });
        };
        Ok(Self {
            started_at: *at,
            input: input.clone(),
            attributes: attributes.clone(),
            traceparent: traceparent.clone(),
            phase: Phase::Forward,
            deadline: *deadline,
            extensions: 0,
            pivot_begun: false,
            pivoted: false,
            cause: None,
            parked: None,
            last_error: None,
            last_span: None,
            signals: Vec::new(),
            steps: BTreeMap::new(),
        })
    }

    /// Folds a whole journal.
    pub fn replay<'e>(events: impl IntoIterator<Item = &'e Event>) -> Result<Self, Illegal> {
        let mut events = events.into_iter();
        let first = events.next().ok_or(Illegal { event: "nothing", phase: "not started".into() })?;
        events.try_fold(Self::start(first)?, |mut state, event| {
            state.apply(event)?;
            Ok(state)
        })
    }

    /// Takes one event in. On `Err` nothing changed.
    pub fn apply(&mut self, event: &Event) -> Result<(), Illegal> {
        self.check(event)?;
        match event {
            Event::Started { .. } => unreachable!("check refuses a second start"),
            Event::StepDone { step, output, span } => {
                let entry = self.answered(step, span.as_ref());
                entry.output = Some(output.clone());
                entry.waiting = None;
                self.pivot_begun = false;
            }
            Event::StepWaiting { step, at, due, progress, span } => {
                let entry = self.answered(step, span.as_ref());
                entry.failures = 0;
                entry.waiting = Some(Waiting { at: *at, due: *due, progress: *progress });
                self.pivot_begun = false;
            }
            Event::StepFailed { step, at, due, reason, span } => {
                let entry = self.answered(step, span.as_ref());
                entry.failures += 1;
                let progress = entry.waiting.as_ref().map_or(Progress::Idle, |before| before.progress);
                entry.waiting = Some(Waiting { at: *at, due: *due, progress });
                self.last_error = Some(format!("{step}: {reason}"));
                self.pivot_begun = false;
            }
            Event::Turned { cause, span } => {
                if let (Cause::Refused { step, .. } | Cause::Exhausted { step, .. }, Some(_)) = (cause, span)
                {
                    self.answered(step, span.as_ref());
                }
                self.phase = Phase::Undoing;
                self.deadline = None;
                self.pivot_begun = false;
                self.cause = Some(cause.clone());
            }
            Event::PivotBegun { .. } => {
                self.pivot_begun = true;
                self.pivoted = true;
                self.deadline = None;
            }
            Event::Restarted { at, reason, span } => {
                self.pivot_begun = false;
                self.last_error = Some(reason.clone());
                self.last_span.clone_from(span);
                let entry = self.steps.entry(at.clone()).or_default();
                entry.restarts += 1;
                entry.attempts = 0;
                entry.failures = 0;
                entry.output = None;
                entry.waiting = None;
            }
            Event::UndoDone { step } => {
                let undo = &mut self.steps.entry(step.clone()).or_default().undo;
                undo.done = true;
                undo.due = None;
            }
            Event::UndoFailed { step, due, reason } => {
                let undo = &mut self.steps.entry(step.clone()).or_default().undo;
                undo.attempts += 1;
                undo.due = Some(*due);
                self.last_error = Some(format!("undo {step}: {reason}"));
            }
            Event::Signalled { name, payload } => {
                // Whoever waits is asked again now, since the signal may be what it waits for. What failed keeps its
                // backoff: signals must not use up its attempts.
                for entry in self.steps.values_mut() {
                    if let (None, 0, Some(waiting)) = (&entry.output, entry.failures, &mut entry.waiting) {
                        waiting.due = waiting.due.min(waiting.at);
                    }
                }
                self.signals.push(Signal { name: name.clone(), payload: payload.clone() });
            }
            Event::DeadlineMoved { to } => {
                self.deadline = *to;
                self.extensions += 1;
            }
            Event::Parked { reason } => self.parked = Some(reason.clone()),
            Event::Completed => self.phase = Phase::Completed,
            Event::Undone => self.phase = Phase::Undone,
        }
        Ok(())
    }

    /// Whether the saga has ended or waits for an operator.
    pub fn at_end(&self) -> bool {
        self.parked.is_some() || matches!(self.phase, Phase::Completed | Phase::Undone)
    }

    /// The payloads of signals of this name, oldest first.
    pub fn signals_named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Value> {
        self.signals.iter().filter(move |signal| signal.name == name).map(|signal| &signal.payload)
    }

    fn answered(&mut self, step: &str, span: Option<&String>) -> &mut StepState {
        if let Some(span) = span {
            self.last_span = Some(span.clone());
        }
        let entry = self.steps.entry(step.to_owned()).or_default();
        entry.attempts += 1;
        if let Some(span) = span {
            entry.span = Some(span.clone());
        }
        entry
    }

    /// What may follow, by phase. Every event has a line here, so that a new one must be thought about.
    fn check(&self, event: &Event) -> Result<(), Illegal> {
        let forward = self.phase == Phase::Forward;
        let undoing = self.phase == Phase::Undoing;
        let legal = match event {
            Event::Started { .. } => false,
            Event::StepDone { step, .. }
            | Event::StepWaiting { step, .. }
            | Event::StepFailed { step, .. } => {
                forward && self.steps.get(step).is_none_or(|entry| entry.output.is_none())
            }
            Event::Turned { cause, .. } => {
                // Once a pivot attempt began, only a participant's refusal can still turn the saga.
                forward && (!self.pivoted || matches!(cause, Cause::Refused { .. } | Cause::Exhausted { .. }))
            }
            Event::PivotBegun { step } => {
                forward
                    && !self.pivot_begun
                    && self.steps.get(step).is_none_or(|entry| entry.output.is_none())
            }
            Event::Restarted { .. } => forward && self.pivot_begun,
            Event::UndoDone { step } | Event::UndoFailed { step, .. } => {
                undoing && self.steps.get(step).is_none_or(|entry| !entry.undo.done)
            }
            Event::DeadlineMoved { .. } => forward && !self.pivoted,
            Event::Signalled { .. } | Event::Parked { .. } => forward || undoing,
            Event::Completed => forward && !self.pivot_begun,
            Event::Undone => undoing,
        };
        if legal && self.parked.is_none() {
            return Ok(());
        }
        let parked = if self.parked.is_some() { ", parked" } else { "" };
        Err(Illegal { event: event.name(), phase: format!("{:?}{parked}", self.phase) })
    }
}

impl Event {
    /// The event's name as the journal writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::StepDone { .. } => "step_done",
            Self::StepWaiting { .. } => "step_waiting",
            Self::StepFailed { .. } => "step_failed",
            Self::Turned { .. } => "turned",
            Self::PivotBegun { .. } => "pivot_begun",
            Self::Restarted { .. } => "restarted",
            Self::UndoDone { .. } => "undo_done",
            Self::UndoFailed { .. } => "undo_failed",
            Self::Signalled { .. } => "signalled",
            Self::DeadlineMoved { .. } => "deadline_moved",
            Self::Parked { .. } => "parked",
            Self::Completed => "completed",
            Self::Undone => "undone",
        }
    }
}
