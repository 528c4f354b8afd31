use std::fmt::Write as _;

use chrono::TimeDelta;
use serde_json::json;

use super::*;
use crate::event::Verb;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
}

fn step(name: &'static str, undoable: bool) -> StepShape {
    let retry = Retry { attempts_max: 3, ..Retry::STEP };
    StepShape { name, participant: name, retry, undo_retry: retry, undoable, durable_before: false }
}

/// reserve, pay, sell (pivot), tell.
fn shape() -> Shape {
    Shape {
        steps: vec![step("reserve", true), step("pay", true), step("sell", false), step("tell", false)],
        pivot: Some(2),
        at_deadline: DeadlinePolicy(Arc::new(|view| match (view.progress, view.extensions) {
            (Progress::Processing, 0) => AtDeadline::Extend(Duration::from_secs(30)),
            _ => AtDeadline::Turn,
        })),
    }
}

fn started(deadline: Option<i64>) -> Event {
    Event::Started {
        at: at(0),
        input: json!({}),
        deadline: deadline.map(at),
        traceparent: None,
        attributes: std::collections::BTreeMap::new(),
    }
}

fn done(step: &str) -> Event {
    Event::StepDone { step: step.into(), output: json!(null), span: None }
}

fn waiting(step: &str, answered: i64, due: i64, progress: Progress) -> Event {
    Event::StepWaiting { step: step.into(), at: at(answered), due: at(due), progress, span: None }
}

fn turned() -> Event {
    Event::Turned { cause: Cause::Deadline, span: None }
}

fn operated(verb: Verb) -> Event {
    Event::Operated {
        request_id: "r".into(),
        verb,
        actor: "ann".into(),
        reason: "why".into(),
        at: at(1),
        refused: None,
    }
}

fn begun() -> Event {
    Event::PivotBegun { step: "sell".into() }
}

fn next(deadline: Option<i64>, events: &[Event], now: i64) -> Next {
    let journal: Vec<_> = std::iter::once(started(deadline)).chain(events.iter().cloned()).collect();
    decide(&State::replay(&journal).unwrap(), &shape(), at(now))
}

const RUN: fn(usize) -> Next = |step| Next::Run { step, last_ask: false };

#[test]
fn steps_run_in_order_and_the_pivot_is_recorded_first() {
    assert_eq!(next(None, &[], 1), RUN(0));
    assert_eq!(next(None, &[done("reserve")], 1), RUN(1));
    assert_eq!(next(None, &[done("reserve"), done("pay")], 1), Next::Record(begun()));
    assert_eq!(next(None, &[done("reserve"), done("pay"), begun()], 1), RUN(2));
    assert_eq!(next(None, &[done("reserve"), done("pay"), begun(), done("sell")], 1), RUN(3));
    let all = [done("reserve"), done("pay"), begun(), done("sell"), done("tell")];
    assert_eq!(next(None, &all, 1), Next::Record(Event::Completed));
}

#[test]
fn every_pivot_attempt_has_its_own_record() {
    let failed =
        Event::StepFailed { step: "sell".into(), at: at(1), due: at(2), reason: "?".into(), span: None };
    let events = [done("reserve"), done("pay"), begun(), failed];
    assert_eq!(next(None, &events, 1), Next::Wait { until: at(2) });
    assert_eq!(next(None, &events, 2), Next::Record(begun()));
}

#[test]
fn a_deadline_turns_what_nobody_began_and_asks_once_more_what_somebody_did() {
    assert_eq!(next(Some(10), &[done("reserve")], 10), Next::Record(turned()));
    let idle = [done("reserve"), waiting("pay", 1, 100, Progress::Idle)];
    assert_eq!(next(Some(10), &idle, 9), Next::Wait { until: at(10) });
    assert_eq!(next(Some(10), &idle, 10), Next::Run { step: 1, last_ask: true });
    let asked = [done("reserve"), waiting("pay", 10, 100, Progress::Idle)];
    assert_eq!(next(Some(10), &asked, 10), Next::Record(turned()));
}

#[test]
fn a_payment_in_process_earns_one_grace() {
    let asked = [done("reserve"), waiting("pay", 10, 11, Progress::Processing)];
    let moved = Event::DeadlineMoved { to: Some(at(40)) };
    assert_eq!(next(Some(10), &asked, 10), Next::Record(moved.clone()));
    let mut events = asked.to_vec();
    events.push(moved);
    assert_eq!(next(Some(10), &events, 11), RUN(1));
    events.push(waiting("pay", 41, 42, Progress::Processing));
    assert_eq!(next(Some(10), &events, 41), Next::Record(turned()));
}

#[test]
fn the_deadline_ends_with_the_payment() {
    assert_eq!(next(Some(10), &[done("reserve"), done("pay")], 99), Next::Record(begun()));
    assert_eq!(next(Some(10), &[done("reserve"), done("pay"), begun()], 99), RUN(2));
}

#[test]
fn undo_covers_every_step_last_first_also_one_that_was_never_asked() {
    assert_eq!(next(None, &[turned()], 1), Next::Undo { steps: vec![1, 0] });
    assert_eq!(next(None, &[done("reserve"), turned()], 1), Next::Undo { steps: vec![1, 0] });
    let undone = [done("reserve"), turned(), Event::UndoDone { step: "pay".into() }];
    assert_eq!(next(None, &undone, 1), Next::Undo { steps: vec![0] });
}

#[test]
fn a_refused_pivot_undoes_all_before_it_also_after_a_restart() {
    let refused = |step: &str| Event::Turned {
        cause: Cause::Refused { step: step.into(), reason: "gone".into(), detail: json!(null) },
        span: None,
    };
    assert_eq!(
        next(None, &[done("reserve"), done("pay"), begun(), refused("sell")], 1),
        Next::Undo { steps: vec![1, 0] }
    );
    let restarted = Event::Restarted { at: "reserve".into(), reason: "lapsed".into(), span: None };
    let events = [done("reserve"), done("pay"), begun(), restarted];
    assert_eq!(next(None, &events, 1), RUN(0));
    let mut again = events.to_vec();
    again.push(done("reserve"));
    assert_eq!(next(None, &again, 1), Next::Record(begun()));
    let mut gone = events.to_vec();
    gone.push(refused("reserve"));
    assert_eq!(next(None, &gone, 1), Next::Undo { steps: vec![1, 0] });
}

#[test]
fn a_stuck_undo_parks_only_when_the_others_are_done() {
    let failed = Event::UndoFailed { step: "pay".into(), due: at(1), reason: "down".into() };
    let mut events = vec![done("reserve"), turned(), failed.clone(), failed.clone(), failed];
    assert_eq!(next(None, &events, 9), Next::Undo { steps: vec![0] });
    events.push(Event::UndoDone { step: "reserve".into() });
    assert!(matches!(next(None, &events, 9), Next::Record(Event::Parked { .. })));
}

#[test]
fn undo_waits_for_the_earliest_due() {
    let failed =
        |step: &str, due: i64| Event::UndoFailed { step: step.into(), due: at(due), reason: "?".into() };
    let events = [done("reserve"), turned(), failed("pay", 7), failed("reserve", 5)];
    assert_eq!(next(None, &events, 1), Next::Wait { until: at(5) });
    assert_eq!(next(None, &events, 5), Next::Undo { steps: vec![0] });
}

#[test]
fn a_signal_wakes_what_waits() {
    let signal = Event::Signalled { name: "paid".into(), payload: json!({}) };
    let events = [done("reserve"), waiting("pay", 1, 100, Progress::Idle), signal];
    assert_eq!(next(None, &events, 2), RUN(1));
}

#[test]
fn a_signal_leaves_the_backoff_of_what_failed_alone() {
    let failed =
        Event::StepFailed { step: "pay".into(), at: at(1), due: at(9), reason: "?".into(), span: None };
    let signal = Event::Signalled { name: "cancelled".into(), payload: json!({}) };
    assert_eq!(next(None, &[done("reserve"), failed, signal], 2), Next::Wait { until: at(9) });
}

#[test]
fn a_wait_without_end_is_a_long_one() {
    let answer = Answer::Pending { ask_again_after: Duration::MAX, progress: Progress::Idle };
    let state = State::start(&started(None)).unwrap();
    let event = record(&state, &shape(), 0, answer, at(1), 0.0, None);
    let read: Event = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();
    assert_eq!(read, event);
    let mut after = state.clone();
    after.apply(&event).unwrap();
    assert!(matches!(decide(&after, &shape(), at(2)), Next::Wait { until } if until > at(1_000_000_000)));
}

#[test]
fn a_journal_that_says_more_than_is_known_is_not_read() {
    let mut json = serde_json::to_value(done("reserve")).unwrap();
    json["unless"] = json!("it rains");
    serde_json::from_value::<Event>(json).unwrap_err();
    let mut state = State::start(&started(None)).unwrap();
    assert_eq!(shape().lacks(&state), None);
    state.apply(&done("fly")).unwrap();
    assert_eq!(shape().lacks(&state), Some("fly"));
}

#[test]
fn answers_become_events() {
    let state = |events: &[Event]| {
        let journal: Vec<_> = std::iter::once(started(None)).chain(events.iter().cloned()).collect();
        State::replay(&journal).unwrap()
    };
    let fresh = state(&[]);
    let event = |state: &State, index, answer| record(state, &shape(), index, answer, at(1), 0.0, None);
    let failed = |step: &str| Event::StepFailed {
        step: step.into(),
        at: at(1),
        due: at(1),
        reason: "?".into(),
        span: None,
    };

    assert!(matches!(event(&fresh, 0, Answer::Retry("?".into())), Event::StepFailed { .. }));
    // The third failure in a row is one too many: before the pivot undo, from the pivot on an operator.
    let tired = state(&[failed("reserve"), failed("reserve")]);
    assert!(matches!(
        event(&tired, 0, Answer::Retry("?".into())),
        Event::Turned { cause: Cause::Exhausted { .. }, .. }
    ));
    let stuck = state(&[failed("sell"), failed("sell")]);
    assert!(matches!(event(&stuck, 2, Answer::Retry("?".into())), Event::Parked { .. }));
    let patient = state(&[failed("reserve"), failed("reserve"), waiting("reserve", 1, 1, Progress::Idle)]);
    assert!(matches!(event(&patient, 0, Answer::Retry("?".into())), Event::StepFailed { .. }));

    let abort = || Answer::Abort { reason: "no".into(), detail: json!(null) };
    assert!(matches!(event(&fresh, 0, abort()), Event::Turned { cause: Cause::Refused { .. }, .. }));
    assert!(matches!(event(&fresh, 2, abort()), Event::Turned { cause: Cause::Refused { .. }, .. }));
    assert!(matches!(event(&fresh, 3, abort()), Event::Parked { .. }));

    let restart = |at| Answer::Restart { at, max: 1, reason: "lapsed".into() };
    assert!(matches!(event(&fresh, 2, restart("reserve")), Event::Restarted { .. }));
    assert!(matches!(event(&fresh, 2, restart("tell")), Event::Parked { .. }));
    assert!(matches!(event(&fresh, 0, restart("reserve")), Event::Parked { .. }));
    let again = state(&[
        done("reserve"),
        done("pay"),
        begun(),
        Event::Restarted { at: "reserve".into(), reason: "lapsed".into(), span: None },
    ]);
    assert!(matches!(event(&again, 2, restart("reserve")), Event::Turned { .. }));
}

/// Every event in every phase: a new event must be looked at.
#[test]
fn transition_matrix() {
    let phases: [(&str, Vec<Event>); 7] = [
        ("forward", vec![]),
        ("pivot begun", vec![done("reserve"), done("pay"), begun()]),
        ("undoing", vec![turned()]),
        (
            "completed",
            vec![done("reserve"), done("pay"), begun(), done("sell"), done("tell"), Event::Completed],
        ),
        ("undone", vec![turned(), Event::UndoDone { step: "reserve".into() }, Event::Undone]),
        ("parked", vec![Event::Parked { reason: "?".into() }]),
        ("paused", vec![operated(Verb::Pause)]),
    ];
    let events = [
        started(None),
        done("tell"),
        done("reserve"),
        waiting("tell", 1, 2, Progress::Idle),
        Event::StepFailed { step: "tell".into(), at: at(1), due: at(2), reason: "?".into(), span: None },
        turned(),
        Event::Turned {
            cause: Cause::Refused { step: "sell".into(), reason: "gone".into(), detail: json!(null) },
            span: None,
        },
        begun(),
        Event::Restarted { at: "reserve".into(), reason: "?".into(), span: None },
        Event::UndoDone { step: "pay".into() },
        Event::UndoFailed { step: "pay".into(), due: at(2), reason: "?".into() },
        Event::Signalled { name: "paid".into(), payload: json!({}) },
        Event::Extended { until: at(99) },
        Event::DeadlineMoved { to: None },
        Event::Parked { reason: "?".into() },
        Event::Operated {
            request_id: "r".into(),
            verb: Verb::Compensate,
            actor: "ann".into(),
            reason: "why".into(),
            at: at(1),
            refused: Some("no".into()),
        },
        operated(Verb::Retry),
        operated(Verb::Compensate),
        operated(Verb::ResolveStep { step: "reserve".into(), output: json!(null), passes_pivot: false }),
        operated(Verb::ResolveStep { step: "sell".into(), output: json!(null), passes_pivot: true }),
        operated(Verb::ResolveUndo { step: "pay".into() }),
        operated(Verb::Pause),
        operated(Verb::Resume),
        operated(Verb::Unknown { order: json!(null) }),
        Event::Completed,
        Event::Undone,
    ];
    let mut table = String::new();
    for (phase, before) in phases {
        let journal: Vec<_> = std::iter::once(started(Some(60))).chain(before).collect();
        let state = State::replay(&journal).unwrap();
        for event in &events {
            let mut after = state.clone();
            let verdict = after.apply(event).map_or("illegal", |()| "legal");
            if verdict == "illegal" {
                assert_eq!(after, state, "a refused event changes nothing");
            }
            let detail = match event {
                Event::Turned { cause: Cause::Deadline, .. } => " (deadline)",
                Event::Turned { .. } | Event::Operated { refused: Some(_), .. } => " (refused)",
                Event::StepDone { step, .. } if step == "reserve" => " (again)",
                Event::Operated { verb: Verb::ResolveStep { passes_pivot: true, .. }, .. } => " (pass pivot)",
                Event::Operated { verb, .. } => &format!(" ({})", verb.name()),
                _ => "",
            };
            let event = event.name().to_owned() + detail;
            writeln!(table, "{phase:<12} {event:<26} {verdict}").unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
