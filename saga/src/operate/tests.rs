//! Every verb wherever a saga can stand, and what operators read there.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use chrono::TimeDelta;
use serde_json::json;

use super::*;
use crate::{
    decide::{AtDeadline, DeadlinePolicy, StepShape, decide},
    event::{Cause, Progress},
    journal::Status,
    retry::Retry,
};

mod walk;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
}

/// reserve, pay, sell (pivot), tell; reserve and sell call the same participant.
fn shape() -> Shape {
    let step = |name, participant, undoable| {
        let retry = Retry { attempts_max: 3, ..Retry::STEP };
        StepShape { name, participant, retry, undo_retry: retry, undoable, durable_before: false }
    };
    Shape {
        steps: vec![
            step("reserve", "inventory", true),
            step("pay", "payment", true),
            step("sell", "inventory", false),
            step("tell", "mail", false),
        ],
        pivot: Some(2),
        at_deadline: DeadlinePolicy(Arc::new(|view| match (view.progress, view.extensions) {
            (Progress::Processing, 0) => AtDeadline::Extend(Duration::from_secs(30)),
            _ => AtDeadline::Turn,
        })),
    }
}

fn done(step: &str) -> Event {
    Event::StepDone { step: step.into(), output: json!({}), span: None }
}

fn failed(step: &str) -> Event {
    Event::StepFailed { step: step.into(), at: at(1), due: at(9), reason: "down".into(), span: None }
}

fn undo_failed(step: &str) -> Event {
    Event::UndoFailed { step: step.into(), due: at(9), reason: "down".into() }
}

fn parked() -> Event {
    Event::Parked { reason: "it broke".into() }
}

fn asked() -> Asked {
    Asked::new("r", "ann", "why").unwrap()
}

fn carried_out(verb: Verb) -> Event {
    Event::Operated {
        request_id: "r".into(),
        verb,
        actor: "ann".into(),
        reason: "why".into(),
        at: at(5),
        refused: None,
    }
}

fn state(events: &[Event]) -> State {
    let started = Event::Started {
        at: at(0),
        input: json!({}),
        deadline: Some(at(60)),
        traceparent: None,
        attributes: std::collections::BTreeMap::new(),
    };
    State::replay(std::iter::once(&started).chain(events)).unwrap()
}

/// Wherever a saga can stand.
fn standings() -> Vec<(String, State)> {
    let begun = || Event::PivotBegun { step: "sell".into() };
    let turned = || Event::Turned { cause: Cause::Deadline, span: None };
    let lives = [
        ("before pivot", vec![done("reserve"), failed("pay")]),
        ("pivot is next", vec![done("reserve"), done("pay")]),
        ("pivot begun", vec![done("reserve"), done("pay"), begun()]),
        (
            "restarted",
            vec![
                done("reserve"),
                done("pay"),
                begun(),
                Event::Restarted { at: "reserve".into(), reason: "lapsed".into(), span: None },
            ],
        ),
        ("after pivot", vec![done("reserve"), done("pay"), begun(), done("sell"), failed("tell")]),
        ("undoing", vec![done("reserve"), turned(), undo_failed("pay")]),
    ];
    let mut all = Vec::new();
    for (name, events) in lives {
        for (suffix, last) in
            [("", None), (", parked", Some(parked())), (", paused", Some(carried_out(Verb::Pause)))]
        {
            let events: Vec<_> = events.iter().cloned().chain(last).collect();
            all.push((format!("{name}{suffix}"), state(&events)));
        }
    }
    let sold = [done("reserve"), done("pay"), begun(), done("sell"), done("tell"), Event::Completed];
    all.push(("completed".into(), state(&sold)));
    all.push(("undone".into(), state(&[turned(), Event::Undone])));
    all
}

fn verbs() -> Vec<Verb> {
    let resolve =
        |step: &str| Verb::ResolveStep { step: step.into(), output: json!({}), passes_pivot: false };
    let resolve_undo = |step: &str| Verb::ResolveUndo { step: step.into() };
    vec![
        Verb::Retry,
        Verb::Compensate,
        resolve("reserve"),
        resolve("pay"),
        resolve("sell"),
        resolve("tell"),
        resolve("fly"),
        resolve_undo("pay"),
        resolve_undo("tell"),
        resolve_undo("fly"),
        Verb::Pause,
        Verb::Resume,
    ]
}

#[test]
fn every_verb_wherever_a_saga_can_stand() {
    let shape = shape();
    let mut table = String::new();
    for (standing, before) in standings() {
        writeln!(table, "{standing}").unwrap();
        for verb in verbs() {
            let name = match &verb {
                Verb::ResolveStep { step, .. } | Verb::ResolveUndo { step } => {
                    format!("{} {step}", verb.name())
                }
                _ => verb.name().to_owned(),
            };
            let order = serde_json::to_value(Order::new(asked(), verb).unwrap()).unwrap();
            let event = operated(&before, &shape, &order, at(5));
            let mut after = before.clone();
            let applied = after.apply(&event);
            let Event::Operated { refused, .. } = event else { panic!("an order becomes nothing else") };
            let outcome = if let Some(why) = refused {
                let live = matches!(before.phase, Phase::Forward | Phase::Undoing);
                assert_eq!(applied.is_ok(), live, "a refusal is on record as long as the saga lives");
                assert_eq!(after, before, "a refusal changes nothing");
                format!("no: {why}")
            } else {
                applied.expect("what the judge allows can follow");
                format!("{:?}", decide(&after, &shape, at(5)))
            };
            writeln!(table, "    {name:<20} {outcome}").unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn retry_gives_all_attempts_anew() {
    let mut tired = state(&[failed("reserve"), failed("reserve"), parked()]);
    tired.apply(&carried_out(Verb::Retry)).unwrap();
    assert_eq!(tired.steps["reserve"].failures, 0);
    assert_eq!(tired.steps["reserve"].attempts, 2, "attempts are counted for ever");

    let turned = Event::Turned { cause: Cause::Deadline, span: None };
    let mut stuck = state(&[turned, undo_failed("pay"), undo_failed("pay"), undo_failed("pay"), parked()]);
    stuck.apply(&carried_out(Verb::Retry)).unwrap();
    assert_eq!((stuck.steps["pay"].undo.attempts, stuck.steps["pay"].undo.due), (0, Some(at(5))));
}

#[test]
fn a_pivot_that_is_tried_again_has_a_record_of_its_own() {
    let begun = Event::PivotBegun { step: "sell".into() };
    let parked = state(&[done("reserve"), done("pay"), begun.clone(), parked(), carried_out(Verb::Retry)]);
    assert_eq!(decide(&parked, &shape(), at(5)), crate::decide::Next::Record(begun));
}

#[test]
fn a_pivot_that_was_resolved_by_hand_cannot_be_cancelled() {
    let before = state(&[done("reserve"), done("pay"), carried_out(Verb::Pause)]);
    let verb = Verb::ResolveStep { step: "sell".into(), output: json!({}), passes_pivot: false };
    assert!(judge(&before, &shape(), &verb).is_err(), "it must say that it passes the pivot");
    let order = serde_json::to_value(Order::new(asked(), verb).unwrap()).unwrap();
    let mut after = before;
    after.apply(&operated(&after, &shape(), &order, at(5))).unwrap();
    assert!(after.is_paused(), "a pause ends when it is resumed");
    after.apply(&carried_out(Verb::Resume)).unwrap();
    assert!(after.pivoted);
    judge(&after, &shape(), &Verb::Compensate).unwrap_err();
    let cancelled = Event::Turned { cause: Cause::Cancelled { payload: json!({}) }, span: None };
    after.clone().apply(&cancelled).unwrap_err();
}

#[test]
fn the_deadline_goes_on_during_a_pause() {
    let paused = state(&[done("reserve"), carried_out(Verb::Pause)]);
    assert_eq!(decide(&paused, &shape(), at(99)), crate::decide::Next::Rest);
    let mut resumed = paused;
    resumed.apply(&carried_out(Verb::Resume)).unwrap();
    let next = decide(&resumed, &shape(), at(99));
    assert!(matches!(next, crate::decide::Next::Record(Event::Turned { cause: Cause::Deadline, .. })));
}

#[test]
fn an_order_names_who_and_why() {
    let order = |actor: &str, reason: &str| Asked::new("r", actor, reason).map(|_| ());
    assert_eq!(order("ann", "why"), Ok(()));
    let named = |id: &str| Asked::new(id, "ann", "why").map(|_| ());
    assert_eq!(named(""), Err(OrderError::RequestIdMissing));
    assert_eq!(named(&"r".repeat(REQUEST_ID_CHARS_MAX)), Ok(()));
    assert_eq!(named(&"r".repeat(REQUEST_ID_CHARS_MAX + 1)), Err(OrderError::RequestIdTooLong));
    assert_eq!(order(" \t", "why"), Err(OrderError::ActorMissing));
    assert_eq!(order("ann", "\n"), Err(OrderError::ReasonMissing));
    assert_eq!(order(&"ä".repeat(ACTOR_CHARS_MAX), &"ä".repeat(REASON_CHARS_MAX)), Ok(()));
    assert_eq!(order(&"ä".repeat(ACTOR_CHARS_MAX + 1), "why"), Err(OrderError::ActorTooLong));
    assert_eq!(order("ann", &"ä".repeat(REASON_CHARS_MAX + 1)), Err(OrderError::ReasonTooLong));
    assert_eq!(order("ann", "wh\0y"), Err(OrderError::HasNul));
    let output = json!({ "deep": ["a\0b"] });
    let verb = Verb::ResolveStep { step: "pay".into(), output, passes_pivot: false };
    assert_eq!(Order::new(asked(), verb), Err(OrderError::HasNul));
    let output = json!("x".repeat(ORDER_BYTES_MAX));
    let verb = Verb::ResolveStep { step: "pay".into(), output, passes_pivot: false };
    assert_eq!(Order::new(asked(), verb), Err(OrderError::TooLarge));
}

#[test]
fn what_cannot_be_read_is_refused_and_kept() {
    for payload in [
        json!(null),
        json!({ "verb": { "verb": "explode" }, "request_id": "r", "actor": "ann", "reason": "why" }),
        json!({ "verb": { "verb": "retry" }, "request_id": "r", "actor": "", "reason": "why" }),
        json!({ "verb": { "verb": "retry" }, "request_id": "r", "actor": "ann", "reason": "why", "unless": "it rains" }),
        json!({ "verb": { "verb": "unknown", "order": 1 }, "request_id": "r", "actor": "ann", "reason": "why" }),
    ] {
        let mut state = state(&[]);
        let event = operated(&state, &shape(), &payload, at(5));
        assert!(
            matches!(&event, Event::Operated { verb: Verb::Unknown { .. }, refused: Some(_), .. }),
            "{event:?}"
        );
        state.apply(&event).unwrap();
    }
}

#[test]
fn what_operators_read() {
    let shape = shape();
    let pauses = [
        Pause {
            scope: Scope::Participant("payment".into()),
            actor: "bob".into(),
            reason: "they ask".into(),
            since: at(1),
        },
        Pause {
            scope: Scope::Kind("refund".into()),
            actor: "bob".into(),
            reason: "wait".into(),
            since: at(1),
        },
    ];
    let mut text = String::new();
    let mut tell = |title: &str, view: &View<'_>| {
        let Explanation { summary, owner, lease, next, next_at, last_error, unblocks } = explain(view);
        writeln!(text, "{title}\n    {summary}").unwrap();
        writeln!(text, "    owner: {owner:?}, {lease}\n    next: {next} ({next_at:?})").unwrap();
        writeln!(text, "    last error: {last_error:?}").unwrap();
        for line in unblocks {
            writeln!(text, "    - {line}").unwrap();
        }
    };
    let all = standings();
    for (standing, state) in &all {
        let view = View {
            kind: "checkout",
            version: 1,
            now: at(5),
            status: status(state),
            state: Ok(state),
            shape: Some(&shape),
            owner: None,
            due_at: None,
            deadline: state.deadline,
            claims: 0,
            last_error: None,
            open_signals: &[],
            pauses: &[],
        };
        tell(standing, &view);
    }
    let waiting = &all[0].1;
    let view = View {
        kind: "checkout",
        version: 1,
        now: at(5),
        status: Status::Running,
        state: Ok(waiting),
        shape: Some(&shape),
        owner: Some(Owner { name: "orders@1", lease_until: at(9) }),
        due_at: None,
        deadline: waiting.deadline,
        claims: 0,
        last_error: None,
        open_signals: &[],
        pauses: &[],
    };
    let gone = Owner { name: "orders@1", lease_until: at(1) };
    let cancel = ["cancel".to_owned(), "paid".to_owned()];
    let order = [SIGNAL.to_owned()];
    let clock = [Pause {
        scope: Scope::Clock,
        actor: "engine".into(),
        reason: "it jumped by 1 h".into(),
        since: at(1),
    }];
    let (due_at, last_error) = (Some(at(9)), Some("no such column"));
    tell("at work", &view);
    tell("its worker is gone", &View { owner: Some(gone), claims: 3, ..view });
    tell("it waits", &View { owner: None, due_at, ..view });
    tell("it has signals", &View { open_signals: &cancel, ..view });
    tell("its participant is paused", &View { pauses: &pauses, ..view });
    tell("its kind is paused", &View { kind: "refund", pauses: &pauses, ..view });
    tell("the clock jumped", &View { owner: None, due_at, pauses: &clock, ..view });
    tell("after its deadline", &View { now: at(61), ..view });
    tell(
        "parked after its deadline",
        &View { now: at(61), status: Status::Parked, state: Ok(&all[1].1), ..view },
    );
    tell("an order is on its way", &View { status: Status::Parked, open_signals: &order, ..view });
    tell("parked by its row", &View { status: Status::Parked, last_error, owner: None, ..view });
    tell(
        "an unreadable journal",
        &View { state: Err("event 3 is not JSON"), status: Status::Parked, ..view },
    );
    tell("an unknown definition", &View { shape: None, ..view });
    insta::assert_snapshot!(text);
}

fn status(state: &State) -> Status {
    match (&state.parked, state.phase) {
        (Some(_), _) => Status::Parked,
        (None, Phase::Forward) => Status::Running,
        (None, Phase::Undoing) => Status::Undoing,
        (None, Phase::Completed) => Status::Completed,
        (None, Phase::Undone) => Status::Undone,
    }
}
