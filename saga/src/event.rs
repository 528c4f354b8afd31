//! What can happen to a saga: the rows of its journal.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One entry of a saga's journal. Times are the database's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
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
    /// The deadline was moved, or lifted.
    DeadlineMoved {
        /// The new one.
        to: Option<DateTime<Utc>>,
    },
    /// The engine cannot go on by itself.
    Parked {
        /// What an operator reads.
        reason: String,
    },
    /// Every step is done.
    Completed,
    /// Every undo is done.
    Undone,
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
#[serde(tag = "cause", rename_all = "snake_case")]
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
}
