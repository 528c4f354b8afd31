//! The database's time, read between heartbeats from the monotonic clock: a step of the local wall clock changes
//! nothing.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};

/// The database's clock as this process knows it.
#[derive(Debug)]
pub(crate) struct Clock {
    reading: Mutex<(DateTime<Utc>, Instant)>,
}

impl Clock {
    /// A clock set to `database_now`, which was read now.
    pub(crate) fn set_to(database_now: DateTime<Utc>) -> Self {
        Self { reading: Mutex::new((database_now, Instant::now())) }
    }

    /// Sets it anew.
    pub(crate) fn reset(&self, database_now: DateTime<Utc>) {
        *self.reading.lock().expect("no code panics while it holds the clock") =
            (database_now, Instant::now());
    }

    /// The database's time.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        let (database, local) = *self.reading.lock().expect("no code panics while it holds the clock");
        database + local.elapsed()
    }

    /// How long from now until `then`; zero when it has passed.
    pub(crate) fn until(&self, then: DateTime<Utc>) -> Duration {
        (then - self.now()).to_std().unwrap_or_default()
    }
}
