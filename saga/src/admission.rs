//! Which saga may run next: slots for sagas in flight, shared by weight between VIP orders, ordinary orders and
//! work that comes back (after a timer, a takeover, a signal), so that neither starves the other.
//!
//! While slots are free and no rate is set, entering is one short lock. Under load callers queue, each class in its
//! own queue, and are let in by weighted turns; a queue that is full or a patience that ends is [`Overloaded`]. A
//! [`Slot`] frees its place when it is dropped; a caller that goes away while waiting gives its turn on.
//!
//! The scheduler beneath knows neither tokio's channels nor threads; this file hands slots over and keeps time.
//! Absent: what a saga is, and any task of its own: those that wait keep the time, one at a time.

mod config;
mod scheduler;
#[cfg(test)]
mod tests;
mod turns;

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore, oneshot},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use self::{
    config::PerClass,
    scheduler::{Admitted, Scheduler},
};
pub use self::{
    config::{AdmissionConfig, AdmissionConfigError, StartRate, Weights},
    scheduler::Occupancy,
};

/// With nothing due earlier, how often somebody who waits looks again. A net beneath the precise wakes only.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long [`Admission::freed`] collects further places after the first, so that a claim is worth its statement.
const COLLECT: Duration = Duration::from_millis(5);

/// [`Admission::freed`] takes at least this long: a loop that has no use for what it gets would spin, and on one
/// thread keep from running what it waits for.
const PACE: Duration = Duration::from_millis(1);

/// The classes that share the slots, in the order in which a tie is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// A new saga that goes before others under load.
    Vip,
    /// A new saga.
    #[default]
    Ordinary,
    /// A saga that goes on: after a timer, a takeover or a signal.
    Recovered,
}

impl Priority {
    const ALL: [Self; 3] = [Self::Vip, Self::Ordinary, Self::Recovered];

    fn is_new(self) -> bool {
        self != Self::Recovered
    }
}

/// Not let in. Nothing was begun; the caller may try again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Overloaded {
    /// As many wait already as may wait.
    #[error("as many sagas of this class are waiting as may")]
    QueueFull,
    /// The turn did not come in time.
    #[error("no slot became free in time")]
    PatienceEnded,
}

/// Admission to a process's engine. Cheap to clone; clones share everything.
#[derive(Debug, Clone)]
pub struct Admission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    scheduler: Mutex<Scheduler<oneshot::Sender<Slot>>>,
    /// Places were promised to the claim loop.
    promised: Notify,
    /// The next wake may be earlier than the one who keeps time believes.
    changed: Notify,
    /// One of those that wait keeps the time for all; when it leaves, the next in line takes over.
    timekeeper: Semaphore,
}

impl Admission {
    /// All slots free.
    pub fn new(config: AdmissionConfig) -> Result<Self, AdmissionConfigError> {
        config.check()?;
        Ok(Self(Arc::new(Shared {
            scheduler: Mutex::new(Scheduler::new(config)),
            promised: Notify::new(),
            changed: Notify::new(),
            timekeeper: Semaphore::new(1),
        })))
    }

    /// Takes effect at once, for those that wait too. Lower limits than what is in flight drive nobody out.
    pub fn set(&self, config: AdmissionConfig) -> Result<(), AdmissionConfigError> {
        config.check()?;
        self.0.with(|scheduler, now, admitted| scheduler.set(config, now, admitted));
        self.0.changed.notify_one();
        Ok(())
    }

    /// What [`set`](Self::set) said last.
    pub fn config(&self) -> AdmissionConfig {
        *self.0.lock().config()
    }

    /// Who is in, and who waits; for metrics and explanations.
    pub fn occupancy(&self) -> Occupancy {
        self.0.lock().occupancy()
    }

    /// Waits at most `within` for a slot. Dropping the future gives the turn on; no slot is lost by it.
    pub async fn enter(&self, priority: Priority, within: Duration) -> Result<Slot, Overloaded> {
        let mut waiting = match self.0.enter_or_queue(priority, within)? {
            Entry::Entered(slot) => return Ok(slot),
            Entry::Waiting(waiting) => waiting,
        };
        tokio::select! {
            biased;
            slot = &mut waiting.slot => slot.map_err(|_| Overloaded::PatienceEnded),
            () = sleep(within) => waiting.give_up().await,
            never = self.0.keep_time() => match never {},
        }
    }

    /// As many slots for sagas that go on as there may be now, at most `n`: those promised by
    /// [`freed`](Self::freed), and free ones. What it promised beyond `n` goes to others.
    pub fn try_enter_many(&self, n: u32) -> Vec<Slot> {
        let taken = self.0.with(|scheduler, now, admitted| scheduler.take(n, now, admitted));
        (0..taken).map(|_| Slot::new(&self.0, Priority::Recovered)).collect()
    }

    /// Takes part in the turns for sagas that go on until some of `wanted` places are promised, then collects more
    /// for at most 5 ms; never at once. For one claim loop at a time. Await it only while more is known to be due
    /// than [`try_enter_many`](Self::try_enter_many) let in, and call that next: a promise keeps a slot from others
    /// for up to a second (`try_enter_many(0)` gives it up). Dropping the future withdraws the wish, but not what is
    /// promised already.
    pub async fn freed(&self, wanted: u32) {
        let earliest = Instant::now() + PACE;
        let wish = Wish(&self.0);
        while !self.0.with(|scheduler, now, admitted| scheduler.want(wanted.max(1), now, admitted)) {
            let wake = self.0.wake();
            tokio::select! {
                // In a fixed order, so that a simulation is repeatable.
                biased;
                () = self.0.promised.notified() => {}
                () = sleep_until(wake) => {}
            }
        }
        sleep_until(earliest).await;
        let until = Instant::now() + COLLECT;
        while self.0.lock().worth_waiting(Instant::now()) {
            if timeout_at(until, self.0.promised.notified()).await.is_err() {
                break;
            }
        }
        drop(wish);
    }
}

enum Entry {
    Entered(Slot),
    Waiting(Waiting),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Scheduler<oneshot::Sender<Slot>>> {
        // The scheduler does not panic half-way; if it ever did, its counts are still the best there are.
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change` under the lock and hands over, outside of it, the slots that it gave away. A receiver that has
    /// gone frees its slot again here, in a loop: through `Slot`'s drop it would be a recursion.
    fn with<T>(
        self: &Arc<Self>,
        change: impl FnOnce(
            &mut Scheduler<oneshot::Sender<Slot>>,
            Instant,
            &mut Admitted<oneshot::Sender<Slot>>,
        ) -> T,
    ) -> T {
        let now = Instant::now();
        let mut admitted = Admitted { waiters: VecDeque::new(), promised: false };
        let answer = change(&mut self.lock(), now, &mut admitted);
        while let Some((priority, waiter)) = admitted.waiters.pop_front() {
            if let Err(slot) = waiter.send(Slot::new(self, priority)) {
                slot.forget();
                self.lock().finish(priority, now, &mut admitted);
            }
        }
        if admitted.promised {
            self.promised.notify_one();
        }
        answer
    }

    fn enter_or_queue(self: &Arc<Self>, priority: Priority, within: Duration) -> Result<Entry, Overloaded> {
        let (entry, first) = self.with(|scheduler, now, admitted| {
            if scheduler.enter(priority, now, admitted) {
                return Ok((Entry::Entered(Slot::new(self, priority)), false));
            }
            if within.is_zero() {
                return Err(Overloaded::PatienceEnded);
            }
            let (sender, slot) = oneshot::channel();
            let (place, first) = scheduler.queue(priority, sender).ok_or(Overloaded::QueueFull)?;
            Ok((Entry::Waiting(Waiting { of: Arc::clone(self), priority, place, slot }), first))
        })?;
        // Only the first of a class can bring the next wake forward.
        if first {
            self.changed.notify_one();
        }
        Ok(entry)
    }

    fn wake(&self) -> Instant {
        let now = Instant::now();
        let latest = now + LOOK_AGAIN;
        self.lock().next_wake(now).map_or(latest, |wake| wake.min(latest))
    }

    /// Waits until it is this caller's duty, then wakes the scheduler whenever time alone lets somebody in.
    async fn keep_time(self: &Arc<Self>) -> Infallible {
        let _duty = self.timekeeper.acquire().await;
        loop {
            let wake = self.wake();
            tokio::select! {
                biased;
                () = sleep_until(wake) => self.with(Scheduler::tick),
                () = self.changed.notified() => {}
            }
        }
    }
}

/// A place for one saga in flight; free again when dropped.
#[must_use = "the place is free again as soon as this is dropped"]
pub struct Slot {
    of: Option<Arc<Shared>>,
    priority: Priority,
}

impl Slot {
    fn new(of: &Arc<Shared>, priority: Priority) -> Self {
        Self { of: Some(Arc::clone(of)), priority }
    }

    /// The class it was given to.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    fn forget(mut self) {
        self.of = None;
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("priority", &self.priority).finish_non_exhaustive()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(of) = self.of.take() {
            of.with(|scheduler, now, admitted| scheduler.finish(self.priority, now, admitted));
        }
    }
}

/// A caller's place in a queue. Dropped, it leaves the queue; a slot that was already handed over is dropped with
/// the channel, and so freed.
struct Waiting {
    of: Arc<Shared>,
    priority: Priority,
    place: u64,
    slot: oneshot::Receiver<Slot>,
}

impl Waiting {
    async fn give_up(&mut self) -> Result<Slot, Overloaded> {
        let sender = self.of.lock().remove(self.priority, self.place);
        if sender.is_some() {
            return Err(Overloaded::PatienceEnded);
        }
        // Let in at the same moment: another thread holds the slot and sends it as its very next act.
        (&mut self.slot).await.map_err(|_| Overloaded::PatienceEnded)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The sender is dropped outside the lock: it may wake the receiver's task.
        let sender = self.of.lock().remove(self.priority, self.place);
        drop(sender);
    }
}

/// The claim loop's wish for places.
struct Wish<'a>(&'a Shared);

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        self.0.lock().withdraw();
    }
}
