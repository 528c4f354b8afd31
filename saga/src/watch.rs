//! The loops of a worker: its heartbeat, and the scan for what is due, abandoned or signalled. Due times of the next
//! seconds are kept in a timer of this process, so that firing is precise; everything further away is only a row.

use std::{collections::HashMap, time::Duration};

use futures::StreamExt as _;
use tokio_util::time::{DelayQueue, delay_queue::Key};

use crate::{
    drive::Drive,
    engine::Engine,
    event::Event,
    id::SagaId,
    journal::{Claimed, JournalError},
    state::State,
};

/// Most sagas looked at in one scan, per reason.
const SCAN_LIMIT: i64 = 1_000;
/// Most sagas claimed in one statement.
const CLAIM_BATCH: usize = 256;

/// Renews the lease and reads the database's clock, until the engine stops or is replaced.
pub(crate) async fn heartbeat(engine: Engine) {
    let config = &engine.shared.config;
    let mut ticks = tokio::time::interval(config.heartbeat);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = engine.shared.stop.cancelled() => return,
        }
        match engine.shared.journal.heartbeat(config.lease).await {
            Ok(database_now) => engine.shared.clock.reset(database_now),
            Err(JournalError::Replaced(worker)) => {
                tracing::error!(worker, "a newer process of this name runs; this one stops");
                engine.shared.stop.cancel();
            }
            Err(error) => tracing::warn!(%error, "the lease could not be renewed"),
        }
    }
}

/// Looks for work, until the engine stops.
pub(crate) async fn scan(engine: Engine) {
    let config = &engine.shared.config;
    let mut ticks = tokio::time::interval(config.scan_every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut timer = Timer::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => look(&engine, &mut timer).await,
            due = timer.fired(), if !timer.is_empty() => claim(&engine, due).await,
            () = engine.shared.stop.cancelled() => return,
        }
    }
}

async fn look(engine: &Engine, timer: &mut Timer) {
    let held: Vec<_> = engine.held().keys().map(|saga| saga.0).collect();
    let sightings =
        match engine.shared.journal.scan(engine.shared.config.near_window, &held, SCAN_LIMIT).await {
            Ok(sightings) => sightings,
            Err(error) => {
                tracing::warn!(%error, "the journal could not be scanned");
                return;
            }
        };
    let mut now = Vec::new();
    for sighting in sightings {
        let wait = sighting.due.map(|due| engine.shared.clock.until(due)).unwrap_or_default();
        if wait.is_zero() {
            now.push(sighting.saga);
        } else {
            timer.set(sighting.saga, wait);
        }
    }
    claim(engine, now).await;
}

/// Due times of the near window. Bounded: each scan adds at most [`SCAN_LIMIT`], and a saga is in it once.
#[derive(Default)]
struct Timer {
    queue: DelayQueue<SagaId>,
    keys: HashMap<SagaId, Key>,
}

impl Timer {
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn set(&mut self, saga: SagaId, wait: Duration) {
        if let Some(key) = self.keys.get(&saga) {
            self.queue.reset(key, wait);
        } else {
            let key = self.queue.insert(saga, wait);
            self.keys.insert(saga, key);
        }
    }

    /// Waits for the first that is due, and takes all others that are due with it.
    async fn fired(&mut self) -> Vec<SagaId> {
        let mut due = Vec::new();
        if let Some(first) = self.queue.next().await {
            due.push(first.into_inner());
        }
        while due.len() < CLAIM_BATCH
            && let Some(Some(next)) = futures::FutureExt::now_or_never(self.queue.next())
        {
            due.push(next.into_inner());
        }
        for saga in &due {
            self.keys.remove(saga);
        }
        due
    }
}

/// Claims those that nobody living owns and drives them; nudges those that are driven here already.
pub(crate) async fn claim(engine: &Engine, mut sagas: Vec<SagaId>) {
    sagas.sort_unstable();
    sagas.dedup();
    {
        let held = engine.held();
        sagas.retain(|saga| match held.get(saga) {
            Some(driven) => {
                driven.nudge();
                false
            }
            None => true,
        });
        // What does not fit is found by a later scan.
        sagas.truncate(engine.shared.config.in_flight_max.saturating_sub(held.len()));
    }
    for batch in sagas.chunks(CLAIM_BATCH) {
        if engine.shared.stop.is_cancelled() {
            return;
        }
        if let Err(error) = claim_batch(engine, batch).await {
            tracing::warn!(%error, "sagas could not be claimed");
        }
    }
}

async fn claim_batch(engine: &Engine, batch: &[SagaId]) -> Result<(), JournalError> {
    let claimed = engine.shared.journal.claim(batch).await?;
    let ids: Vec<_> = claimed.iter().map(|row| row.saga).collect();
    let mut journals = engine.shared.journal.events(&ids).await?;
    for row in claimed {
        let events = journals.remove(&row.saga).unwrap_or_else(|| Err("it has no events".into()));
        match resume(engine, &row, events) {
            Ok(work) => engine.begin(work),
            Err(reason) => {
                tracing::error!(saga.id = %row.saga, reason, "a saga is parked");
                engine.shared.journal.quarantine(row.saga, row.epoch, &reason).await?;
            }
        }
    }
    Ok(())
}

/// Folds a claimed saga's journal. `Err`: why it must be parked.
fn resume(engine: &Engine, row: &Claimed, events: Result<Vec<Event>, String>) -> Result<Drive, String> {
    let limit = engine.shared.config.claims_max;
    if row.claims > limit {
        return Err(format!("it was claimed {limit} times without getting anywhere"));
    }
    let definition = engine
        .definition(&row.kind, row.version)
        .ok_or_else(|| format!("this worker knows no {:?} of version {}", row.kind, row.version))?;
    let events = events?;
    let state = State::replay(&events).map_err(|illegal| illegal.to_string())?;
    if row.seq.0 != i64::try_from(events.len()).unwrap_or(i64::MAX) {
        return Err(format!("its row is at {}, its journal has {} events", row.seq.0, events.len()));
    }
    Ok(Drive {
        saga: row.saga,
        definition,
        epoch: row.epoch,
        seq: row.seq,
        state,
        resumed: row.interrupted,
        look_for_signals: true,
    })
}
