//! What all parts of a simulation share: the seed's randomness, the virtual time, the chronicle, the store, the
//! network's messages under way, and traps.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, TimeZone as _, Utc};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use tokio::{sync::mpsc, time::Instant};

use super::{
    chronicle::Chronicle,
    faults::{Faults, Weakened},
    life::Life,
    store::Store,
    trap::{Harm, Trap, When},
};
use crate::id::SagaId;

/// The world of one simulation.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) weakened: Weakened,
    began: Instant,
    chance: Mutex<SmallRng>,
    chronicle: Mutex<Chronicle>,
    faults: Mutex<Faults>,
    store: Mutex<Store>,
    lives: Mutex<BTreeMap<String, Arc<Life>>>,
    traps: Mutex<Vec<Trap>>,
    violations: Mutex<Vec<String>>,
    ears: Mutex<Vec<mpsc::Sender<Vec<SagaId>>>>,
    under_way: AtomicUsize,
}

impl World {
    /// Must be made inside the runtime whose time it tells.
    pub(crate) fn new(seed: u64, faults: Faults, weakened: Weakened) -> Arc<Self> {
        Arc::new(Self {
            seed,
            weakened,
            began: Instant::now(),
            chance: Mutex::new(SmallRng::seed_from_u64(seed)),
            chronicle: Mutex::default(),
            faults: Mutex::new(faults),
            store: Mutex::default(),
            lives: Mutex::default(),
            traps: Mutex::default(),
            violations: Mutex::default(),
            ears: Mutex::default(),
            under_way: AtomicUsize::new(0),
        })
    }

    /// The database's time: virtual, from the same instant in every run.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        let epoch = Utc.with_ymd_and_hms(2026, 11, 27, 0, 0, 0).single().expect("it is a date");
        epoch + self.began.elapsed()
    }

    pub(crate) fn note(&self, what: &str) {
        let at = self.began.elapsed().as_millis();
        locked(&self.chronicle).note(at, what);
    }

    pub(crate) fn chronicle(&self) -> MutexGuard<'_, Chronicle> {
        locked(&self.chronicle)
    }

    /// Something that must never be was.
    pub(crate) fn violation(&self, what: String) {
        self.note(&format!("VIOLATION {what}"));
        locked(&self.violations).push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        locked(&self.violations).clone()
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        locked(&self.faults)
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        locked(&self.store)
    }

    pub(crate) fn lives(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Life>>> {
        locked(&self.lives)
    }

    /// Whether what happens to a share of all calls happens to this one.
    pub(crate) fn happens(&self, share: f64) -> bool {
        // Always drawn, so that a fault that is switched off does not change what comes after.
        locked(&self.chance).random::<f64>() < share
    }

    /// A time up to `most`, in whole milliseconds: short ones are as likely as long ones are rare.
    pub(crate) fn time_up_to(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_millis()).expect("nobody simulates for that long");
        let mut chance = locked(&self.chance);
        let bound = chance.random_range(0..=most);
        Duration::from_millis(chance.random_range(0..=bound))
    }

    pub(crate) fn number_below(&self, bound: u64) -> u64 {
        locked(&self.chance).random_range(0..bound.max(1))
    }

    pub(crate) fn number(&self) -> u64 {
        locked(&self.chance).random()
    }

    /// Runs `message` outside of every life: it arrives whatever becomes of its sender. A simulation is drained only
    /// when it has.
    pub(crate) fn send(self: &Arc<Self>, message: impl Future<Output = ()> + Send + 'static) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let world = Arc::clone(self);
        tokio::spawn(async move {
            message.await;
            world.under_way.fetch_sub(1, Ordering::Relaxed);
        });
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Somebody listens for hints from now on.
    pub(crate) fn hears(&self, ear: mpsc::Sender<Vec<SagaId>>) {
        locked(&self.ears).push(ear);
    }

    /// Tells every listener, or not: hints may be lost.
    pub(crate) fn hint(&self, sagas: &[SagaId]) {
        let lost = self.faults().journal.hints_lost;
        locked(&self.ears).retain(|ear| {
            if !self.happens(lost) {
                // Who has too many already needs no more.
                let _ = ear.try_send(sagas.to_vec());
            }
            !ear.is_closed()
        });
    }

    /// Sets a trap: the first time something of this label comes by, it does its harm.
    pub(crate) fn set(&self, trap: Trap) {
        locked(&self.traps).push(trap);
    }

    /// Does the harm of the trap that what is labelled runs into; whether what was done, or is to be done, fails.
    pub(crate) fn spring(&self, label: &str, when: When) -> bool {
        let harm = {
            let mut traps = locked(&self.traps);
            let found = traps.iter().position(|trap| trap.when == when && label.starts_with(&trap.label));
            let Some(found) = found else { return false };
            traps.remove(found).harm
        };
        self.note(&format!("trap {when:?} {label}: {harm:?}"));
        match harm {
            Harm::Error => true,
            Harm::Crash(worker) => {
                self.lives().get(&worker).inspect(|life| life.end());
                true
            }
            Harm::Freeze(worker) => {
                self.lives().get(&worker).inspect(|life| life.freeze());
                false
            }
        }
    }

    pub(crate) fn clear_traps(&self) {
        locked(&self.traps).clear();
    }

    pub(crate) fn traps_left(&self) -> usize {
        locked(&self.traps).len()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
