//! The database's time, read between heartbeats from the monotonic clock: a step of the local wall clock changes
//! nothing. A jump of the database's own clock is not followed until somebody says so: it would close orders early.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// The database's clock as this process knows it.
#[derive(Debug)]
pub(crate) struct Clock {
    reading: Mutex<Reading>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    database: DateTime<Utc>,
    local: Instant,
    /// A second answer has agreed. How long the first one was on its way is not known: there is nothing to jump from.
    confirmed: bool,
    doubt: Option<Doubt>,
}

/// The database's clock is further from where it should be than drift can explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// By how much, when last heard.
    pub(crate) jump: TimeDelta,
    /// Since when, by this process's idea of the time.
    pub(crate) since: DateTime<Utc>,
}

/// Clocks that are kept in step differ by less between two heartbeats, late answers included.
pub(crate) const DRIFT_MAX: TimeDelta = TimeDelta::seconds(1);

impl Clock {
    /// A clock set to `database_now`, which was read a moment ago.
    pub(crate) fn set_to(database_now: DateTime<Utc>) -> Self {
        let reading =
            Reading { database: database_now, local: Instant::now(), confirmed: false, doubt: None };
        Self { reading: Mutex::new(reading) }
    }

    /// Takes in the database's time, which it told at some moment since `asked`. Gives the jump, if that is no drift.
    pub(crate) fn heard(&self, database_now: DateTime<Utc>, asked: Instant) -> Option<TimeDelta> {
        let mut reading = self.reading();
        let now = Instant::now();
        let earliest = reading.database + (asked - reading.local);
        let latest = reading.database + (now - reading.local);
        let off = if database_now < earliest {
            database_now - earliest
        } else {
            (database_now - latest).max(TimeDelta::zero())
        };
        if off.abs() > DRIFT_MAX && reading.confirmed {
            let since = reading.doubt.map_or(latest, |doubt| doubt.since);
            reading.doubt = Some(Doubt { jump: off, since });
        } else {
            // Only as far as the answer contradicts us: what it says of now is as old as its way here was long, and a
            // clock set to that would be late by it, until the next answer looks like a jump.
            let database = (latest + off).max(reading.database);
            *reading = Reading { database, local: now, confirmed: true, doubt: None };
        }
        reading.doubt.map(|doubt| doubt.jump)
    }

    /// Takes the database's time for right after a jump.
    pub(crate) fn accept(&self) {
        let mut reading = self.reading();
        if let Some(doubt) = reading.doubt.take() {
            reading.database += doubt.jump;
        }
    }

    /// How far the database's clock jumped, while that is not accepted.
    pub(crate) fn jump(&self) -> Option<TimeDelta> {
        self.doubt().map(|doubt| doubt.jump)
    }

    /// Whether the database's clock is in doubt.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        self.reading().doubt
    }

    /// The database's time.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        let reading = *self.reading();
        reading.database + reading.local.elapsed()
    }

    /// How long from now until `then`; zero when it has passed.
    pub(crate) fn until(&self, then: DateTime<Utc>) -> Duration {
        (then - self.now()).to_std().unwrap_or_default()
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().expect("no code panics while it holds the clock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_drift_and_no_jump() {
        let clock = Clock::set_to(at(1_000));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(clock.now(), at(1_010));
        let drifted = at(1_010) + TimeDelta::milliseconds(300);
        assert_eq!(clock.heard(drifted, Instant::now()), None);
        assert_eq!(clock.now(), drifted);
        for jump in [3_600, -7_200] {
            assert_eq!(
                clock.heard(drifted + TimeDelta::seconds(jump), Instant::now()),
                Some(TimeDelta::seconds(jump))
            );
            assert_eq!(clock.now(), drifted, "it goes on as before");
            assert_eq!(clock.heard(drifted, Instant::now()), None, "it came back");
        }
        clock.heard(drifted + TimeDelta::hours(1), Instant::now());
        clock.accept();
        assert_eq!(clock.now(), drifted + TimeDelta::hours(1));
        assert_eq!(clock.jump(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_took_long_is_no_jump() {
        let clock = Clock::set_to(at(0));
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(8)).await;
        // The database looked at its clock at some moment of these eight seconds.
        assert_eq!(clock.heard(at(1), asked), None);
        assert_eq!(clock.now(), at(8), "a late answer does not make the clock late");
        assert_eq!(clock.heard(at(8), Instant::now()), None, "so the next one is no jump either");
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_answer_that_took_long_is_put_right_by_the_second() {
        let clock = Clock::set_to(at(0));
        assert_eq!(clock.heard(at(3), Instant::now()), None);
        assert_eq!(clock.now(), at(3));
        assert_eq!(clock.heard(at(6), Instant::now()), Some(TimeDelta::seconds(3)), "only once");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_contradicts_the_clock_moves_it() {
        let clock = Clock::set_to(at(0));
        let tenths = |tenths: i64| at(0) + TimeDelta::milliseconds(100 * tenths);
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(100)).await;
        // We thought it was between 0 and 1 tenth; it was 3 at some moment of that, so it is 3 at least.
        assert_eq!(clock.heard(tenths(3), asked), None);
        assert_eq!(clock.now(), tenths(3));
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(200)).await;
        // Between 3 and 5; it was 1, so it is 3 at most.
        assert_eq!(clock.heard(tenths(1), asked), None);
        assert_eq!(clock.now(), tenths(3));
    }
}
