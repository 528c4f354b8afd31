//! Drives one saga: decide, act, record, until it rests or is somebody else's. Every decision is `decide.rs`'s,
//! every write is conditional; what is known here is only the order of the two.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tracing::Instrument as _;

use crate::{
    decide::{Answer, Next, decide, record, record_failed_undo},
    definition::{Attempt, Definition, Undo},
    engine::{CANCEL, Engine, Held},
    event::{Cause, Event},
    id::{Epoch, SagaId, Seq},
    journal::{Append, Appended},
    state::State,
    trace::{Direction, record_outcome, step_span, traceparent_of},
};

/// A saga as this process last knew it.
pub(crate) struct Drive {
    pub(crate) saga: SagaId,
    pub(crate) definition: Definition,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
    pub(crate) state: State,
    /// It was taken from a worker that did not give it up: the next span says so.
    pub(crate) resumed: bool,
    /// It was claimed, so signals may have come while nobody looked.
    pub(crate) look_for_signals: bool,
}

/// Why driving ended.
enum End {
    /// It rests: the journal says for how long.
    Rests,
    /// It is not ours any more. Nothing may be touched.
    LostLease,
    /// The engine stops.
    Stops,
}

/// Drives until the saga rests, is lost, or the engine stops.
pub(crate) async fn drive(engine: &Engine, held: &Arc<Held>, mut work: Drive) {
    match run(engine, held, &mut work).await {
        End::Rests | End::Stops => {}
        End::LostLease => tracing::info!(saga.id = %work.saga, "another worker owns the saga now"),
    }
}

async fn run(engine: &Engine, held: &Arc<Held>, work: &mut Drive) -> End {
    loop {
        if engine.shared.stop.is_cancelled() {
            // The journal knows everything that happened; whoever comes next goes on from there.
            return End::Stops;
        }
        if held.take_nudge()
            && let Err(end) = take_signals(engine, held, work).await
        {
            return end;
        }
        let now = engine.now();
        let step = match decide(&work.state, &work.definition.shape, now) {
            Next::Rest => return End::Rests,
            Next::Record(event) => append(engine, held, work, vec![event], &[]).await,
            Next::Run { step, last_ask } => attempt(engine, held, work, step, last_ask).await,
            Next::Undo { steps } => undo(engine, held, work, &steps).await,
            Next::Wait { until } if engine.shared.clock.until(until) <= engine.shared.config.hold_max => {
                tokio::select! {
                    () = tokio::time::sleep(engine.shared.clock.until(until)) => {}
                    () = held.nudge_arrives() => {}
                    () = engine.shared.stop.cancelled() => {}
                }
                Ok(())
            }
            Next::Wait { until } => give_up_until(engine, work, until).await,
        };
        if let Err(end) = step {
            return end;
        }
    }
}

/// One attempt of a forward step, and its record.
async fn attempt(
    engine: &Engine,
    held: &Arc<Held>,
    work: &mut Drive,
    index: usize,
    last_ask: bool,
) -> Result<(), End> {
    let shape = Arc::clone(&work.definition.shape);
    let step = &shape.steps[index];
    let known = work.state.steps.get(step.name).cloned().unwrap_or_default();
    let span = step_span(
        work.saga,
        work.definition.kind,
        &work.state,
        step.name,
        Direction::Do,
        known.attempts + 1,
        work.resumed,
    );
    work.resumed = false;
    let attempt = Attempt {
        saga: work.saga,
        epoch: work.epoch,
        round: known.restarts + 1,
        number: known.attempts + 1,
        last_ask,
        now: engine.now(),
        state: &work.state,
    };
    let body = Arc::clone(&work.definition.steps[index]);
    let answer =
        tokio::time::timeout(step.retry.attempt_timeout, body.run(&attempt)).instrument(span.clone()).await;
    // Past its time the attempt's fate is unknown, which is never a failure: the same ids are asked again.
    let answer = answer.unwrap_or_else(|_| Answer::Retry("no answer in time".into()));
    match &answer {
        Answer::Done(_) => record_outcome(&span, "done", None),
        Answer::Pending { .. } => record_outcome(&span, "pending", None),
        Answer::Retry(reason) => record_outcome(&span, "retry", Some(reason)),
        Answer::Abort { reason, .. } => record_outcome(&span, "abort", Some(reason)),
        Answer::Park(reason) => record_outcome(&span, "park", Some(reason)),
        Answer::Restart { reason, .. } => record_outcome(&span, "restart", Some(reason)),
    }
    let event =
        record(&work.state, &shape, index, answer, engine.now(), rand::random(), traceparent_of(&span));
    drop(span);
    append(engine, held, work, vec![event], &[]).await
}

/// One undo attempt of each step, side by side: a stuck refund must not hold stock.
async fn undo(engine: &Engine, held: &Arc<Held>, work: &mut Drive, indices: &[usize]) -> Result<(), End> {
    let shape = Arc::clone(&work.definition.shape);
    let before = Arc::new(work.state.clone());
    let resumed = std::mem::take(&mut work.resumed);
    let mut attempts: FuturesUnordered<_> = indices
        .iter()
        .map(|&index| {
            let step = &shape.steps[index];
            let known = before.steps.get(step.name).cloned().unwrap_or_default();
            let number = known.undo.attempts + 1;
            let span = step_span(
                work.saga,
                work.definition.kind,
                &before,
                step.name,
                Direction::Undo,
                number,
                resumed,
            );
            let (saga, epoch, now) = (work.saga, work.epoch, engine.now());
            let body = Arc::clone(&work.definition.steps[index]);
            let before = Arc::clone(&before);
            let within = step.undo_retry.attempt_timeout;
            async move {
                let attempt = Attempt {
                    saga,
                    epoch,
                    round: known.restarts + 1,
                    number,
                    last_ask: false,
                    now,
                    state: &before,
                };
                let answer = tokio::time::timeout(within, body.undo(&attempt)).instrument(span.clone()).await;
                let answer = answer.unwrap_or_else(|_| Undo::Retry { reason: "no answer in time".into() });
                match &answer {
                    Undo::Done => record_outcome(&span, "done", None),
                    Undo::Retry { reason } => record_outcome(&span, "retry", Some(reason)),
                }
                (index, answer)
            }
        })
        .collect();
    while let Some((index, answer)) = attempts.next().await {
        let event = match answer {
            Undo::Done => Event::UndoDone { step: shape.steps[index].name.to_owned() },
            Undo::Retry { reason } => {
                record_failed_undo(&work.state, &shape, index, reason, engine.now(), rand::random())
            }
        };
        append(engine, held, work, vec![event], &[]).await?;
    }
    Ok(())
}

/// Takes in every signal that waits, in the order it was sent.
async fn take_signals(engine: &Engine, held: &Arc<Held>, work: &mut Drive) -> Result<(), End> {
    let signals = loop {
        match engine.shared.journal.open_signals(work.saga).await {
            Ok(signals) => break signals,
            Err(error) => pause_after(engine, work, "signals cannot be read", &error).await?,
        }
    };
    if signals.is_empty() || work.state.at_end() {
        return Ok(());
    }
    let mut events = Vec::with_capacity(signals.len() + 1);
    let mut cancel = None;
    for signal in &signals {
        if signal.name == CANCEL {
            cancel.get_or_insert_with(|| signal.payload.clone());
        }
        events.push(Event::Signalled { name: signal.name.clone(), payload: signal.payload.clone() });
    }
    let cancellable = work.state.phase == crate::state::Phase::Forward && !work.state.pivoted;
    if let Some(payload) = cancel.filter(|_| cancellable) {
        events.push(Event::Turned { cause: Cause::Cancelled { payload }, span: None });
    }
    let taken: Vec<i64> = signals.iter().map(|signal| signal.id).collect();
    append(engine, held, work, events, &taken).await
}

/// Records events, and what follows from them without acting, in one transaction; then goes on from the new state.
async fn append(
    engine: &Engine,
    held: &Arc<Held>,
    work: &mut Drive,
    mut events: Vec<Event>,
    signals_taken: &[i64],
) -> Result<(), End> {
    let shape = Arc::clone(&work.definition.shape);
    let mut state = work.state.clone();
    for event in &events {
        state.apply(event).expect("decide and record give only legal events");
    }
    let mut release = None;
    // At most a few decisions follow from one: done, then the pivot's record; done, then the end.
    for _ in 0..FOLLOWING_MAX {
        match decide(&state, &shape, engine.now()) {
            // A signal that waits may be a cancel, which must come before the pivot's record, not after it.
            Next::Record(Event::PivotBegun { .. }) if held.is_nudged() => break,
            Next::Record(event) => {
                state.apply(&event).expect("decide gives only legal events");
                events.push(event);
            }
            Next::Wait { until } if engine.shared.clock.until(until) > engine.shared.config.hold_max => {
                release = Some(until);
                break;
            }
            _ => break,
        }
    }
    let turned = events.iter().any(|event| matches!(event, Event::Turned { .. }));
    let added = events.len();
    let append = Arc::new(Append {
        saga: work.saga,
        epoch: work.epoch,
        after: work.seq,
        events,
        state: state.clone(),
        release,
        signals_taken: signals_taken.to_vec(),
        side_rows: work.definition.side_rows.clone(),
    });
    write(engine, &append).await?;
    work.seq = work.seq.plus(added);
    work.state = state;
    if let Some(reason) = &work.state.parked {
        tracing::error!(saga.id = %work.saga, saga.kind = work.definition.kind, reason, "a saga is parked");
    }
    let at_rest = release.is_some() || work.state.at_end();
    engine.publish(work.saga, &work.state, work.seq, at_rest);
    if turned {
        // What was accepted before the turn was committed must be seen by the undo.
        held.nudge();
    }
    if at_rest { Err(End::Rests) } else { Ok(()) }
}

/// Writes an append until its fate is known.
async fn write(engine: &Engine, append: &Arc<Append>) -> Result<(), End> {
    let saga = append.saga;
    let end = append.after.plus(append.events.len());
    let mut pause = PAUSE_FIRST;
    let mut refusals = 0;
    loop {
        match engine.shared.journal.append(Arc::clone(append)).await {
            Appended::Yes => return Ok(()),
            Appended::No | Appended::Unknown => {}
            // Perhaps a peer's row will be there in a moment; what is refused again and again never passes.
            Appended::Refused(reason) if refusals == REFUSALS_MAX => {
                let reason = format!("its progress cannot be recorded: {reason}");
                tracing::error!(saga.id = %saga, reason, "a saga is parked");
                match engine.shared.journal.quarantine(saga, append.epoch, &reason).await {
                    Ok(()) => return Err(End::Rests),
                    Err(error) => tracing::warn!(saga.id = %saga, %error, "a saga cannot be parked"),
                }
            }
            Appended::Refused(reason) => {
                refusals += 1;
                tracing::warn!(saga.id = %saga, reason, "an append is refused");
            }
        }
        // Zero rows or an unknown commit: only the row knows. Ours and where the append ends: it was written; ours and
        // where it began: it was not. Anything else: somebody else's.
        match engine.shared.journal.position(saga).await {
            Ok(Some(row)) if row.epoch == append.epoch && row.seq == end => return Ok(()),
            Ok(Some(row))
                if row.epoch == append.epoch
                    && row.seq == append.after
                    && row.owner.as_deref() == Some(engine.shared.journal.owner()) => {}
            Ok(_) => return Err(End::LostLease),
            Err(error) => tracing::warn!(saga.id = %saga, %error, "the journal cannot be read"),
        }
        if engine.shared.stop.is_cancelled() {
            return Err(End::Stops);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Gives up a saga that waits, when nothing was recorded that could have done so.
async fn give_up_until(engine: &Engine, work: &Drive, until: DateTime<Utc>) -> Result<(), End> {
    loop {
        match engine.shared.journal.release(work.saga, work.epoch, work.seq, until).await {
            Ok(Appended::Yes) => {
                engine.publish(work.saga, &work.state, work.seq, true);
                return Err(End::Rests);
            }
            Ok(_) => return Err(End::LostLease),
            Err(error) => pause_after(engine, work, "a saga cannot be given up", &error).await?,
        }
    }
}

async fn pause_after(
    engine: &Engine,
    work: &Drive,
    what: &'static str,
    error: &crate::JournalError,
) -> Result<(), End> {
    tracing::warn!(saga.id = %work.saga, %error, what);
    tokio::select! {
        () = tokio::time::sleep(PAUSE_MAX) => Ok(()),
        () = engine.shared.stop.cancelled() => Err(End::Stops),
    }
}

/// Decisions recorded in one append beside the first.
const FOLLOWING_MAX: usize = 4;
/// Refusals of one append after which its saga is parked.
const REFUSALS_MAX: u32 = 8;
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
