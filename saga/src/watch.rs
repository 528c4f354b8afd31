//! The loops of a worker: its heartbeat, the scan for what is due, abandoned or signalled, the ear for hints, and the
//! slow second look at everything that waits. None of them runs a saga.

use futures::{
    FutureExt as _,
    future::{BoxFuture, Fuse, FusedFuture as _},
};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    engine::{Engine, Stopped},
    journal::{JournalError, Look, Sighting},
    timer::{NEAR_MAX, Timer},
};

/// Every so many scans, what this worker owns is compared with what it holds.
const ADOPT_EVERY: u32 = 10;

/// Renews the lease and reads the database's clock, until the engine has given up what it held: while it stops, steps still
/// run.
pub(crate) async fn heartbeat(engine: &Engine) {
    let shared = &engine.shared;
    let mut ticks = tokio::time::interval(shared.config.heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut clock_order = None;
    loop {
        tokio::select! {
            biased;
            () = shared.closed.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let asked = Instant::now();
        match shared.journal.heartbeat(shared.config.lease).await {
            Ok(beat) => {
                let known = clock_order.replace(beat.clock_order);
                // What was ordered before this worker began to doubt is about something else.
                let is_ordered =
                    shared.clock.jump().is_some() && known.is_some_and(|known| known < beat.clock_order);
                if let Some(jump) = shared.clock.heard(beat.now, asked) {
                    let jump_ms = jump.num_milliseconds();
                    if is_ordered {
                        shared.clock.accept();
                        tracing::warn!(
                            jump_ms,
                            "the database's time is taken for right: an operator said so"
                        );
                    } else {
                        tracing::error!(
                            jump_ms,
                            "the database's clock jumped: nothing that is due is released until the time is accepted"
                        );
                    }
                }
                *engine.pauses() = beat.pauses;
            }
            Err(JournalError::Replaced(worker)) => engine.halt(Stopped::Replaced(worker)),
            Err(error) => tracing::warn!(%error, "the lease could not be renewed"),
        }
    }
}

/// Looks for work, until the engine stops. What is due fires also while the journal is being read.
pub(crate) async fn scan(engine: &Engine) {
    let shared = &engine.shared;
    let mut ticks = tokio::time::interval(shared.config.scan_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut timer = Timer::default();
    let mut looking: Fuse<BoxFuture<'_, Vec<Sighting>>> = Fuse::terminated();
    let mut round = 0_u32;
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            due = timer.fired() => shared.claims.want_due(due),
            sightings = &mut looking => sort_out(engine, &mut timer, sightings),
            _ = ticks.tick(), if looking.is_terminated() => {
                looking = sight(engine, next_look(engine, &timer, round)).boxed().fuse();
                round = round.wrapping_add(1);
            }
        }
    }
}

/// What the scan of this round looks for.
fn next_look(engine: &Engine, timer: &Timer, round: u32) -> Look {
    let shared = &engine.shared;
    // While time is in doubt, or more is due than can be driven, nothing more is loaded.
    let is_full = timer.len() > NEAR_MAX / 2 || shared.claims.waiting() > NEAR_MAX / 2;
    let loads = shared.clock.jump().is_none() && !is_full;
    let adopts = round.is_multiple_of(ADOPT_EVERY);
    Look {
        due_before: loads.then(|| shared.clock.now() + shared.config.near_window),
        adopt_except: adopts.then(|| engine.held().keys().copied().collect()),
        limit: i64::try_from(NEAR_MAX).expect("a small number"),
    }
}

async fn sight(engine: &Engine, look: Look) -> Vec<Sighting> {
    let shared = &engine.shared;
    match shared.journal.scan(&look, &shared.claims.claimable(engine)).await {
        Ok(sightings) => sightings,
        Err(error) => {
            tracing::warn!(%error, "the journal could not be scanned");
            Vec::new()
        }
    }
}

/// What is due goes to the claims, what is due soon to the timer, and what somebody else left or signalled comes first.
fn sort_out(engine: &Engine, timer: &mut Timer, mut sightings: Vec<Sighting>) {
    sightings.sort_by_key(|sighting| sighting.due);
    let (mut urgent, mut due) = (Vec::new(), Vec::new());
    for sighting in sightings {
        match sighting.due.map(|due| engine.shared.clock.until(due)) {
            None => urgent.push(sighting.saga),
            Some(wait) if wait.is_zero() => due.push(sighting.saga),
            Some(wait) => timer.set(sighting.saga, wait),
        }
    }
    engine.shared.claims.want(urgent);
    engine.shared.claims.want_due(due);
}

/// Hears which sagas other workers sent signals to, until the engine stops.
pub(crate) async fn listen(engine: &Engine) {
    let shared = &engine.shared;
    loop {
        let heard = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            heard = shared.journal.hinted() => heard,
        };
        match heard {
            Ok(sagas) => {
                let held = engine.held();
                let (here, elsewhere): (Vec<_>, Vec<_>) =
                    sagas.into_iter().partition(|saga| held.contains_key(saga));
                for saga in here {
                    held[&saga].nudge();
                }
                drop(held);
                shared.claims.want(elsewhere);
            }
            Err(error) => {
                // Hints are only hints: the scan finds what they would have told.
                tracing::debug!(%error, "hints cannot be heard");
                tokio::select! {
                    biased;
                    () = shared.stop.cancelled() => return,
                    () = tokio::time::sleep(shared.config.heartbeat) => {}
                }
            }
        }
    }
}

/// Looks at everything that waits, seldom, and mends what a lost timer would leave asleep.
pub(crate) async fn audit(engine: &Engine) {
    let shared = &engine.shared;
    let every = shared.config.audit_every;
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if shared.clock.jump().is_some() {
            continue;
        }
        match shared.journal.audit(engine.now(), shared.config.retain_days).await {
            Ok(found) if found == crate::journal::Audit::default() => {}
            Ok(found) => tracing::error!(
                overdue = found.overdue,
                oversleeping = found.oversleeping,
                unknown = found.unknown,
                "sagas that nobody would have looked at in time were mended"
            ),
            Err(error) => tracing::warn!(%error, "what waits could not be looked over"),
        }
    }
}
