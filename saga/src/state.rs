//! Where a saga stands: a fold over its events, and nothing else. Live running and recovery use the same `apply`;
//! no clock, no store and no transport is known here.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::event::{Cause, Event, Progress, Verb};

mod legal;

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
    pub span: Option<Arc<str>>,
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

/// Why a saga goes on no further by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parked {
    /// The engine cannot go on.
    Fault {
        /// What an operator reads.
        reason: String,
    },
    /// An operator said so.
    Paused {
        /// `paused by <actor>: <reason>`.
        reason: String,
    },
}

/// Where a saga stands. A clone is cheap, whatever the saga carries: it is handed out copy-on-write.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// When it was started.
    pub started_at: DateTime<Utc>,
    /// What the caller gave it.
    pub input: Arc<Value>,
    /// The caller's names for it.
    pub attributes: Arc<BTreeMap<String, String>>,
    /// Trace context of the call that began it.
    pub traceparent: Option<Arc<str>>,
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
    pub parked: Option<Parked>,
    /// The last failure of any step.
    pub last_error: Option<String>,
    /// Trace context of the last recorded attempt.
    pub last_span: Option<Arc<str>>,
    /// Signals in the order they were taken in.
    pub signals: Arc<Vec<Signal>>,
    /// By step name; a step without entry has no recorded answer.
    pub steps: BTreeMap<Arc<str>, Arc<StepState>>,
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
            input: Arc::new(input.clone()),
            attributes: Arc::new(attributes.clone()),
            traceparent: traceparent.as_deref().map(Arc::from),
            phase: Phase::Forward,
            deadline: *deadline,
            extensions: 0,
            pivot_begun: false,
            pivoted: false,
            cause: None,
            parked: None,
            last_error: None,
            last_span: None,
            signals: Arc::default(),
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
        legal::check(self, event)?;
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
                self.last_span = span.as_deref().map(Arc::from);
                let entry = self.entry(at);
                entry.restarts += 1;
                entry.attempts = 0;
                entry.failures = 0;
                entry.output = None;
                entry.waiting = None;
            }
            Event::UndoDone { step } => {
                let undo = &mut self.entry(step).undo;
                undo.done = true;
                undo.due = None;
            }
            Event::UndoFailed { step, due, reason } => {
                let undo = &mut self.entry(step).undo;
                undo.attempts += 1;
                undo.due = Some(*due);
                self.last_error = Some(format!("undo {step}: {reason}"));
            }
            Event::Signalled { name, payload } => {
                // Whoever waits is asked again now, since the signal may be what it waits for. What failed keeps its
                // backoff: signals must not use up its attempts.
                for entry in self.steps.values_mut() {
                    if entry.output.is_none() && entry.failures == 0 && entry.waiting.is_some() {
                        let waiting = Arc::make_mut(entry).waiting.as_mut().expect("it was there a line ago");
                        waiting.due = waiting.due.min(waiting.at);
                    }
                }
                Arc::make_mut(&mut self.signals)
                    .push(Signal { name: name.clone(), payload: payload.clone() });
            }
            Event::Extended { until } => {
                self.deadline = self.deadline.map(|deadline| deadline.max(*until));
            }
            Event::DeadlineMoved { to } => {
                self.deadline = *to;
                self.extensions += 1;
            }
            Event::Parked { reason } => self.parked = Some(Parked::Fault { reason: reason.clone() }),
            Event::Operated { refused: Some(_), .. } => {}
            Event::Operated { verb, actor, reason, at, refused: None, .. } => {
                self.obey(verb, actor, reason, *at);
            }
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

    /// Why it is parked, in words.
    pub fn parked_reason(&self) -> Option<&str> {
        self.parked.as_ref().map(|(Parked::Fault { reason } | Parked::Paused { reason })| reason.as_str())
    }

    /// Whether an operator paused it.
    pub fn is_paused(&self) -> bool {
        matches!(self.parked, Some(Parked::Paused { .. }))
    }

    /// What an operator's verb does, once it was found to be allowed.
    fn obey(&mut self, verb: &Verb, actor: &str, reason: &str, at: DateTime<Utc>) {
        match verb {
            Verb::Retry => {
                // The answer of a begun pivot attempt will not come any more, or it would not be parked: the next
                // attempt has a record of its own.
                self.pivot_begun &= self.parked.is_none();
                self.parked = None;
                for entry in self.steps.values_mut() {
                    let entry = Arc::make_mut(entry);
                    if entry.output.is_none() {
                        entry.failures = 0;
                        entry.waiting.iter_mut().for_each(|waiting| waiting.due = at);
                    }
                    if !entry.undo.done {
                        entry.undo.attempts = 0;
                        entry.undo.due = entry.undo.due.map(|_| at);
                    }
                }
            }
            Verb::Compensate => {
                self.parked = None;
                self.phase = Phase::Undoing;
                self.deadline = None;
                self.cause = Some(Cause::Operator { actor: actor.to_owned(), reason: reason.to_owned() });
            }
            Verb::ResolveStep { step, output, passes_pivot } => {
                let entry = self.entry(step);
                entry.output = Some(output.clone());
                entry.waiting = None;
                entry.failures = 0;
                self.pivot_begun = false;
                if *passes_pivot {
                    self.pivoted = true;
                    self.deadline = None;
                }
                self.mend();
            }
            Verb::ResolveUndo { step } => {
                let undo = &mut self.entry(step).undo;
                undo.done = true;
                undo.due = None;
                self.mend();
            }
            Verb::Pause => {
                self.parked = Some(Parked::Paused { reason: format!("paused by {actor}: {reason}") });
            }
            Verb::Resume => self.parked = None,
            Verb::Unknown { .. } => {}
        }
    }

    /// What parked it is mended. A pause stays until it is resumed.
    fn mend(&mut self) {
        if !self.is_paused() {
            self.parked = None;
        }
    }

    fn answered(&mut self, step: &str, span: Option<&String>) -> &mut StepState {
        let span: Option<Arc<str>> = span.map(|span| Arc::from(span.as_str()));
        if span.is_some() {
            self.last_span.clone_from(&span);
        }
        let entry = self.entry(step);
        entry.attempts += 1;
        if span.is_some() {
            entry.span = span;
        }
        entry
    }

    fn entry(&mut self, step: &str) -> &mut StepState {
        if !self.steps.contains_key(step) {
            self.steps.insert(Arc::from(step), Arc::default());
        }
        Arc::make_mut(self.steps.get_mut(step).expect("it was put there if it was missing"))
    }
}
