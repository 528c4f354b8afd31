//! What may follow in a journal, by phase. Every event has a line here, so that a new one must be thought about.
//! Whether an operator's verb is wise is judged in `operate.rs`; here is only what must hold of any journal.

use super::{Illegal, Phase, State};
use crate::event::{Cause, Event, Verb};

/// Whether `event` may follow.
pub(super) fn check(state: &State, event: &Event) -> Result<(), Illegal> {
    let forward = state.phase == Phase::Forward;
    let undoing = state.phase == Phase::Undoing;
    let not_done = |step: &str| state.steps.get(step).is_none_or(|entry| entry.output.is_none());
    let not_undone = |step: &str| state.steps.get(step).is_none_or(|entry| !entry.undo.done);
    let legal = match event {
        Event::Started { .. } => false,
        Event::StepDone { step, .. } | Event::StepWaiting { step, .. } | Event::StepFailed { step, .. } => {
            forward && not_done(step)
        }
        Event::Turned { cause, .. } => {
            // Once a pivot attempt began, only a participant's refusal can still turn the saga.
            forward && (!state.pivoted || matches!(cause, Cause::Refused { .. } | Cause::Exhausted { .. }))
        }
        Event::PivotBegun { step } => forward && !state.pivot_begun && not_done(step),
        Event::Restarted { .. } => forward && state.pivot_begun,
        Event::UndoDone { step } | Event::UndoFailed { step, .. } => undoing && not_undone(step),
        Event::Extended { .. } => forward && !state.pivoted && state.deadline.is_some(),
        Event::DeadlineMoved { .. } => forward && !state.pivoted,
        Event::Signalled { .. } | Event::Parked { .. } | Event::Operated { refused: Some(_), .. } => {
            forward || undoing
        }
        Event::Operated { verb, refused: None, .. } => match verb {
            Verb::Retry => (forward || undoing) && !state.is_paused(),
            Verb::Compensate => forward && !state.pivoted,
            Verb::ResolveStep { step, passes_pivot, .. } => {
                forward && not_done(step) && !(*passes_pivot && state.pivoted)
            }
            Verb::ResolveUndo { step } => undoing && not_undone(step),
            Verb::Pause => (forward || undoing) && state.parked.is_none(),
            Verb::Resume => (forward || undoing) && state.is_paused(),
            Verb::Unknown { .. } => false,
        },
        Event::Completed => forward && !state.pivot_begun,
        Event::Undone => undoing,
    };
    // A parked saga moves by an operator's word only.
    if legal && (state.parked.is_none() || matches!(event, Event::Operated { .. })) {
        return Ok(());
    }
    let parked = if state.parked.is_some() { ", parked" } else { "" };
    Err(Illegal { event: event.name(), phase: format!("{:?}{parked}", state.phase) })
}
