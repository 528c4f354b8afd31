//! What the kernel says of this process and of the machine, from /proc.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Resident memory of this process.
pub(crate) fn resident_mib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

/// Processor time since boot, or between two looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    /// Of this process.
    pub(crate) own: Duration,
    /// Of all processes, this one included.
    pub(crate) busy: Duration,
    /// That nobody used, over all cores.
    pub(crate) idle: Duration,
}

impl Cpu {
    pub(crate) fn now() -> Result<Self> {
        let (own, all) = (fs::read_to_string("/proc/self/stat")?, fs::read_to_string("/proc/stat")?);
        // The second field is the program's name in brackets and may hold spaces.
        let own: Vec<&str> = own.rsplit_once(") ").context("no name")?.1.split(' ').collect();
        let all = all.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("no cpu line")?;
        let all: Vec<u64> = all.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [user, nice, system, idle, iowait, irq, softirq, ..] = all[..] else {
            anyhow::bail!("the cpu line is short")
        };
        Ok(Self {
            own: ticks(own[11].parse::<u64>()? + own[12].parse::<u64>()?),
            busy: ticks(user + nice + system + irq + softirq),
            idle: ticks(idle + iowait),
        })
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            own: self.own.saturating_sub(earlier.own),
            busy: self.busy.saturating_sub(earlier.busy),
            idle: self.idle.saturating_sub(earlier.idle),
        }
    }

    /// Of all processes but this one.
    pub(crate) fn others(&self) -> Duration {
        self.busy.saturating_sub(self.own)
    }

    /// The part of all cores that nobody used.
    pub(crate) fn idle_share(&self) -> f64 {
        self.idle.as_secs_f64() / (self.idle + self.busy).as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// /proc counts in hundredths of a second on every architecture we build for.
fn ticks(number: u64) -> Duration {
    Duration::from_millis(number * 10)
}
