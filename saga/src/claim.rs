//! Claims: sagas that want to be looked at, and the loop that takes those over that nobody living owns, in batches and
//! only as many as admission lets in beside new ones.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, Semaphore};

use crate::{
    admission::Slot,
    drive::Drive,
    engine::{Engine, Held},
    id::SagaId,
    journal::{Claimable, Claimed},
    state::State,
    tail::Tail,
};

/// Most sagas claimed in one statement.
const BATCH: usize = 256;
/// One batch is claimed while the answer to another is on its way.
const AT_ONCE: usize = 2;
/// Most sagas that wait to be claimed; more are found again by the scan.
const WANTED_MAX: usize = 65_536;

/// Sagas to claim.
pub(crate) struct Claims {
    knows: Vec<String>,
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Default)]
struct Queue {
    /// Signalled, nudged or left behind: before what is only due, or a cancel would wait for a whole backlog.
    urgent: BTreeSet<SagaId>,
    /// What is due, in the order of its due times.
    due: VecDeque<SagaId>,
    is_due: HashSet<SagaId>,
    /// A claim of these is under way: a second one would raise the epoch under the first.
    claiming: BTreeSet<SagaId>,
    /// Wanted again meanwhile: the claim under way may have looked before what that is about.
    put_off: BTreeSet<SagaId>,
}

impl Queue {
    fn len(&self) -> usize {
        self.urgent.len() + self.due.len()
    }

    fn pop(&mut self) -> Option<SagaId> {
        self.urgent.pop_first().or_else(|| {
            let saga = self.due.pop_front()?;
            self.is_due.remove(&saga);
            Some(saga)
        })
    }
}

impl Claims {
    /// Claims of sagas whose definitions are known as `kind@version`.
    pub(crate) fn new(knows: Vec<String>) -> Self {
        Self { knows, queue: Mutex::default(), wake: Notify::new() }
    }

    /// These want to be looked at, before what is only due.
    pub(crate) fn want(&self, sagas: impl IntoIterator<Item = SagaId>) {
        let mut queue = self.queue();
        for saga in sagas {
            if queue.urgent.len() < WANTED_MAX {
                queue.urgent.insert(saga);
            }
        }
        drop(queue);
        self.wake.notify_one();
    }

    /// These are due, the longest first.
    pub(crate) fn want_due(&self, sagas: impl IntoIterator<Item = SagaId>) {
        let mut queue = self.queue();
        for saga in sagas {
            if queue.due.len() < WANTED_MAX && !queue.claiming.contains(&saga) && queue.is_due.insert(saga) {
                queue.due.push_back(saga);
            }
        }
        drop(queue);
        self.wake.notify_one();
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().len()
    }

    /// How many would be claimed now, if they were let in.
    fn wanted(&self) -> u32 {
        u32::try_from(self.waiting().min(BATCH)).expect("a batch is small")
    }

    /// What this worker may claim at the moment.
    pub(crate) fn claimable(&self, engine: &Engine) -> Claimable {
        Claimable { knows: self.knows.clone(), paused_kinds: engine.pauses().kinds.clone() }
    }

    /// Claims what is wanted, until the engine stops.
    pub(crate) async fn run(&self, engine: &Engine) {
        let at_once = Arc::new(Semaphore::new(AT_ONCE));
        loop {
            let Ok(turn) = Arc::clone(&at_once).acquire_owned().await else { return };
            let batch = loop {
                let woken = self.wake.notified();
                let slots = engine.shared.admission.try_enter_many(self.wanted());
                let batch = self.take(engine, slots);
                if !batch.is_empty() {
                    break batch;
                }
                let wanted = self.wanted();
                tokio::select! {
                    biased;
                    () = engine.shared.stop.cancelled() => return,
                    () = woken => {}
                    () = engine.shared.admission.freed(wanted), if wanted > 0 => {}
                }
            };
            let engine = engine.clone();
            engine.clone().run_task(async move {
                engine.shared.claims.claim(&engine, batch).await;
                drop(turn);
            });
        }
    }

    /// The next to claim, each with its slot. Those that are driven here are nudged instead.
    fn take(&self, engine: &Engine, slots: Vec<Slot>) -> Vec<(SagaId, Slot)> {
        let mut slots = slots.into_iter();
        let mut queue = self.queue();
        let held = engine.held();
        let mut batch = Vec::new();
        while slots.len() > 0
            && let Some(saga) = queue.pop()
        {
            if let Some(driven) = held.get(&saga) {
                driven.nudge();
            } else if queue.claiming.insert(saga) {
                batch.extend(slots.next().map(|slot| (saga, slot)));
            } else {
                queue.put_off.insert(saga);
            }
        }
        batch
    }

    fn done(&self, sagas: &[SagaId]) {
        let mut queue = self.queue();
        for saga in sagas {
            queue.claiming.remove(saga);
            if queue.put_off.remove(saga) {
                queue.urgent.insert(*saga);
            }
        }
        drop(queue);
        self.wake.notify_one();
    }

    async fn claim(&self, engine: &Engine, batch: Vec<(SagaId, Slot)>) {
        let (sagas, mut slots): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let _done = Done { claims: self, sagas: &sagas };
        let claimable = self.claimable(engine);
        match engine.shared.journal.claim(&sagas, &claimable, engine.now()).await {
            Ok(claimed) => {
                for row in claimed {
                    // There are as many slots as sagas were asked for.
                    let Some(slot) = slots.pop() else { break };
                    run(engine, row, slot).await;
                }
            }
            Err(error) => tracing::warn!(%error, sagas = sagas.len(), "sagas could not be claimed"),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim under way. When it ends, also by panic, its sagas may be claimed again.
struct Done<'a> {
    claims: &'a Claims,
    sagas: &'a [SagaId],
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.claims.done(self.sagas);
    }
}

/// Drives a claimed saga, or parks it.
async fn run(engine: &Engine, row: Claimed, slot: Slot) {
    let (saga, epoch) = (row.saga, row.epoch);
    match resume(engine, row, slot) {
        Ok(work) => engine.begin(work),
        Err(reason) => {
            tracing::error!(saga.id = %saga, reason, "a saga is parked");
            if let Err(error) = engine.shared.journal.quarantine(saga, epoch, &reason).await {
                // It stays ours, and is adopted again.
                tracing::warn!(saga.id = %saga, %error, "a saga cannot be parked");
            }
        }
    }
}

/// Folds a claimed saga's journal. `Err`: why it must be parked.
fn resume(engine: &Engine, row: Claimed, slot: Slot) -> Result<Drive, String> {
    let limit = engine.shared.config.claims_max;
    if row.claims > limit {
        return Err(format!("it was claimed {limit} times without getting anywhere"));
    }
    let definition = engine
        .definition(&row.kind, row.version)
        .ok_or_else(|| format!("this worker knows no {:?} of version {}", row.kind, row.version))?;
    let journal = row.journal?;
    let state = State::replay(&journal.events).map_err(|illegal| illegal.to_string())?;
    if row.seq.0 != i64::try_from(journal.events.len()).unwrap_or(i64::MAX) {
        return Err(format!("its row is at {}, its journal has {} events", row.seq.0, journal.events.len()));
    }
    if let Some(step) = definition.shape.lacks(&state) {
        return Err(format!("its journal knows a step {step:?} that this definition lacks"));
    }
    let state = Arc::new(state);
    let tail = Tail::at(row.saga, row.epoch, row.seq, definition, Arc::clone(&state), journal.json);
    let held = Arc::new(Held::new(Arc::new(tail), slot));
    Ok(Drive { resumed: row.interrupted, signals: row.signals, ..Drive::of(held, state) })
}
