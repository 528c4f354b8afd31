//! Whether a participant may be called now: a circuit breaker and a retry budget for each, shared by all sagas of a
//! process, so that a dead participant is not stampeded by everybody's own backoff, nor a recovering one.
//!
//! [`Breakers::permit`] is asked before each call and [`Breakers::report`] told after it. Both are pure in time and
//! chance (`now` and `jitter` are handed in). What waits for a permit has not been attempted: it must not count against
//! the attempts of a step.
//!
//! - *Closed*: calls go. *Open*: none goes for a while. *Half open*: a few probes go, and they decide.
//! - A retry needs a token besides. First attempts earn tokens in part, time earns a few, and a retry that was
//!   answered gives its token back: what the budget bounds is retries that did *not* help. Were it to charge those
//!   that did, thousands of sagas that failed together would come back at ten a second to a healthy participant.
//!
//! Absent: waiting, why a call failed (whoever reports decides), and memory across processes: a breaker is a local guess.

mod budget;
mod circuit;
#[cfg(test)]
mod tests;
mod window;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

pub use self::circuit::CircuitState;
use self::{budget::Budget, circuit::Circuit};

/// When a participant counts as dead, how it is tried again, and how many retries it may be asked to bear. Counts
/// that would stop everything for ever when they are 0 count as 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Fewer ended calls within the last ten seconds than this say nothing about a share: 20 keeps two unlucky
    /// calls of three from closing a shop.
    pub calls_min: u32,
    /// Share of failed calls within ten seconds, in percent, from which on the breaker opens. At half, waiting
    /// costs less than asking.
    pub failed_percent: u32,
    /// That many failures in a row open it too, whatever came before: a participant that has just died would
    /// otherwise be called until its ten good seconds are outweighed.
    pub failed_in_row_max: u32,
    /// How long it stays open the first time: long enough for a restart of a process, short enough not to be felt.
    pub pause_first: Duration,
    /// The pause doubles with each try that failed, up to this: five seconds is what a recovery may go unnoticed.
    pub pause_max: Duration,
    /// Calls under way at once while half open: three, so that one slow call does not decide alone.
    pub probes: u32,
    /// Answers that close it. Three, not the first: behind a balancer one live instance in three answers the first
    /// probe as well, and closing lets everybody in who waits.
    pub answers_to_close: u32,
    /// Retries earned by a hundred first attempts: with 20 a participant that fails everything bears 1.2 times the
    /// load it was offered.
    pub retries_per_100_first: u32,
    /// Retries earned a second, so that a quiet participant can be retried at all.
    pub retries_per_s: u32,
    /// Tokens kept at most: also how many retries can be under way at once when nothing fails.
    pub retries_kept_max: u32,
    /// Without a token, or while probes decide, the shortest wait until asking again,
    pub wait_min: Duration,
    /// and the longest. Drawn between the two, so that those that wait do not come back together.
    pub wait_max: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            calls_min: 20,
            failed_percent: 50,
            failed_in_row_max: 10,
            pause_first: Duration::from_millis(500),
            pause_max: Duration::from_secs(5),
            probes: 3,
            answers_to_close: 3,
            retries_per_100_first: 20,
            retries_per_s: 10,
            retries_kept_max: 100,
            wait_min: Duration::from_millis(100),
            wait_max: Duration::from_millis(300),
        }
    }
}

impl BreakerConfig {
    fn sane(self) -> Self {
        Self {
            calls_min: self.calls_min.max(1),
            failed_percent: self.failed_percent.max(1),
            failed_in_row_max: self.failed_in_row_max.max(1),
            probes: self.probes.max(1),
            answers_to_close: self.answers_to_close.max(1),
            retries_per_s: self.retries_per_s.max(1),
            retries_kept_max: self.retries_kept_max.max(1),
            wait_max: self.wait_max.max(self.wait_min),
            ..self
        }
    }

    fn wait(&self, jitter: f64) -> Duration {
        self.wait_min + self.wait_max.saturating_sub(self.wait_min).mul_f64(jitter)
    }
}

/// Which attempt at a step a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The first: it needs no token and earns a part of one.
    First,
    /// Any later one, after an attempt that failed. Asking again because the participant said `Pending` is none.
    Again,
}

/// How a call ended, as far as the participant's health goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It answered: done, not yet, or a refusal. It lives.
    Answered,
    /// It could not be reached, did not answer in time, or answered that it cannot serve now.
    Failed,
}

/// The answer to a wish to call.
#[derive(Debug)]
pub enum Permit {
    /// Call, then report with the ticket.
    Go(Ticket),
    /// Ask again after this. Nothing was attempted.
    Wait(Duration),
}

/// What a participant's breaker and budget say; for metrics and explanations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Its name.
    pub participant: &'static str,
    /// Its circuit.
    pub circuit: CircuitState,
    /// How often the circuit has opened since the process began.
    pub opened_total: u64,
    /// How often somebody was told to wait since the process began.
    pub waits_total: u64,
    /// Whole retry tokens left.
    pub retry_tokens: u64,
}

#[derive(Debug)]
struct Breaker {
    circuit: Circuit,
    budget: Budget,
    waits_total: u64,
}

#[derive(Debug)]
struct Shared {
    config: BreakerConfig,
    /// Bounded by what the process's definitions name: names are static.
    by_participant: Mutex<BTreeMap<&'static str, Breaker>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Breaker>> {
        // Nothing in here panics half-way; a guess about health is not worth a second panic either.
        self.by_participant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The breakers of a process. Cheap to clone; clones share everything.
#[derive(Debug, Clone)]
pub struct Breakers(Arc<Shared>);

impl Breakers {
    /// All closed, all budgets full.
    pub fn new(config: BreakerConfig) -> Self {
        Self(Arc::new(Shared { config: config.sane(), by_participant: Mutex::default() }))
    }

    /// May `participant` be called now? `jitter` is uniform in 0..=1: it spreads the waits, and the pause too if it
    /// is this call that opens the breaker.
    pub fn permit(&self, participant: &'static str, attempt: Attempt, now: Instant, jitter: f64) -> Permit {
        let config = &self.0.config;
        let jitter = jitter.clamp(0.0, 1.0);
        let mut all = self.0.lock();
        let breaker = all.entry(participant).or_insert_with(|| Breaker {
            circuit: Circuit::new(now),
            budget: Budget::new(config),
            waits_total: 0,
        });
        // The circuit first: while it is open no token is spent.
        if let Err(wait) = breaker.circuit.may_go(config, now, jitter) {
            breaker.waits_total += 1;
            return Permit::Wait(wait);
        }
        if !breaker.budget.spend(config, attempt, now) {
            breaker.waits_total += 1;
            return Permit::Wait(config.wait(jitter));
        }
        let term = breaker.circuit.go();
        Permit::Go(Ticket { of: Arc::clone(&self.0), participant, attempt, jitter, term, ended: None })
    }

    /// How the call went for which `ticket` was given.
    pub fn report(&self, mut ticket: Ticket, ended: Ended, now: Instant) {
        debug_assert!(Arc::ptr_eq(&self.0, &ticket.of), "a ticket goes back where it came from");
        ticket.ended = Some((ended, now));
    }

    /// Every participant that was ever called, by name.
    pub fn health(&self, now: Instant) -> Vec<Health> {
        let mut all = self.0.lock();
        let health = all.iter_mut().map(|(participant, breaker)| Health {
            participant,
            circuit: breaker.circuit.state(now),
            opened_total: breaker.circuit.opened_total(),
            waits_total: breaker.waits_total,
            retry_tokens: breaker.budget.whole(&self.0.config, now),
        });
        health.collect()
    }
}

/// The right to one call. A ticket that is dropped unreported (its task was cancelled or panicked) gives its probe's
/// place back and says nothing about the participant: there is no way to lose a place.
#[must_use = "report how the call ended"]
pub struct Ticket {
    of: Arc<Shared>,
    participant: &'static str,
    attempt: Attempt,
    jitter: f64,
    /// The circuit's term it was given in: what it tells later is stale.
    term: u64,
    ended: Option<(Ended, Instant)>,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("participant", &self.participant).finish_non_exhaustive()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let config = &self.of.config;
        let mut all = self.of.lock();
        let Some(breaker) = all.get_mut(self.participant) else { return };
        match self.ended {
            None => breaker.circuit.abandoned(self.term),
            Some((ended, now)) => {
                breaker.circuit.ended(config, self.term, ended, now, self.jitter);
                breaker.budget.ended(config, self.attempt, ended);
            }
        }
    }
}
