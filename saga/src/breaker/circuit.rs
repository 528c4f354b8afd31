//! The circuit of one participant: closed, open or half open. Pure. Absent: retry budgets and locks.
//!
//! Every change of phase begins a new term. A call reports under the term it began in, so that one from before the
//! breaker opened neither closes it nor trips it again.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    BreakerConfig, Ended,
    window::{WINDOW_S, Window},
};

/// What a circuit looks like from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// Calls go.
    Closed,
    /// None goes before this much time has passed.
    Open {
        /// How long still.
        remaining: Duration,
    },
    /// Probes decide.
    HalfOpen {
        /// Probes under way.
        in_flight: u32,
        /// Probes that were answered.
        answered: u32,
    },
}

#[derive(Debug)]
enum Phase {
    Closed { since: Option<Instant>, failed_in_row: u32, window: Window },
    Open { until: Instant },
    HalfOpen { in_flight: u32, answered: u32 },
}

#[derive(Debug)]
pub(super) struct Circuit {
    phase: Phase,
    term: u64,
    /// Pauses without a while of health in between: the exponent of the next.
    pauses_in_row: u32,
    opened_total: u64,
}

impl Circuit {
    pub(super) fn new(now: Instant) -> Self {
        let phase = Phase::Closed { since: None, failed_in_row: 0, window: Window::new(now) };
        Self { phase, term: 0, pauses_in_row: 0, opened_total: 0 }
    }

    /// Whether a call may go; if so, [`go`](Self::go) says that it does. Else how long to wait.
    pub(super) fn may_go(
        &mut self,
        config: &BreakerConfig,
        now: Instant,
        jitter: f64,
    ) -> Result<(), Duration> {
        if let Phase::Open { until } = self.phase {
            if now < until {
                // Those that wait come back spread out behind the pause, never within it.
                return Err(until - now + config.wait_min.mul_f64(jitter));
            }
            self.enter(Phase::HalfOpen { in_flight: 0, answered: 0 });
        }
        match self.phase {
            Phase::HalfOpen { in_flight, .. } if in_flight >= config.probes => Err(config.wait(jitter)),
            _ => Ok(()),
        }
    }

    /// A call goes. Returns its term.
    pub(super) fn go(&mut self) -> u64 {
        if let Phase::HalfOpen { in_flight, .. } = &mut self.phase {
            *in_flight += 1;
        }
        self.term
    }

    pub(super) fn ended(
        &mut self,
        config: &BreakerConfig,
        term: u64,
        ended: Ended,
        now: Instant,
        jitter: f64,
    ) {
        if term != self.term {
            return;
        }
        match (&mut self.phase, ended) {
            (Phase::Closed { failed_in_row, window, .. }, Ended::Answered) => {
                *failed_in_row = 0;
                window.note(ended, now);
            }
            (Phase::Closed { since, failed_in_row, window }, Ended::Failed) => {
                *failed_in_row += 1;
                window.note(ended, now);
                if *failed_in_row < config.failed_in_row_max
                    && !window.failing(config.calls_min, config.failed_percent)
                {
                    return;
                }
                // One that closes and fails again at once has not recovered: its pause goes on doubling.
                let healthy =
                    since.is_none_or(|since| now.saturating_duration_since(since).as_secs() >= WINDOW_S);
                if healthy {
                    self.pauses_in_row = 0;
                }
                self.open(config, now, jitter);
            }
            (Phase::HalfOpen { in_flight, answered }, Ended::Answered) => {
                *in_flight = in_flight.saturating_sub(1);
                *answered += 1;
                if *answered >= config.answers_to_close {
                    self.enter(Phase::Closed {
                        since: Some(now),
                        failed_in_row: 0,
                        window: Window::new(now),
                    });
                }
            }
            (Phase::HalfOpen { .. }, Ended::Failed) => self.open(config, now, jitter),
            // Nothing goes in an open term, so nothing of it can end.
            (Phase::Open { .. }, _) => {}
        }
    }

    /// A call of this term will never report.
    pub(super) fn abandoned(&mut self, term: u64) {
        if let Phase::HalfOpen { in_flight, .. } = &mut self.phase
            && term == self.term
        {
            *in_flight = in_flight.saturating_sub(1);
        }
    }

    pub(super) fn state(&self, now: Instant) -> CircuitState {
        match self.phase {
            Phase::Closed { .. } => CircuitState::Closed,
            Phase::Open { until } if now < until => CircuitState::Open { remaining: until - now },
            Phase::Open { .. } => CircuitState::HalfOpen { in_flight: 0, answered: 0 },
            Phase::HalfOpen { in_flight, answered } => CircuitState::HalfOpen { in_flight, answered },
        }
    }

    pub(super) fn opened_total(&self) -> u64 {
        self.opened_total
    }

    #[cfg(test)]
    pub(super) fn term(&self) -> u64 {
        self.term
    }

    /// The pause is up to a quarter longer by `jitter`, so that several processes do not probe in step.
    fn open(&mut self, config: &BreakerConfig, now: Instant, jitter: f64) {
        let doubled = config.pause_first.saturating_mul(2_u32.saturating_pow(self.pauses_in_row));
        let pause = doubled.min(config.pause_max).mul_f64(1.0 + jitter / 4.0);
        self.pauses_in_row = self.pauses_in_row.saturating_add(1);
        self.opened_total += 1;
        self.enter(Phase::Open { until: now + pause });
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.term += 1;
    }
}
