//! How many calls ended within the last ten seconds, and how many of them failed. Absent: single calls; it knows
//! seconds only, so it costs the same however many calls there are.

use tokio::time::Instant;

use super::Ended;

/// Seconds looked back on. Ten: several attempts of every saga under way, and short enough to forget a hiccup
/// before the next.
pub(super) const WINDOW_S: u64 = 10;

const BUCKETS: usize = 10;

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    ended: u32,
    failed: u32,
}

#[derive(Debug)]
pub(super) struct Window {
    origin: Instant,
    /// The newest second that was written to, counted from the origin.
    newest: u64,
    seconds: [Second; BUCKETS],
}

impl Window {
    pub(super) fn new(origin: Instant) -> Self {
        Self { origin, newest: 0, seconds: [Second::default(); BUCKETS] }
    }

    pub(super) fn note(&mut self, ended: Ended, now: Instant) {
        self.forget_before(now);
        let second = &mut self.seconds[index(self.newest)];
        second.ended = second.ended.saturating_add(1);
        second.failed = second.failed.saturating_add(u32::from(ended == Ended::Failed));
    }

    /// Whether at least `calls_min` ended and `percent` of them failed, as of the last call noted.
    pub(super) fn failing(&self, calls_min: u32, percent: u32) -> bool {
        let (ended, failed) = self.seconds.iter().fold((0_u64, 0_u64), |(ended, failed), second| {
            (ended + u64::from(second.ended), failed + u64::from(second.failed))
        });
        ended >= u64::from(calls_min) && failed * 100 >= ended * u64::from(percent)
    }

    /// Empties the seconds that have passed since the newest. An earlier `now` counts into the newest.
    fn forget_before(&mut self, now: Instant) {
        let current = now.saturating_duration_since(self.origin).as_secs().max(self.newest);
        let passed = (current - self.newest).min(WINDOW_S);
        for back in 0..passed {
            self.seconds[index(current - back)] = Second::default();
        }
        self.newest = current;
    }
}

fn index(second: u64) -> usize {
    // Below ten, whatever the width of usize.
    usize::try_from(second % WINDOW_S).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_older_than_ten_seconds_is_forgotten() {
        let start = Instant::now();
        let mut window = Window::new(start);
        for _ in 0..10 {
            window.note(Ended::Failed, start);
        }
        assert!(window.failing(10, 50));
        window.note(Ended::Answered, start + Duration::from_millis(9_999));
        assert!(window.failing(11, 50));
        window.note(Ended::Answered, start + Duration::from_secs(10));
        assert!(window.failing(2, 0));
        assert!(!window.failing(2, 1), "the failures are gone");
        window.note(Ended::Failed, start + Duration::from_secs(3_600));
        assert!(window.failing(1, 100));
        assert!(!window.failing(2, 0));
    }
}
