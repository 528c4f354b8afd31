//! The sagas that tasks of this process drive: each at most once, each with its slot, all of them to be nudged. What
//! driving means is in `drive.rs`.

use std::{
    collections::HashMap,
    sync::{
        Arc, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use super::Engine;
use crate::{
    admission::Slot,
    drive::{Drive, drive},
    id::SagaId,
    tail::Tail,
};

/// A saga that a task of this process drives.
pub(crate) struct Held {
    pub(crate) tail: Arc<Tail>,
    nudged: AtomicBool,
    wake: Notify,
    _slot: Slot,
}

impl Held {
    pub(crate) fn new(tail: Arc<Tail>, slot: Slot) -> Self {
        Self { tail, nudged: AtomicBool::new(false), wake: Notify::new(), _slot: slot }
    }

    /// There may be a signal.
    pub(crate) fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn is_nudged(&self) -> bool {
        self.nudged.load(Ordering::Acquire)
    }

    /// Whether it was nudged since last asked.
    pub(crate) fn take_nudge(&self) -> bool {
        self.is_nudged() && self.nudged.swap(false, Ordering::AcqRel)
    }

    pub(crate) async fn nudge_arrives(&self) {
        while !self.is_nudged() {
            self.wake.notified().await;
        }
    }
}

impl Engine {
    pub(crate) fn held(&self) -> MutexGuard<'_, HashMap<SagaId, Arc<Held>>> {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a task of this process drives the saga. `None`: one does already.
    pub(crate) fn hold(&self, held: &Arc<Held>) -> Option<HoldGuard> {
        let saga = held.tail.saga;
        let mut all = self.held();
        if all.contains_key(&saga) {
            return None;
        }
        all.insert(saga, Arc::clone(held));
        Some(HoldGuard { engine: self.clone(), saga })
    }

    /// Drives a saga in its own task, unless one does already.
    pub(crate) fn begin(&self, work: Drive) {
        if let Some(guard) = self.hold(&work.held) {
            self.run_held(guard, work);
        }
    }

    pub(crate) fn run_held(&self, guard: HoldGuard, work: Drive) {
        let engine = self.clone();
        self.shared.tasks.spawn(async move {
            let _guard = guard;
            let closed = engine.shared.closed.clone();
            tokio::select! {
                biased;
                // What is recorded now is never written, so nobody may wait for it, and nothing may be done on it.
                () = closed.cancelled() => {}
                () = drive(&engine, work) => {}
            }
        });
    }
}

/// Forgets a saga when its task ends, also by panic: the journal's scan then finds it.
pub(crate) struct HoldGuard {
    engine: Engine,
    saga: SagaId,
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        let held = self.engine.held().remove(&self.saga);
        // A signal that came while it was given up.
        if held.is_some_and(|held| held.is_nudged()) {
            self.engine.shared.claims.want([self.saga]);
        }
    }
}
