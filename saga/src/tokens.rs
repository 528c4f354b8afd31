//! A token bucket in whole numbers: a billionth of a token is what one token a second yields in a nanosecond, so
//! nothing is rounded and a bound derived from it holds exactly. Limits are handed in with each call, so that they
//! can change while it is in use. Absent: a lock and a clock.

use std::time::Duration;

use tokio::time::Instant;

const ONE: u64 = 1_000_000_000;

/// How fast a bucket fills, and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) per_s: u32,
    pub(crate) full: u32,
}

/// What is in a bucket.
#[derive(Debug)]
pub(crate) struct Tokens {
    billionths: u64,
    filled_at: Option<Instant>,
}

impl Tokens {
    /// A process starts with a full bucket: it has spared nobody yet, but it has burdened nobody either.
    pub(crate) fn full(full: u32) -> Self {
        Self { billionths: u64::from(full) * ONE, filled_at: None }
    }

    /// Adds what time brought. An earlier `now` (threads read the clock before they take the lock) adds nothing.
    pub(crate) fn refill(&mut self, fill: Fill, now: Instant) {
        let since = now.saturating_duration_since(self.filled_at.unwrap_or(now));
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        self.filled_at = self.filled_at.max(Some(now));
        self.add(nanos.saturating_mul(u64::from(fill.per_s)), fill);
    }

    /// Adds hundredths of a token.
    pub(crate) fn earn_hundredths(&mut self, hundredths: u32, fill: Fill) {
        self.add(u64::from(hundredths) * (ONE / 100), fill);
    }

    /// Takes one token, if there is one.
    pub(crate) fn take(&mut self) -> bool {
        let Some(rest) = self.billionths.checked_sub(ONE) else { return false };
        self.billionths = rest;
        true
    }

    /// Whether one could be taken.
    pub(crate) fn has_one(&self) -> bool {
        self.billionths >= ONE
    }

    /// Whole tokens left.
    pub(crate) fn whole(&self) -> u64 {
        self.billionths / ONE
    }

    /// How long until one can be taken, by time alone.
    pub(crate) fn next_in(&self, fill: Fill) -> Duration {
        let missing = ONE.saturating_sub(self.billionths);
        Duration::from_nanos(missing.div_ceil(u64::from(fill.per_s.max(1))))
    }

    fn add(&mut self, billionths: u64, fill: Fill) {
        self.billionths = self.billionths.saturating_add(billionths).min(u64::from(fill.full) * ONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILL: Fill = Fill { per_s: 3, full: 2 };

    #[test]
    fn the_next_token_comes_exactly_when_it_is_said_to() {
        let mut now = Instant::now();
        let mut tokens = Tokens::full(FILL.full);
        tokens.refill(FILL, now);
        assert!(tokens.take() && tokens.take() && !tokens.take());
        for _ in 0..10 {
            let wait = tokens.next_in(FILL);
            tokens.refill(FILL, now + wait.saturating_sub(Duration::from_nanos(1)));
            assert!(!tokens.has_one());
            now += wait;
            tokens.refill(FILL, now);
            assert!(tokens.take(), "after {wait:?}");
        }
    }

    #[test]
    fn neither_time_standing_back_nor_years_overfill_it() {
        let now = Instant::now();
        let mut tokens = Tokens::full(FILL.full);
        tokens.refill(FILL, now + Duration::from_secs(5));
        assert!(tokens.take());
        tokens.refill(FILL, now);
        tokens.refill(FILL, now + Duration::from_secs(5));
        assert_eq!(tokens.whole(), 1, "time that was counted is not counted again");
        tokens.refill(FILL, now + Duration::from_secs(10 * 365 * 86_400));
        assert_eq!(tokens.whole(), 2);
    }
}
