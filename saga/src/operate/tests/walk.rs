//! Random walks: whatever participants answer, operators ask and clocks show, everything that is recorded can follow,
//! and from wherever a saga got to there is a way to its end.

use proptest::prelude::*;

use super::*;
use crate::decide::{Answer, Next, record, record_failed_undo};

/// One thing that happens.
#[derive(Debug, Clone)]
enum Move {
    /// Whatever comes next happens, and is answered like this.
    Next(Reply),
    /// An operator asks for this.
    Ask(Verb),
    /// Somebody signals.
    Signal,
    /// Somebody cancels.
    Cancel,
    /// Time goes on by so many seconds.
    Time(i64),
    /// A new process folds the journal.
    Restart,
}

#[derive(Debug, Clone, Copy)]
enum Reply {
    Done,
    Processing,
    Idle,
    Retry,
    Abort,
    Park,
    Again,
}

impl Reply {
    fn answer(self) -> Answer {
        match self {
            Self::Done => Answer::Done(json!({})),
            Self::Processing | Self::Idle => Answer::Pending {
                ask_again_after: Duration::from_secs(7),
                progress: if matches!(self, Self::Idle) { Progress::Idle } else { Progress::Processing },
            },
            Self::Retry => Answer::Retry("down".into()),
            Self::Abort => Answer::Abort { reason: "no".into(), detail: json!(null) },
            Self::Park => Answer::Park("broken".into()),
            Self::Again => Answer::Restart { at: "reserve", max: 1, reason: "lapsed".into() },
        }
    }
}

struct Walk {
    shape: Shape,
    state: State,
    events: Vec<Event>,
    now: DateTime<Utc>,
}

impl Walk {
    fn begin() -> Self {
        let started = Event::Started {
            at: at(0),
            input: json!({}),
            deadline: Some(at(60)),
            traceparent: None,
            attributes: std::collections::BTreeMap::new(),
        };
        Self { shape: shape(), state: State::start(&started).unwrap(), events: vec![started], now: at(0) }
    }

    fn ended(&self) -> bool {
        matches!(self.state.phase, Phase::Completed | Phase::Undone)
    }

    fn take(&mut self, event: Event) {
        let before = self.state.clone();
        self.state.apply(&event).unwrap_or_else(|error| panic!("{error}: {event:?} after {before:?}"));
        if before.pivoted {
            assert!(self.state.pivoted, "what was begun stays begun");
            let by_refusal =
                matches!(self.state.cause, Some(Cause::Refused { .. } | Cause::Exhausted { .. }));
            assert!(before.phase == self.state.phase || self.state.phase != Phase::Undoing || by_refusal);
        }
        let undone = |name: &str| self.state.steps.get(name).is_some_and(|entry| entry.undo.done);
        if self.state.phase == Phase::Undone {
            assert!(undone("reserve") && undone("pay"), "no stock stays held and no money kept: {event:?}");
        }
        if self.state.phase == Phase::Completed {
            assert!(self.state.pivoted, "nothing is sold behind the pivot's back");
        }
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
        self.events.push(event);
    }

    fn happen(&mut self, step: Move) {
        match step {
            Move::Next(reply) => self.next(reply),
            Move::Ask(verb) => self.ask(verb),
            Move::Signal if self.state.parked.is_none() && !self.ended() => {
                self.take(Event::Signalled { name: "paid".into(), payload: json!({}) });
            }
            Move::Cancel if self.state.parked.is_none() && self.state.phase == Phase::Forward => {
                self.take(Event::Signalled { name: "cancel".into(), payload: json!({}) });
                if !self.state.pivoted {
                    let cause = Cause::Cancelled { payload: json!({}) };
                    self.take(Event::Turned { cause, span: None });
                }
            }
            Move::Signal | Move::Cancel => {}
            Move::Time(seconds) => self.now += TimeDelta::seconds(seconds),
            Move::Restart => {
                assert_eq!(State::replay(&self.events).unwrap(), self.state);
            }
        }
        self.explain();
    }

    fn next(&mut self, reply: Reply) {
        match decide(&self.state, &self.shape, self.now) {
            Next::Rest => assert!(self.ended() || self.state.parked.is_some()),
            Next::Record(event) => self.take(event),
            Next::Run { step, .. } => {
                let answer = reply.answer();
                let event = record(&self.state, &self.shape, step, answer, self.now, 0.5, None);
                self.take(event);
            }
            Next::Wait { until } => {
                assert!(until > self.now, "a wait that is over is no wait");
                self.now = until;
            }
            Next::Undo { steps } => {
                for step in steps {
                    let event = match reply {
                        Reply::Done => Event::UndoDone { step: self.shape.steps[step].name.into() },
                        _ => record_failed_undo(&self.state, &self.shape, step, "down".into(), self.now, 0.5),
                    };
                    self.take(event);
                }
            }
        }
    }

    fn ask(&mut self, verb: Verb) {
        if !self.ended() {
            let order = serde_json::to_value(Order::new(asked(), verb).unwrap()).unwrap();
            self.take(operated(&self.state, &self.shape, &order, self.now));
        }
    }

    fn explain(&self) {
        let explanation = explain(&View {
            kind: "checkout",
            version: 1,
            now: self.now,
            status: status(&self.state),
            state: Ok(&self.state),
            shape: Some(&self.shape),
            owner: None,
            due_at: None,
            deadline: self.state.deadline,
            claims: 0,
            last_error: None,
            open_signals: &[],
            pauses: &[],
        });
        let stuck = self.state.parked.is_some();
        assert!(
            !stuck || !explanation.unblocks.is_empty(),
            "a parked saga can be unblocked: {explanation:?}"
        );
    }

    /// All participants are well, and an operator does what the explanation begins with.
    fn finish(mut self) {
        for _ in 0..100 {
            if self.ended() {
                return;
            }
            if self.state.parked.is_some() {
                let verb = if self.state.is_paused() { Verb::Resume } else { Verb::Retry };
                self.ask(verb);
            }
            self.next(Reply::Done);
        }
        panic!("no end from {:?}", self.state);
    }
}

fn moves() -> impl Strategy<Value = Move> {
    use Reply::{Abort, Again, Done, Idle, Park, Processing, Retry};
    let reply = prop_oneof![6 => Just(Done), 1 => Just(Abort), 1 => Just(Again), 1 => Just(Idle),
        1 => Just(Park), 1 => Just(Processing), 3 => Just(Retry)];
    prop_oneof![
        8 => reply.prop_map(Move::Next),
        3 => proptest::sample::select(verbs()).prop_map(Move::Ask),
        1 => Just(Move::Signal),
        1 => Just(Move::Cancel),
        1 => (0_i64..40).prop_map(Move::Time),
        1 => Just(Move::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_walk_is_legal_and_has_an_end(moves in proptest::collection::vec(moves(), 0..60)) {
        let mut walk = Walk::begin();
        for step in moves {
            walk.happen(step);
        }
        walk.happen(Move::Restart);
        walk.finish();
    }
}
