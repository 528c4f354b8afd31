//! How often and when a step is tried again. The only retry policy in the workspace; pure, the randomness is
//! handed in.

use std::time::Duration;

/// Capped exponential backoff with full jitter above half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Wait after the first failure.
    pub first: Duration,
    /// No wait is longer.
    pub cap: Duration,
    /// Failures in a row after which the engine gives up: before the pivot it undoes, else it parks.
    pub attempts_max: u32,
    /// How long one attempt may take; past it, its fate is unknown.
    pub attempt_timeout: Duration,
}

impl Retry {
    /// For steps: about six seconds of failures in a row.
    pub const STEP: Self = Self {
        first: Duration::from_millis(50),
        cap: Duration::from_secs(5),
        attempts_max: 8,
        attempt_timeout: Duration::from_secs(2),
    };

    /// For undo, for the pivot and what follows it: giving up there means an operator, so it takes some minutes.
    pub const MUST: Self = Self { attempts_max: 60, ..Self::STEP };

    /// How long to wait after `attempts` failures in a row. `jitter` is uniform in 0..=1: the wait is between half
    /// of the exponential step and all of it, so that many sagas that failed together do not return together.
    pub fn wait(&self, attempts: u32, jitter: f64) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1)));
        doubled.min(self.cap).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn waits_stay_between_half_and_cap(attempts in 1_u32..10_000, jitter in 0.0..=1.0_f64) {
            let wait = Retry::STEP.wait(attempts, jitter);
            proptest::prop_assert!(wait >= Retry::STEP.first / 2);
            proptest::prop_assert!(wait <= Retry::STEP.cap);
        }
    }

    #[test]
    fn eight_failures_outlast_a_restart_of_three_seconds() {
        let total: Duration =
            (1..Retry::STEP.attempts_max).map(|attempt| Retry::STEP.wait(attempt, 0.0)).sum();
        assert!(total > Duration::from_secs(3), "{total:?}");
    }
}
