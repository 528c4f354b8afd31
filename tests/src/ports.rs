//! Ports for child processes: below the ephemeral range, so that no outgoing connection of this machine can sit on
//! the port of a service that is being restarted.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

const FIRST: u16 = 11_000;
/// Ports tried first by one test process before it would reach into its neighbour's.
const BLOCK: u16 = 64;
/// `FIRST + BLOCK * BLOCKS` stays below 32768, where Linux hands out ephemeral ports.
const BLOCKS: u16 = 330;
const TRIES: u16 = 2_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A TCP port of 127.0.0.1 that is ours until this is dropped, whether or not a process listens on it just now.
///
/// The claim is a bound UDP socket of the same number: it keeps other test processes away while the service that
/// owns the TCP port is dead between `kill` and `restart`.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: UdpSocket,
}

impl Port {
    /// Claims a free port.
    pub fn claim() -> Result<Self> {
        for _ in 0..TRIES {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + (block() * BLOCK + step) % (BLOCK * BLOCKS);
            let Ok(claim) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) else { continue };
            // The listener is closed at once: the probe only asks whether a stranger has the port.
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _claim: claim });
            }
        }
        bail!("no free port found in {TRIES} tries above {FIRST}")
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:<number>`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

/// Tests that run at the same time start in blocks of their own: by nextest's slot, else by process id.
fn block() -> u16 {
    let slot = std::env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|slot| slot.parse::<u32>().ok());
    let seed = slot.unwrap_or_else(std::process::id);
    u16::try_from(seed % u32::from(BLOCKS)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_distinct_and_below_the_ephemeral_range() {
        let ports: Vec<Port> = (0..50).map(|_| Port::claim().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        assert!(numbers.iter().all(|number| (FIRST..32_768).contains(number)));
    }
}
