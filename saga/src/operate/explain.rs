//! What an operator reads of one saga: who has it, what happens next and when, what went wrong last, and what would
//! unblock it. Pure: whoever reads the row, the journal and the leases hands them in as a [`View`].

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::Value;

use super::{
    SIGNAL, judge,
    view::{Explanation, Pause, Scope, View},
    whereabouts, would_pass_pivot,
};
use crate::{
    decide::{Next, Shape, cursor, decide, to_undo},
    event::{Event, Verb},
    journal::Status,
    state::{Phase, State},
};

/// What an operator is told of a saga.
pub fn explain(view: &View<'_>) -> Explanation {
    let folded = view.state.ok();
    let known = folded.zip(view.shape).filter(|(state, shape)| shape.lacks(state).is_none());
    let (next, next_at) = next(view, known);
    Explanation {
        summary: summary(view, known),
        owner: view.owner.map(|owner| owner.name.to_owned()),
        lease: lease(view),
        next,
        next_at,
        last_error: view.last_error.or_else(|| folded?.last_error.as_deref()).map(ToOwned::to_owned),
        unblocks: unblocks(view, known),
    }
}

/// A saga whose journal says "go on", and whose row says "parked": its journal could not be continued.
fn parked_by_row(view: &View<'_>) -> bool {
    view.status == Status::Parked && view.state.is_ok_and(|state| state.parked.is_none())
}

fn summary(view: &View<'_>, known: Option<(&State, &Shape)>) -> String {
    let whereabouts = match (view.state, known) {
        (Err(error), _) => format!("its journal cannot be read: {error}"),
        (Ok(_), None) => format!("its status is {}; its definition is not known here", view.status.as_str()),
        (Ok(state), Some((_, shape))) => whereabouts(state, shape),
    };
    let row = match view.last_error {
        _ if !parked_by_row(view) => String::new(),
        Some(reason) => format!(", parked by its row: {reason}"),
        None => ", parked by its row".to_owned(),
    };
    let claims = match view.claims {
        2.. if !view.status.is_final() => format!("; claimed {} times without progress", view.claims),
        _ => String::new(),
    };
    format!("{} (version {}): {whereabouts}{row}{claims}", view.kind, view.version)
}

fn lease(view: &View<'_>) -> String {
    match view.owner {
        None => "nobody has it".into(),
        Some(owner) if owner.lease_until >= view.now => {
            format!("held for another {}", span(owner.lease_until - view.now))
        }
        Some(owner) => format!("ended {} ago: anyone may take it over", span(view.now - owner.lease_until)),
    }
}

/// What happens next by itself, and when.
fn next(view: &View<'_>, known: Option<(&State, &Shape)>) -> (String, Option<DateTime<Utc>>) {
    if view.status.is_end() {
        return ("nothing: it has ended".into(), None);
    }
    let is_parked = view.status == Status::Parked || view.state.is_ok_and(|state| state.parked.is_some());
    if is_parked && view.open_signals.iter().any(|name| name == SIGNAL) {
        return ("an operator's order is taken in".into(), None);
    }
    if is_parked {
        return ("nothing, until an operator says so".into(), None);
    }
    let Some((state, shape)) = known else {
        return (
            "nothing here: a worker that has its definition and can read its journal must take it".into(),
            None,
        );
    };
    if let Some(pause) = view.pauses.iter().find(|pause| holds_whole(view, pause)) {
        return (format!("nothing while {} is paused", pause.scope), None);
    }
    let decided = decide(state, shape, view.now);
    let (what, when) = describe(&decided, state, shape);
    let steps = at_hand(&decided, state, shape);
    let held = match view.pauses.iter().find(|pause| holds_step(pause, shape, &steps)) {
        None => String::new(),
        Some(pause) => format!(", once {} is no longer paused", pause.scope),
    };
    let text = what + &held;
    if let Some(first) = view.open_signals.first() {
        let more = view.open_signals.len() - 1;
        let others = if more == 0 { String::new() } else { format!(" and {more} more") };
        return (format!("signal {first:?}{others} is taken in; as it stands: {text}"), None);
    }
    match (view.owner, when) {
        (Some(owner), when) if owner.lease_until < view.now => {
            (format!("another worker takes it over; then: {text}"), when)
        }
        (None, _) => {
            let when = view.due_at.or(when);
            (format!("a worker picks it up; then: {text}"), when.filter(|when| *when > view.now))
        }
        (Some(_), when) => (text, when),
    }
}

/// A decision in words, and what it waits for.
fn describe(decided: &Next, state: &State, shape: &Shape) -> (String, Option<DateTime<Utc>>) {
    let names = |steps: &[usize]| {
        let names: Vec<_> = steps.iter().map(|step| shape.steps[*step].name).collect();
        names.join(", ")
    };
    let at_work = || cursor(state, shape).map_or("nothing", |step| shape.steps[step].name);
    match decided {
        Next::Rest => ("nothing, until an operator says so".to_owned(), None),
        Next::Record(Event::Turned { .. }) => ("its deadline has passed: everything is undone".into(), None),
        Next::Record(Event::DeadlineMoved { .. }) => ("its deadline is moved".into(), None),
        Next::Record(Event::PivotBegun { step }) => (format!("the pivot {step} is tried"), None),
        Next::Record(Event::Completed | Event::Undone) => ("it ends".into(), None),
        Next::Record(Event::Parked { .. }) => ("it is parked".into(), None),
        Next::Record(event) => (format!("{} is recorded", event.name()), None),
        Next::Run { step, last_ask: true } => {
            (format!("its deadline has passed: step {} is asked once more", shape.steps[*step].name), None)
        }
        Next::Run { step, last_ask: false } => (format!("step {} is tried", shape.steps[*step].name), None),
        Next::Undo { steps } => (format!("the undo of {} is tried", names(steps)), None),
        Next::Wait { until } if state.phase == Phase::Undoing => {
            (format!("the undo of {} is tried again", names(&to_undo(state, shape))), Some(*until))
        }
        Next::Wait { until } if state.deadline == Some(*until) => {
            (format!("its deadline passes: step {} is asked once more", at_work()), Some(*until))
        }
        Next::Wait { until } => (format!("step {} is asked again", at_work()), Some(*until)),
    }
}

/// Steps that are called next, or when the wait is over.
fn at_hand(next: &Next, state: &State, shape: &Shape) -> Vec<usize> {
    match next {
        Next::Run { step, .. } => vec![*step],
        Next::Undo { steps } => steps.clone(),
        Next::Wait { .. } if state.phase == Phase::Undoing => to_undo(state, shape),
        Next::Wait { .. } | Next::Record(Event::PivotBegun { .. }) => {
            cursor(state, shape).into_iter().collect()
        }
        Next::Record(Event::Turned { .. }) => to_undo(state, shape),
        Next::Rest | Next::Record(_) => Vec::new(),
    }
}

/// Whether a pause holds the saga altogether.
fn holds_whole(view: &View<'_>, pause: &Pause) -> bool {
    match &pause.scope {
        Scope::Kind(kind) => kind == view.kind,
        Scope::Participant(_) => false,
        Scope::Clock => view.due_at.is_some(),
    }
}

/// Whether a pause holds one of these steps.
fn holds_step(pause: &Pause, shape: &Shape, steps: &[usize]) -> bool {
    match &pause.scope {
        Scope::Participant(paused) => steps.iter().any(|step| shape.steps[*step].participant == paused),
        Scope::Kind(_) | Scope::Clock => false,
    }
}

fn unblocks(view: &View<'_>, known: Option<(&State, &Shape)>) -> Vec<String> {
    if view.status.is_end() {
        return Vec::new();
    }
    let Some((state, shape)) = known else {
        return vec![match view.state {
            Err(_) => "repair its journal, or run a version of the engine that can read it".to_owned(),
            Ok(_) => format!("run a worker that has {} version {}", view.kind, view.version),
        }];
    };
    let decided = decide(state, shape, view.now);
    let steps = at_hand(&decided, state, shape);
    let holding =
        view.pauses.iter().filter(|pause| holds_whole(view, pause) || holds_step(pause, shape, &steps));
    let mut all: Vec<String> = holding
        .map(|pause| format!("resume {}: paused by {}: {}", pause.scope, pause.actor, pause.reason))
        .collect();
    let stuck = view.status == Status::Parked
        || state.parked.is_some()
        || matches!(decided, Next::Wait { .. })
        || !all.is_empty();
    if stuck {
        let allowed = candidates(state, shape).into_iter().filter_map(|(verb, text)| {
            judge(state, shape, &verb).ok()?;
            Some(format!("{text}; then: {}", outcome(verb, view.now, state, shape)))
        });
        all.extend(allowed);
    }
    all
}

/// What might help, most harmless first. Whether it is allowed is for `judge` to say.
fn candidates(state: &State, shape: &Shape) -> Vec<(Verb, String)> {
    let mut all = vec![
        (Verb::Resume, "resume: it goes on where it was paused".to_owned()),
        (Verb::Retry, "retry: it goes on now, with all attempts anew".to_owned()),
    ];
    if let Some(step) = cursor(state, shape).map(|step| shape.steps[step].name.to_owned()) {
        let text = format!("resolve_step {step}: only if it had its effect; say what it gave");
        let passes_pivot = would_pass_pivot(state, shape, &step);
        all.push((Verb::ResolveStep { step, output: Value::Null, passes_pivot }, text));
    }
    for step in to_undo(state, shape) {
        let step = shape.steps[step].name.to_owned();
        let text = format!("resolve_undo {step}: only if it is undone, or never happened");
        all.push((Verb::ResolveUndo { step }, text));
    }
    all.push((Verb::Compensate, "compensate: everything is undone".to_owned()));
    all
}

/// What happens next after a verb that is allowed: it is tried on a copy.
fn outcome(verb: Verb, at: DateTime<Utc>, state: &State, shape: &Shape) -> String {
    let mut after = state.clone();
    let event = Event::Operated {
        request_id: String::new(),
        verb,
        actor: String::new(),
        reason: String::new(),
        at,
        refused: None,
    };
    after.apply(&event).expect("what the judge allows can follow");
    match describe(&decide(&after, shape, at), &after, shape) {
        (what, None) => what,
        (what, Some(when)) => format!("{what} at {}", when.to_rfc3339_opts(SecondsFormat::Secs, true)),
    }
}

/// A duration as people read it.
fn span(delta: TimeDelta) -> String {
    let seconds = delta.num_seconds();
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
