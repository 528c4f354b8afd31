//! How many sagas wait for what, in which group, and how long each phase takes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::waiting::Rows;

/// Due an hour away: they only have to be there.
const ASLEEP: usize = 0;
/// Overdue when the engine opens, beside those asleep.
pub(super) const SENTINEL: usize = 1;
/// The same in a journal that holds nothing else.
pub(super) const ONLY: usize = 2;
/// Due at a steady rate.
pub(super) const STEADY: usize = 3;
/// Due at one instant.
pub(super) const BURST: usize = 4;
/// Due at one instant, beside new sagas.
pub(super) const BESIDE: usize = 5;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(super) asleep: u64,
    /// At rest, before memory is read.
    pub(super) rest: Duration,
    /// Due per second in the steady phase.
    pub(super) per_second: u32,
    pub(super) warm_up: Duration,
    pub(super) steady: Duration,
    /// New sagas per second, quiet and beside a burst.
    pub(super) new_per_second: u32,
    pub(super) quiet: Duration,
    pub(super) burst: u64,
    /// From when the rows of a phase begin to be written until they are due: longer than the writing takes.
    pub(super) ahead: Duration,
}

impl Plan {
    pub(super) fn new(quick: bool) -> Self {
        let seconds = Duration::from_secs;
        if quick {
            Self {
                asleep: 2_000,
                rest: seconds(1),
                per_second: 200,
                warm_up: seconds(1),
                steady: seconds(1),
                new_per_second: 50,
                quiet: seconds(1),
                burst: 500,
                ahead: seconds(4),
            }
        } else {
            Self {
                asleep: 1_000_000,
                rest: seconds(10),
                per_second: 2_000,
                warm_up: seconds(2),
                steady: seconds(10),
                new_per_second: 500,
                quiet: seconds(10),
                burst: 100_000,
                ahead: seconds(12),
            }
        }
    }

    pub(super) fn asleep(&self) -> Rows {
        let first_in = Duration::from_secs(3_600);
        Rows { group: ASLEEP, count: self.asleep, first_in, spacing: Duration::ZERO, warm_up: 0 }
    }

    pub(super) fn steady(&self) -> Rows {
        let (warm_up, counted) = (self.warm_up.as_secs(), self.steady.as_secs());
        let rate = u64::from(self.per_second);
        Rows {
            group: STEADY,
            count: rate * (warm_up + counted),
            first_in: self.ahead,
            spacing: Duration::from_secs(1) / self.per_second,
            warm_up: rate * warm_up,
        }
    }

    pub(super) fn burst(&self, group: usize) -> Rows {
        Rows { group, count: self.burst, first_in: self.ahead, spacing: Duration::ZERO, warm_up: 0 }
    }
}

/// One that is overdue when an engine opens: the engine is ready when it has woken this one.
pub(super) fn sentinel(group: usize) -> Rows {
    Rows { group, count: 1, first_in: Duration::ZERO, spacing: Duration::ZERO, warm_up: 1 }
}
