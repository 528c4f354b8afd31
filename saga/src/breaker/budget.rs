//! How many retries a participant is asked to bear. Absent: what a retry is for, and whether it is up.

use tokio::time::Instant;

use super::{Attempt, BreakerConfig, Ended};
use crate::tokens::{Fill, Tokens};

#[derive(Debug)]
pub(super) struct Budget(Tokens);

fn fill(config: &BreakerConfig) -> Fill {
    Fill { per_s: config.retries_per_s, full: config.retries_kept_max }
}

impl Budget {
    pub(super) fn new(config: &BreakerConfig) -> Self {
        Self(Tokens::full(config.retries_kept_max))
    }

    /// A first attempt earns and always passes; a retry passes if it can pay.
    pub(super) fn spend(&mut self, config: &BreakerConfig, attempt: Attempt, now: Instant) -> bool {
        self.0.refill(fill(config), now);
        match attempt {
            Attempt::First => {
                self.0.earn_hundredths(config.retries_per_100_first, fill(config));
                true
            }
            Attempt::Again => self.0.take(),
        }
    }

    /// A retry that was answered was worth it: its token comes back.
    pub(super) fn ended(&mut self, config: &BreakerConfig, attempt: Attempt, ended: Ended) {
        if (attempt, ended) == (Attempt::Again, Ended::Answered) {
            self.0.earn_hundredths(100, fill(config));
        }
    }

    pub(super) fn whole(&mut self, config: &BreakerConfig, now: Instant) -> u64 {
        self.0.refill(fill(config), now);
        self.0.whole()
    }
}
