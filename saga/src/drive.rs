//! Drives one saga: decide, act, record, until it rests or is somebody else's. Every decision is `decide.rs`'s, every
//! write is conditional; what is known here is only which of the two waits for the other.
//!
//! The saga runs ahead of its journal. Four things wait for the disk: its start (`engine/start.rs`), the first undo
//! for the turn, a pivot attempt for its own record, and whoever is told that it rests.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::oneshot;
use tracing::{Instrument as _, Span};

use crate::{
    breaker::{self, Ended, Permit},
    decide::{Answer, Next, decide, record, record_failed_undo},
    definition::{Attempt, ErasedStep, Undo},
    engine::{CANCEL, EXTEND, Engine, Extension, Held},
    event::{Cause, Event},
    id::Seq,
    journal::{OpenSignal, SignalId},
    operate,
    state::{Phase, State},
    tail::Cut,
    trace::{Direction, record_outcome, step_span, traceparent_of},
};

/// A saga as this process drives it.
pub(crate) struct Drive {
    pub(crate) held: Arc<Held>,
    /// With everything recorded, on disk or not.
    pub(crate) state: Arc<State>,
    /// It was taken from a worker that did not give it up: the next span says so.
    pub(crate) resumed: bool,
    /// Signals that were read when it was claimed.
    pub(crate) signals: Vec<OpenSignal>,
    /// Signals that were taken in since: on disk they may still be open.
    pub(crate) taken: BTreeSet<SignalId>,
    /// It begins, and somebody waits until that is on disk.
    pub(crate) begun: Option<oneshot::Sender<Result<(), Cut>>>,
}

/// Why driving ended.
#[derive(Debug)]
enum End {
    /// It rests: the journal says for how long.
    Rests,
    /// Nothing more can be written of it.
    Cut(Cut),
    /// The engine stops.
    Stops,
}

impl From<Cut> for End {
    fn from(cut: Cut) -> Self {
        Self::Cut(cut)
    }
}

/// Drives until the saga rests, is lost, or the engine stops.
pub(crate) async fn drive(engine: &Engine, mut work: Drive) {
    match work.run(engine).await {
        End::Rests | End::Cut(Cut::Declined | Cut::Parked) => {}
        End::Stops => {
            // What was recorded need not be lost, only because whoever comes next would find out by itself.
            let _ = engine.shared.writer.settle(&work.held.tail).await;
        }
        End::Cut(Cut::Lost) => {
            tracing::info!(saga.id = %work.held.tail.saga, "another worker owns the saga now");
        }
    }
}

impl Drive {
    /// A saga that is driven by this process for the first time.
    pub(crate) fn of(held: Arc<Held>, state: Arc<State>) -> Self {
        Self { held, state, resumed: false, signals: Vec::new(), taken: BTreeSet::new(), begun: None }
    }

    async fn run(&mut self, engine: &Engine) -> End {
        if let Some(begun) = self.begun.take() {
            let settled = engine.shared.writer.settle(&self.held.tail).await;
            // A caller who left does not matter.
            let _ = begun.send(settled);
            if let Err(cut) = settled {
                return cut.into();
            }
        }
        let signals = std::mem::take(&mut self.signals);
        self.take_in(engine, signals);
        loop {
            if engine.shared.stop.is_cancelled() {
                return End::Stops;
            }
            if let Err(end) = self.go_on(engine).await {
                return end;
            }
        }
    }

    async fn go_on(&mut self, engine: &Engine) -> Result<(), End> {
        if let Some(cut) = self.held.tail.cut() {
            return Err(cut.into());
        }
        if self.held.take_nudge() {
            let signals = engine.shared.signals.read(self.held.tail.saga, &engine.shared.stop).await;
            let signals = signals.map_err(|_| End::Stops)?;
            self.take_in(engine, signals);
        }
        let definition = self.held.tail.definition.clone();
        match decide(&self.state, &definition.shape, engine.now()) {
            Next::Rest => {
                if self.state.parked.is_some() {
                    // Also if nothing was recorded: it may have been claimed in vain.
                    self.held.tail.release(engine.now());
                }
                self.settle(engine).await?;
                Err(End::Rests)
            }
            Next::Record(event) => {
                self.record(engine, vec![event], &[]);
                Ok(())
            }
            Next::Run { step, last_ask } => self.attempt(engine, step, last_ask).await,
            Next::Undo { steps } => {
                #[cfg(feature = "testing")]
                if engine.shared.weakened != crate::testing::Weakened::default() {
                    return self.undo_weakened(engine, steps).await;
                }
                // Before the first undo the decision to undo is on disk, and so is all it was based on.
                self.settle(engine).await?;
                if self.held.is_nudged() {
                    return Ok(());
                }
                self.undo(engine, &steps).await
            }
            Next::Wait { until } => self.wait(engine, until).await,
        }
    }

    /// One attempt of a forward step, and its record.
    async fn attempt(&mut self, engine: &Engine, index: usize, last_ask: bool) -> Result<(), End> {
        let definition = self.held.tail.definition.clone();
        let step = &definition.shape.steps[index];
        let known = self.state.steps.get(step.name).cloned().unwrap_or_default();
        let ticket = match self.permit(engine, step.participant, after(known.failures)) {
            Permit::Go(ticket) => ticket,
            Permit::Wait(pause) => {
                let now = engine.now();
                let deadline = self.state.deadline.filter(|deadline| *deadline > now);
                let until = deadline.map_or(now + pause, |deadline| deadline.min(now + pause));
                return self.wait(engine, until).await;
            }
        };
        let waits = step.durable_before || definition.shape.pivot == Some(index);
        #[cfg(feature = "testing")]
        let waits = waits && !engine.shared.weakened.pivot_record;
        if waits {
            self.settle(engine).await?;
        }
        let saga = self.held.tail.saga;
        let number = known.attempts + 1;
        let resumed = std::mem::take(&mut self.resumed);
        let span = step_span(saga, &definition, index, &self.state, Direction::Do, number, resumed);
        let attempt = Attempt {
            saga,
            epoch: self.held.tail.epoch,
            round: known.restarts + 1,
            number,
            last_ask,
            now: engine.now(),
            state: &self.state,
        };
        let body = &definition.steps[index];
        let answer = tokio::time::timeout(step.retry.attempt_timeout, body.run(&attempt))
            .instrument(span.clone())
            .await;
        // Past its time the attempt's fate is unknown, which is never a failure: the same ids are asked again.
        let answer = answer.unwrap_or_else(|_| Answer::Retry(NO_ANSWER.into()));
        let ended = if matches!(answer, Answer::Retry(_)) { Ended::Failed } else { Ended::Answered };
        engine.shared.breakers.report(ticket, ended, tokio::time::Instant::now());
        tell(&span, &answer);
        let (now, jitter) = (engine.now(), engine.shared.dice.roll());
        let event = record(&self.state, &definition.shape, index, answer, now, jitter, traceparent_of(&span));
        drop(span);
        self.record(engine, vec![event], &[]);
        Ok(())
    }

    /// One undo attempt of each step, side by side: a stuck refund must not hold stock.
    async fn undo(&mut self, engine: &Engine, indices: &[usize]) -> Result<(), End> {
        let definition = self.held.tail.definition.clone();
        let shape = &definition.shape;
        let before = Arc::clone(&self.state);
        let resumed = std::mem::take(&mut self.resumed);
        let (saga, epoch, now) = (self.held.tail.saga, self.held.tail.epoch, engine.now());
        let mut pause = None;
        let mut attempts: FuturesUnordered<_> = FuturesUnordered::new();
        for &index in indices {
            let step = &shape.steps[index];
            let known = before.steps.get(step.name).cloned().unwrap_or_default();
            let ticket = match self.permit(engine, step.participant, after(known.undo.attempts)) {
                Permit::Go(ticket) => ticket,
                Permit::Wait(wait) => {
                    pause = Some(pause.map_or(wait, |shortest: Duration| shortest.min(wait)));
                    continue;
                }
            };
            let number = known.undo.attempts + 1;
            let span = step_span(saga, &definition, index, &before, Direction::Undo, number, resumed);
            let (body, before) = (&definition.steps[index], &before);
            attempts.push(async move {
                let attempt = Attempt {
                    saga,
                    epoch,
                    round: known.restarts + 1,
                    number,
                    last_ask: false,
                    now,
                    state: before,
                };
                let answer = undo_once(&**body, &attempt, step.undo_retry.attempt_timeout, &span).await;
                let ended = if answer == Undo::Done { Ended::Answered } else { Ended::Failed };
                engine.shared.breakers.report(ticket, ended, tokio::time::Instant::now());
                (index, answer)
            });
        }
        let nobody_may_be_asked = attempts.is_empty();
        while let Some((index, answer)) = attempts.next().await {
            let event = match answer {
                Undo::Done => Event::UndoDone { step: shape.steps[index].name.to_owned() },
                Undo::Retry { reason } => {
                    let (now, jitter) = (engine.now(), engine.shared.dice.roll());
                    record_failed_undo(&self.state, shape, index, reason, now, jitter)
                }
            };
            self.record(engine, vec![event], &[]);
        }
        drop(attempts);
        match pause.filter(|_| nobody_may_be_asked) {
            Some(pause) => {
                // Others whose undo failed may be tried again before that.
                let dues =
                    self.state.steps.values().filter(|step| !step.undo.done).filter_map(|step| step.undo.due);
                let (now, until) = (engine.now(), engine.now() + pause);
                let next = dues.filter(|due| *due > now).min();
                self.wait(engine, next.map_or(until, |next| next.min(until))).await
            }
            None => Ok(()),
        }
    }

    /// Undo with rules left out, which the simulation must notice.
    #[cfg(feature = "testing")]
    async fn undo_weakened(&mut self, engine: &Engine, mut steps: Vec<usize>) -> Result<(), End> {
        let weakened = engine.shared.weakened;
        if weakened.full_undo {
            let shape = Arc::clone(&self.held.tail.definition.shape);
            let unknown = |index: &usize| !self.state.steps.contains_key(shape.steps[*index].name);
            let skipped: Vec<_> = steps.extract_if(.., |index| unknown(index)).collect();
            for index in skipped {
                self.record(engine, vec![Event::UndoDone { step: shape.steps[index].name.to_owned() }], &[]);
            }
        }
        if !weakened.turn_wait {
            self.settle(engine).await?;
            if self.held.is_nudged() {
                return Ok(());
            }
        }
        self.undo(engine, &steps).await
    }

    /// Whether a participant may be called now. Waiting for that counts as no attempt.
    fn permit(&self, engine: &Engine, participant: &'static str, attempt: breaker::Attempt) -> Permit {
        if engine.is_paused(self.held.tail.definition.kind, participant) {
            return Permit::Wait(PAUSED_ASKS_AGAIN);
        }
        let now = tokio::time::Instant::now();
        engine.shared.breakers.permit(participant, attempt, now, engine.shared.dice.roll())
    }

    /// Waits in this process for a short time, and gives the saga up for a longer one.
    async fn wait(&mut self, engine: &Engine, until: DateTime<Utc>) -> Result<(), End> {
        let wait = engine.shared.clock.until(until);
        if wait > engine.shared.config.hold_max {
            self.held.tail.release(until);
            self.settle(engine).await?;
            return Err(End::Rests);
        }
        tokio::select! {
            biased;
            () = self.held.nudge_arrives() => {}
            () = engine.shared.stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
        Ok(())
    }

    /// Records events. They are on disk when somebody waits for it, or a moment later.
    fn record(&mut self, engine: &Engine, events: Vec<Event>, signals: &[(SignalId, Seq)]) {
        let state = Arc::make_mut(&mut self.state);
        for event in &events {
            state.apply(event).expect("decide, record and judge give only legal events");
        }
        if events.iter().any(Event::turns) {
            // What was accepted before the turn is on disk must be seen by the undo.
            self.held.nudge();
        }
        if let Some(reason) = self.state.parked_reason().filter(|_| !events.is_empty()) {
            let kind = self.held.tail.definition.kind;
            tracing::error!(saga.id = %self.held.tail.saga, saga.kind = kind, reason, "a saga is parked");
        }
        let tail = &self.held.tail;
        engine.shared.writer.serve(tail, tail.record(events, signals, Arc::clone(&self.state)));
    }

    /// Waits until everything recorded is on disk.
    async fn settle(&self, engine: &Engine) -> Result<(), End> {
        Ok(engine.shared.writer.settle(&self.held.tail).await?)
    }

    /// Takes signals in, in the order they were sent. A parked saga takes in only what operators say.
    fn take_in(&mut self, engine: &Engine, signals: Vec<OpenSignal>) {
        let mut skipped = false;
        for signal in signals {
            if matches!(self.state.phase, Phase::Completed | Phase::Undone) {
                return;
            }
            if self.taken.contains(&signal.id) {
                continue;
            }
            let shape = &self.held.tail.definition.shape;
            let operated = (signal.name == operate::SIGNAL)
                .then(|| operate::operated(&self.state, shape, &signal.payload, engine.now()));
            let mut events = match operated {
                Some(operated) => vec![operated],
                None if self.state.parked.is_some() => {
                    skipped = true;
                    continue;
                }
                None => vec![Event::Signalled { name: signal.name.clone(), payload: signal.payload.clone() }],
            };
            let is_forward = self.state.phase == Phase::Forward && !self.state.pivoted;
            if signal.name == CANCEL && is_forward {
                let cause = Cause::Cancelled { payload: signal.payload.clone() };
                events.push(Event::Turned { cause, span: None });
            }
            if signal.name == EXTEND
                && is_forward
                && self.state.deadline.is_some()
                // What is no time gives none; that it was sent is on record.
                && let Ok(Extension { until }) = serde_json::from_value(signal.payload.clone())
            {
                events.push(Event::Extended { until });
            }
            self.taken.insert(signal.id);
            let taken_by = self.held.tail.end().plus(1);
            self.record(engine, events, &[(signal.id, taken_by)]);
        }
        if skipped && self.state.parked.is_none() {
            // What waited behind an operator's word comes next.
            self.held.nudge();
        }
    }
}

/// Which attempt comes after so many failures.
fn after(failures: u32) -> breaker::Attempt {
    if failures == 0 { breaker::Attempt::First } else { breaker::Attempt::Again }
}

/// Tells a forward attempt's span how it ended.
fn tell(span: &Span, answer: &Answer) {
    match answer {
        Answer::Done(_) => record_outcome(span, "done", None),
        Answer::Pending { .. } => record_outcome(span, "pending", None),
        Answer::Retry(reason) => record_outcome(span, "retry", Some(reason)),
        Answer::Abort { reason, .. } => record_outcome(span, "abort", Some(reason)),
        Answer::Park(reason) => record_outcome(span, "park", Some(reason)),
        Answer::Restart { reason, .. } => record_outcome(span, "restart", Some(reason)),
    }
}

/// One undo attempt under its span, for no longer than it may take.
async fn undo_once(body: &dyn ErasedStep, attempt: &Attempt<'_>, within: Duration, span: &Span) -> Undo {
    let answer = tokio::time::timeout(within, body.undo(attempt)).instrument(span.clone()).await;
    let answer = answer.unwrap_or_else(|_| Undo::Retry { reason: NO_ANSWER.into() });
    match &answer {
        Undo::Done => record_outcome(span, "done", None),
        Undo::Retry { reason } => record_outcome(span, "retry", Some(reason)),
    }
    answer
}

/// What is on record of an attempt that took too long.
const NO_ANSWER: &str = "no answer in time";

/// A saga that meets a pause looks again after this: it is given up meanwhile, and costs a claim each time.
const PAUSED_ASKS_AGAIN: Duration = Duration::from_secs(10);
