//! Holds the model against the engine: for every log the model's rules can write, the engine's own fold accepts it, its
//! `decide` says the same next step, and its `record` makes the same of every answer. Without this the model might
//! prove something about another engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use saga::{
    AtDeadline, Cause, Retry, State,
    decide::{self as engine, DeadlinePolicy, Shape, StepShape},
};
use serde_json::Value;

use crate::{
    journal::{Event, Log, Phase, Round, Standing},
    participants::{Answer, Request},
    run::{Next, decide, record},
};

const RESERVE: &str = "reserve";
const PAY: &str = "pay";
const CONFIRM: &str = "confirm";
const FINISH: &str = "finish";

/// Walks every log with at most `pivot_failures` failed pivot attempts. Gives how many there are.
pub(crate) fn walk(finish: bool, pivot_failures: usize) -> usize {
    let shape = shape(finish);
    let mut begin = Log::default();
    begin.push(Event::Started);
    let mut open = vec![begin];
    let mut seen = BTreeSet::new();
    while let Some(log) = open.pop() {
        if !seen.insert(log) {
            continue;
        }
        let standing = Standing::of(log).expect("the walk writes only what may follow");
        let state = State::replay(&events(log)).expect("the engine accepts what the model writes");
        assert_eq!(
            engine::decide(&state, &shape, at(1)),
            in_engine_words(decide(&standing, finish, None)),
            "{log:?}"
        );
        let mut follow = |event| {
            let mut longer = log;
            longer.push(event);
            open.push(longer);
        };
        let may_turn = standing.phase == Phase::Forward && !standing.pivoted;
        let cancelled = saga::Event::Turned { cause: Cause::Cancelled { payload: Value::Null }, span: None };
        assert_eq!(state.clone().apply(&cancelled).is_ok(), may_turn, "a cancel after {log:?}");
        if may_turn {
            follow(Event::Turned);
        }
        match decide(&standing, finish, None) {
            Next::Rest => {}
            Next::Record(event) => follow(event),
            Next::Ask(requests) => {
                for request in requests.into_iter().flatten() {
                    if let Some(step) = step_of(request) {
                        assert_eq!(rounds(&state), round_of(&standing), "{log:?}");
                        for (answer, said) in answers(request) {
                            let event = record(request, answer);
                            let made = engine::record(&state, &shape, step, said, at(1), 0.0, None);
                            assert_eq!(made.name(), name(event), "{request:?} answers {answer:?} to {log:?}");
                            follow(event);
                        }
                    } else {
                        follow(record(request, Answer::Done));
                    }
                    let failed = log.events().filter(|event| *event == Event::PivotFailed).count();
                    if matches!(request, Request::Confirm(_)) && failed < pivot_failures {
                        let said = engine::Answer::Retry("no answer".into());
                        let made = engine::record(&state, &shape, 2, said, at(1), 0.0, None);
                        assert_eq!(made.name(), name(Event::PivotFailed));
                        follow(Event::PivotFailed);
                    }
                }
            }
        }
    }
    seen.len()
}

fn shape(finish: bool) -> Shape {
    let step = |name, undoable| StepShape {
        name,
        participant: name,
        retry: Retry::MUST,
        undo_retry: Retry::MUST,
        undoable,
        durable_before: false,
    };
    let mut steps = vec![step(RESERVE, true), step(PAY, true), step(CONFIRM, false), step(FINISH, false)];
    steps.truncate(3 + usize::from(finish));
    Shape { steps, pivot: Some(2), at_deadline: DeadlinePolicy(Arc::new(|_| AtDeadline::Turn)) }
}

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(second, 0).expect("a second of 1970")
}

/// The same log in the engine's words.
fn events(log: Log) -> Vec<saga::Event> {
    let pivoted = |upto: usize| log.events().take(upto).any(|event| event == Event::PivotBegun);
    log.events().enumerate().map(|(index, event)| in_full(event, pivoted(index))).collect()
}

fn in_full(event: Event, pivoted: bool) -> saga::Event {
    let done = |step: &str| saga::Event::StepDone { step: step.into(), output: Value::Null, span: None };
    match event {
        Event::Started => saga::Event::Started {
            at: at(0),
            input: Value::Null,
            deadline: None,
            traceparent: None,
            attributes: BTreeMap::new(),
        },
        Event::Reserved => done(RESERVE),
        Event::Paid => done(PAY),
        Event::Confirmed => done(CONFIRM),
        Event::Finished => done(FINISH),
        Event::PivotBegun => saga::Event::PivotBegun { step: CONFIRM.into() },
        Event::PivotFailed => saga::Event::StepFailed {
            step: CONFIRM.into(),
            at: at(0),
            due: at(0),
            reason: "no answer".into(),
            span: None,
        },
        Event::Restarted => {
            saga::Event::Restarted { at: RESERVE.into(), reason: "lapsed".into(), span: None }
        }
        Event::Turned if pivoted => saga::Event::Turned {
            cause: Cause::Refused { step: CONFIRM.into(), reason: "gone".into(), detail: Value::Null },
            span: None,
        },
        Event::Turned => saga::Event::Turned { cause: Cause::Deadline, span: None },
        Event::PayUndone => saga::Event::UndoDone { step: PAY.into() },
        Event::ReserveUndone => saga::Event::UndoDone { step: RESERVE.into() },
        Event::Completed => saga::Event::Completed,
        Event::Undone => saga::Event::Undone,
    }
}

fn name(event: Event) -> &'static str {
    in_full(event, false).name()
}

fn in_engine_words(next: Next) -> engine::Next {
    match next {
        Next::Rest => engine::Next::Rest,
        Next::Record(event) => engine::Next::Record(in_full(event, false)),
        Next::Ask(requests) => {
            let asked: Vec<Request> = requests.into_iter().flatten().collect();
            match asked.first().and_then(|request| step_of(*request)) {
                Some(step) => engine::Next::Run { step, last_ask: false },
                None => engine::Next::Undo {
                    steps: asked
                        .iter()
                        .rev()
                        .map(|request| usize::from(*request == Request::CancelPayment))
                        .collect(),
                },
            }
        }
    }
}

/// The step a forward request belongs to. None: it undoes one.
fn step_of(request: Request) -> Option<usize> {
    match request {
        Request::Reserve(_) => Some(0),
        Request::Charge => Some(1),
        Request::Confirm(_) => Some(2),
        Request::Finish => Some(3),
        Request::Release(_) | Request::CancelPayment => None,
    }
}

/// What a participant may answer, in both languages.
fn answers(request: Request) -> Vec<(Answer, engine::Answer)> {
    let done = (Answer::Done, engine::Answer::Done(Value::Null));
    let refused = (Answer::Refused, engine::Answer::Abort { reason: "no".into(), detail: Value::Null });
    let lapsed = (Answer::Lapsed, engine::Answer::Restart { at: RESERVE, max: 1, reason: "lapsed".into() });
    match request {
        Request::Finish => vec![done],
        Request::Confirm(_) => vec![done, refused, lapsed],
        _ => vec![done, refused],
    }
}

fn rounds(state: &State) -> u32 {
    state.steps.get(RESERVE).map_or(0, |entry| entry.restarts)
}

fn round_of(standing: &Standing) -> u32 {
    u32::from(standing.round == Round::Second)
}
