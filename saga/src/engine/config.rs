//! How an engine runs. Every limit of it is here, with its unit and its reason.

use std::time::Duration;

use crate::{admission::AdmissionConfig, breaker::BreakerConfig};

/// How an engine runs.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The worker's name: two live processes never share one, a restarted process keeps it.
    pub worker: String,
    /// How long after its last heartbeat a worker's sagas may be taken over.
    pub lease: Duration,
    /// How often the lease is renewed and the database's clock read.
    pub heartbeat: Duration,
    /// How often the journal is scanned for what is due, abandoned or signalled.
    pub scan_every: Duration,
    /// How far ahead due times are loaded into the process; at least twice `scan_every`.
    pub near_window: Duration,
    /// A saga that waits longer than this is given up until it is due: it costs no memory and no lease.
    pub hold_max: Duration,
    /// How often everything that waits is compared with when it should wake.
    pub audit_every: Duration,
    /// How many days finished sagas are kept.
    pub retain_days: u32,
    /// Claims without progress after which a saga is parked: it may be what kills the process.
    pub claims_max: i32,
    /// Which saga may run next.
    pub admission: AdmissionConfig,
    /// When a participant is left alone.
    pub breaker: BreakerConfig,
}

impl EngineConfig {
    /// The defaults, for a worker of this name.
    pub fn named(worker: impl Into<String>) -> Self {
        Self {
            worker: worker.into(),
            lease: Duration::from_secs(5),
            heartbeat: Duration::from_secs(1),
            scan_every: Duration::from_millis(500),
            near_window: Duration::from_secs(2),
            hold_max: Duration::from_millis(500),
            audit_every: Duration::from_mins(5),
            retain_days: 30,
            claims_max: 10,
            admission: AdmissionConfig::default(),
            breaker: BreakerConfig::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let broken = |rule| Err(ConfigError(rule));
        if self.worker.trim().is_empty() {
            return broken("the worker has a name");
        }
        if self.heartbeat < Duration::from_millis(10) || self.scan_every < Duration::from_millis(10) {
            return broken("heartbeat and scan_every are at least 10 ms");
        }
        if self.lease < self.heartbeat * 2 {
            return broken("the lease outlives a missed heartbeat: it is at least twice as long");
        }
        if self.near_window < self.scan_every * 2 {
            return broken("near_window is at least twice scan_every");
        }
        if self.claims_max < 1 || self.retain_days < 1 || self.audit_every < self.scan_every {
            return broken("claims_max and retain_days are at least 1, audit_every at least scan_every");
        }
        Ok(())
    }
}

/// A configuration that cannot work: the rule it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an engine cannot run so: {0}")]
pub struct ConfigError(&'static str);
