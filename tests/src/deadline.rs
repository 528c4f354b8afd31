//! Waiting for a condition with a deadline. There is no other way to wait in the tests: no sleeps for luck.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep};

/// How often a condition is looked at: short beside every time that a test measures.
const PROBE_EVERY: Duration = Duration::from_millis(10);

/// Looks at `probe` until it answers `Ok`, at most for `within`. The last refusal becomes the error, so a failing
/// test says what it saw instead of what it wished for.
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        match probe().await {
            Ok(seen) => return Ok(seen),
            Err(refusal) if started.elapsed() >= within => {
                return Err(anyhow!("not within {within:?}: {what}; last seen: {refusal:#}"));
            }
            Err(_) => sleep(PROBE_EVERY).await,
        }
    }
}
