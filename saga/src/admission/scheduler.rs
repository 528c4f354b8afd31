//! Slots, queues and turns as one pure value: time is handed in, and whoever is let in is handed out. Absent:
//! threads, channels, timers.
//!
//! After every call nobody waits who could enter: whoever frees something lets the next in, there and then.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{AdmissionConfig, PerClass, Priority, turns::Turns};
use crate::tokens::{Fill, Tokens};

/// Without a new saga for this long, sagas that go on may have more of the slots.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// A promise that is not taken up for this long is void. Twice a claim loop's usual scan.
pub(super) const PROMISE: Duration = Duration::from_secs(1);

/// Wakes by time are no denser: ten milliseconds of tokens fit into a burst.
const TICK: Duration = Duration::from_millis(2);

/// Who was let in by a call, in order, and whether places were promised.
#[derive(Debug)]
pub(super) struct Admitted<W> {
    pub(super) waiters: VecDeque<(Priority, W)>,
    pub(super) promised: bool,
}

/// How many are in, and how many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    /// Slots in use: VIP, ordinary, recovered.
    pub in_flight: [u32; 3],
    /// Callers waiting, likewise.
    pub waiting: [usize; 3],
    /// Slots kept for the claim loop.
    pub promised: u32,
}

/// `W` is whatever the edge wants back for one who waited.
#[derive(Debug)]
pub(super) struct Scheduler<W> {
    config: AdmissionConfig,
    in_flight: PerClass<u32>,
    /// By order of arrival; a map, so that one who leaves costs little wherever it stands.
    queues: PerClass<BTreeMap<u64, W>>,
    arrivals: u64,
    turns: Turns,
    starts: Tokens,
    newest_start: Option<Instant>,
    /// Further places the claim loop waits for,
    wanted: u32,
    /// and those kept for it, since when.
    promised: u32,
    promised_at: Option<Instant>,
    /// Turns of recovered sagas alternate between its queue and the claim loop.
    claims_next: bool,
}

fn fill(config: &AdmissionConfig) -> Option<Fill> {
    config.starts.map(|starts| Fill { per_s: starts.per_s, full: starts.burst })
}

impl<W> Scheduler<W> {
    pub(super) fn new(config: AdmissionConfig) -> Self {
        Self {
            config,
            in_flight: PerClass::default(),
            queues: PerClass([BTreeMap::new(), BTreeMap::new(), BTreeMap::new()]),
            arrivals: 0,
            turns: Turns::default(),
            starts: Tokens::full(config.starts.map_or(0, |starts| starts.burst)),
            newest_start: None,
            wanted: 0,
            promised: 0,
            promised_at: None,
            claims_next: false,
        }
    }

    pub(super) fn config(&self) -> &AdmissionConfig {
        &self.config
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        let waiting = Priority::ALL.map(|priority| self.queues[priority].len());
        Occupancy { in_flight: self.in_flight.0, waiting, promised: self.promised }
    }

    /// Whether the claim loop does well to wait a little for further promises: a quarter of what it may have is a
    /// good batch.
    pub(super) fn worth_waiting(&self, now: Instant) -> bool {
        self.wanted > 0 && self.promised < self.recovered_max(now).div_ceil(4)
    }

    /// Enters at once, if nobody has to wait. Uncontended this is a comparison and two additions.
    pub(super) fn enter(&mut self, priority: Priority, now: Instant, admitted: &mut Admitted<W>) -> bool {
        // First those that wait: since they were last looked at, time may have let them in. After that no slot is
        // free that one of them could have.
        self.tick(now, admitted);
        let may = self.may(priority, now);
        if may {
            self.admit(priority, now);
        }
        may
    }

    /// Waits. Returns the place, and whether it is the only one; nothing if the queue is full.
    pub(super) fn queue(&mut self, priority: Priority, waiter: W) -> Option<(u64, bool)> {
        let queue = &mut self.queues[priority];
        if usize::try_from(self.config.waiting_max).is_ok_and(|max| queue.len() >= max) {
            return None;
        }
        self.arrivals += 1;
        queue.insert(self.arrivals, waiter);
        Some((self.arrivals, queue.len() == 1))
    }

    /// Goes away. Nothing if it was let in before.
    pub(super) fn remove(&mut self, priority: Priority, place: u64) -> Option<W> {
        self.queues[priority].remove(&place)
    }

    /// A slot is free again.
    pub(super) fn finish(&mut self, priority: Priority, now: Instant, admitted: &mut Admitted<W>) {
        debug_assert!(self.in_flight[priority] > 0, "a slot is given back once");
        self.in_flight[priority] = self.in_flight[priority].saturating_sub(1);
        self.tick(now, admitted);
    }

    /// The claim loop waits for so many places. Returns whether it has some.
    pub(super) fn want(&mut self, places: u32, now: Instant, admitted: &mut Admitted<W>) -> bool {
        self.wanted = places.saturating_sub(self.promised);
        self.tick(now, admitted);
        self.promised > 0
    }

    /// The claim loop no longer waits; what is promised stays.
    pub(super) fn withdraw(&mut self) {
        self.wanted = 0;
    }

    /// The claim loop takes up to so many places; what was promised beyond goes to others.
    pub(super) fn take(&mut self, places: u32, now: Instant, admitted: &mut Admitted<W>) -> u32 {
        self.wanted = 0;
        self.tick(now, admitted);
        let mut taken = places.min(self.promised);
        self.in_flight[Priority::Recovered] += taken;
        self.promised = 0;
        while taken < places && self.may(Priority::Recovered, now) {
            self.admit(Priority::Recovered, now);
            taken += 1;
        }
        self.tick(now, admitted);
        taken
    }

    pub(super) fn set(&mut self, config: AdmissionConfig, now: Instant, admitted: &mut Admitted<W>) {
        self.turns.reweigh(&self.config, &config);
        match (fill(&self.config), config.starts) {
            (Some(old), Some(_)) => self.starts.refill(old, now),
            (None, Some(starts)) => self.starts = Tokens::full(starts.burst),
            (_, None) => {}
        }
        self.config = config;
        self.tick(now, admitted);
    }

    /// When time alone may let somebody in who waits: by a token, by quiet, or by a promise not taken up.
    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let new_waits = self.new_waits();
        let recovered_waits = self.wanted > 0 || !self.queues[Priority::Recovered].is_empty();
        let token = fill(&self.config).filter(|_| new_waits).map(|fill| now + self.starts.next_in(fill));
        let quiet = self.newest_start.filter(|_| recovered_waits && !new_waits).map(|at| at + QUIET);
        let lapse = self.promised_at.filter(|_| self.promised > 0 && (new_waits || recovered_waits));
        let lapse = lapse.map(|at| at + PROMISE);
        // What lies behind changes nothing any more: it was looked at then.
        let quiet = quiet.filter(|at| *at > now);
        [token, quiet, lapse].into_iter().flatten().min().map(|at| at.max(now + TICK))
    }

    /// Lets in whoever can enter now.
    pub(super) fn tick(&mut self, now: Instant, admitted: &mut Admitted<W>) {
        if let Some(fill) = fill(&self.config) {
            self.starts.refill(fill, now);
        }
        if self.promised > 0
            && self.promised_at.is_some_and(|at| now.saturating_duration_since(at) >= PROMISE)
        {
            self.promised = 0;
        }
        while let Some(priority) = self.next_turn(now) {
            let claims = priority == Priority::Recovered
                && self.wanted > 0
                && (self.claims_next || self.queues[priority].is_empty());
            if priority == Priority::Recovered {
                self.claims_next = !claims;
            }
            if claims {
                self.wanted -= 1;
                self.promised += 1;
                self.promised_at = Some(now);
                admitted.promised = true;
            } else if let Some((_, waiter)) = self.queues[priority].pop_first() {
                self.admit(priority, now);
                admitted.waiters.push_back((priority, waiter));
            }
        }
    }

    fn next_turn(&mut self, now: Instant) -> Option<Priority> {
        if self.used() >= self.config.in_flight_max {
            return None;
        }
        let waits = Priority::ALL.map(|priority| {
            let someone =
                !self.queues[priority].is_empty() || (priority == Priority::Recovered && self.wanted > 0);
            someone && self.may(priority, now)
        });
        self.turns.next(&self.config, |priority| PerClass(waits)[priority])
    }

    /// Whether there is a slot for one more of this class, and a token if it needs one.
    fn may(&self, priority: Priority, now: Instant) -> bool {
        self.used() < self.config.in_flight_max
            && match priority {
                Priority::Vip | Priority::Ordinary => self.config.starts.is_none() || self.starts.has_one(),
                Priority::Recovered => self.in_flight[priority] + self.promised < self.recovered_max(now),
            }
    }

    fn admit(&mut self, priority: Priority, now: Instant) {
        self.in_flight[priority] += 1;
        if priority.is_new() {
            self.newest_start = self.newest_start.max(Some(now));
            if self.config.starts.is_some() {
                self.starts.take();
            }
        }
    }

    fn recovered_max(&self, now: Instant) -> u32 {
        let recent = self.newest_start.is_some_and(|at| now.saturating_duration_since(at) < QUIET);
        if recent || self.new_waits() { self.config.recovered_beside_max } else { self.config.recovered_max }
    }

    fn new_waits(&self) -> bool {
        !self.queues[Priority::Vip].is_empty() || !self.queues[Priority::Ordinary].is_empty()
    }

    fn used(&self) -> u32 {
        self.in_flight.0.iter().sum::<u32>() + self.promised
    }
}
