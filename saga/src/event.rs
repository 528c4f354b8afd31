//! What can happen to a saga: the rows of its journal.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One entry of a saga's journal. Times are the database's. An entry with a field this version does not know is not
/// read: to act on half of what was recorded is worse than to park.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The saga was started. Always the first entry, and only there.
    Started {
        /// When.
        at: DateTime<Utc>,
        /// What the caller gave it.
        input: Value,
        /// Until when the steps before the pivot may take.
        deadline: Option<DateTime<Utc>>,
        /// W3C trace context of the call that began it.
        traceparent: Option<String>,
        /// The caller's names for it.
        attributes: BTreeMap<String, String>,
    },
    /// A step had its effect.
    StepDone {
        /// The step.
        step: String,
        /// What later steps may read.
        output: Value,
        /// Trace context of the attempt's span.
        span: Option<String>,
    },
    /// A step asks to be asked again.
    StepWaiting {
        /// The step.
        step: String,
        /// When it answered.
        at: DateTime<Utc>,
        /// When to ask again.
        due: DateTime<Utc>,
        /// Whether something is under way.
        progress: Progress,
        /// Trace context of the attempt's span.
        span: Option<String>,
    },
    /// An attempt failed, or its fate is unknown; it will be repeated under the same ids.
    StepFailed {
        /// The step.
        step: String,
        /// When it answered.
        at: DateTime<Utc>,
        /// When to try again.
        due: DateTime<Utc>,
        /// What happened.
        reason: String,
        /// Trace context of the attempt's span.
        span: Option<String>,
    },
    /// The decision to undo. Written before the first undo begins.
    Turned {
        /// Why.
        cause: Cause,
        /// Trace context of the attempt that was refused, if one was.
        span: Option<String>,
    },
    /// The next attempt of the pivot begins: from here on only its answer moves the saga.
    PivotBegun {
        /// The pivot step.
        step: String,
    },
    /// The pivot asked for an earlier step to be run anew, under new ids.
    Restarted {
        /// The step that begins its next round.
        at: String,
        /// Why.
        reason: String,
        /// Trace context of the pivot's span.
        span: Option<String>,
    },
    /// A step was undone, or turned out never to have happened.
    UndoDone {
        /// The step.
        step: String,
    },
    /// An undo failed; it will be repeated.
    UndoFailed {
        /// The step.
        step: String,
        /// When to try again.
        due: DateTime<Utc>,
        /// What happened.
        reason: String,
    },
    /// A signal arrived.
    Signalled {
        /// Its name.
        name: String,
        /// What it says.
        payload: Value,
    },
    /// Somebody gave the saga more time: its deadline is not before this. What its deadline policy may add is untouched.
    Extended {
        /// The earliest deadline from here on.
        until: DateTime<Utc>,
    },
    /// The deadline policy moved the deadline, or lifted it.
    DeadlineMoved {
        /// The new one.
        to: Option<DateTime<Utc>>,
    },
    /// The engine cannot go on by itself.
    Parked {
        /// What an operator reads.
        reason: String,
    },
    /// An operator's verb: what it did, or why it was refused. Either way it stays on record.
    Operated {
        /// The id of the order, which whoever asked gave it.
        request_id: String,
        /// What was asked for.
        verb: Verb,
        /// By whom.
        actor: String,
        /// Why.
        reason: String,
        /// When it was decided on.
        at: DateTime<Utc>,
        /// Why nothing was done, if so.
        refused: Option<String>,
    },
    /// Every step is done.
    Completed,
    /// Every undo is done.
    Undone,
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
            Self::Extended { .. } => "extended",
            Self::DeadlineMoved { .. } => "deadline_moved",
            Self::Parked { .. } => "parked",
            Self::Operated { .. } => "operated",
            Self::Completed => "completed",
            Self::Undone => "undone",
        }
    }

    /// Whether it is the decision to undo, whoever took it.
    pub fn turns(&self) -> bool {
        matches!(self, Self::Turned { .. } | Self::Operated { verb: Verb::Compensate, refused: None, .. })
    }
}

/// What an operator may ask of one saga. No verb marks a saga failed and leaves its stock held, and none undoes what
/// may be sold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Verb {
    /// Go on now, with all attempts anew.
    Retry,
    /// Undo everything.
    Compensate,
    /// The step at work had its effect: somebody saw to it.
    ResolveStep {
        /// The step.
        step: String,
        /// What it would have given.
        output: Value,
        /// It is the pivot, and no attempt of it ever began. Whoever asks leaves this false: `operate::operated` says
        /// so when it is.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        passes_pivot: bool,
    },
    /// The step was undone, or never happened: somebody saw to it.
    ResolveUndo {
        /// The step.
        step: String,
    },
    /// Begin no further attempt until resumed.
    Pause,
    /// End a pause.
    Resume,
    /// Something that this version cannot read, which is why it is always refused.
    Unknown {
        /// As it was sent.
        order: Value,
    },
}

impl Verb {
    /// The verb's name as the journal writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Compensate => "compensate",
            Self::ResolveStep { .. } => "resolve_step",
            Self::ResolveUndo { .. } => "resolve_undo",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// Whether a waiting step has something under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Nobody has done anything yet; at the deadline there is nothing to wait for.
    Idle,
    /// Something is being processed elsewhere; a deadline policy may grant it more time.
    Processing,
}

/// Why a saga turned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case", deny_unknown_fields)]
pub enum Cause {
    /// A participant refused.
    Refused {
        /// The step it refused.
        step: String,
        /// Its stable reason.
        reason: String,
        /// What else it said.
        detail: Value,
    },
    /// A step failed as often as it may.
    Exhausted {
        /// The step.
        step: String,
        /// Its last failure.
        reason: String,
    },
    /// The deadline passed.
    Deadline,
    /// Somebody asked for it.
    Cancelled {
        /// What the signal said.
        payload: Value,
    },
    /// An operator decided it.
    Operator {
        /// Who.
        actor: String,
        /// Why.
        reason: String,
    },
}
