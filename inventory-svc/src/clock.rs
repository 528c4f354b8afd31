//! The one clock: the ledger database's, carried between measurements by this machine's monotonic clock. Steps of
//! the local wall clock change nothing. Absent: any use of the local wall clock.

use std::{
    sync::{
        RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ledger::{Ledger, LedgerError};

/// How often the offset is measured; two clocks drift apart by well under a millisecond in that time.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// How soon a failed measurement is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The ledger database's clock.
#[derive(Debug)]
pub struct Clock {
    anchor: RwLock<Anchor>,
    answers: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Anchor {
    instant: Instant,
    database_ms: i64,
}

impl Clock {
    /// Measures for the first time.
    pub async fn measure(ledger: &Ledger) -> Result<Self, LedgerError> {
        Ok(Self { anchor: RwLock::new(anchor(ledger).await?), answers: AtomicBool::new(true) })
    }

    /// Now, in ms since 1970.
    pub fn now_ms(&self) -> i64 {
        let Anchor { instant, database_ms } =
            *self.anchor.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        database_ms + i64::try_from(instant.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Whether the last measurement succeeded: the database answers.
    pub fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Measures again and again until stopped.
    pub async fn follow(&self, ledger: &Ledger, stop: CancellationToken) {
        let mut pause = MEASURE_EVERY;
        while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            let measured = anchor(ledger).await;
            let answered = self.answers.swap(measured.is_ok(), Ordering::Relaxed);
            match measured {
                Ok(anchor) => {
                    *self.anchor.write().unwrap_or_else(std::sync::PoisonError::into_inner) = anchor;
                    pause = MEASURE_EVERY;
                }
                Err(error) => {
                    if answered {
                        tracing::warn!(%error, "the ledger's database does not tell the time");
                    }
                    pause = RETRY_AFTER;
                }
            }
        }
    }
}

/// The answer is taken to be from the middle of the round trip.
async fn anchor(ledger: &Ledger) -> Result<Anchor, LedgerError> {
    let asked = Instant::now();
    let database_ms = ledger.clock_ms().await?;
    Ok(Anchor { instant: asked + asked.elapsed() / 2, database_ms })
}
