//! One connection through a proxy: two pumps, and what waits in them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::timeout;

use super::gate::Gate;
use super::wire::{Answers, Protocol, Requests, Verdict};

const CHUNK_BYTES: usize = 64 * 1024;
/// What is kept of a caller that goes on sending while its request is held; after that it feels it.
const PENDING_BYTES_MAX: usize = 1024 * 1024;
/// A dead caller's connection is kept open so long for the answer to what arrived late.
const LATE_ANSWER: Duration = Duration::from_secs(4);

/// How far the request that was held has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    NotHeld,
    Held,
    /// It was let through, late.
    Delivered,
    Ended,
}

struct Line<'g> {
    gate: &'g Gate,
    asked: watch::Sender<Asked>,
    /// What comes back is held.
    silent: AtomicBool,
}

/// Carries a connection until both ends have ended it.
pub(super) async fn carry(caller: TcpStream, target: TcpStream, gate: &Gate) {
    let line = Line { gate, asked: watch::channel(Asked::NotHeld).0, silent: AtomicBool::new(false) };
    let (from_caller, to_caller) = caller.into_split();
    let (from_target, to_target) = target.into_split();
    // An end that was torn off ends the other one: its halves are dropped.
    let (_, _) = tokio::join!(line.requests(from_caller, to_target), line.answers(from_target, to_caller));
    line.request_ended();
}

impl Line<'_> {
    async fn requests(&self, mut caller: OwnedReadHalf, mut target: OwnedWriteHalf) -> std::io::Result<()> {
        let mut requests = Requests::new(self.gate.protocol);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = caller.read(&mut chunk).await?;
            if length == 0 {
                return Ok(());
            }
            let bytes = &chunk[..length];
            match requests.read(bytes, self.gate) {
                Verdict::Pass => target.write_all(bytes).await?,
                Verdict::HoldAnswer => {
                    self.silent.store(true, Ordering::Release);
                    target.write_all(bytes).await?;
                }
                Verdict::HoldFrom(at) => {
                    target.write_all(&bytes[..at]).await?;
                    let held = bytes[at..].to_vec();
                    self.hold(held, &mut requests, &mut caller, &mut target).await?;
                }
            }
        }
    }

    /// Keeps a request, and what follows it, until it is released.
    async fn hold(
        &self,
        mut pending: Vec<u8>,
        requests: &mut Requests,
        caller: &mut OwnedReadHalf,
        target: &mut OwnedWriteHalf,
    ) -> std::io::Result<()> {
        // Before it is held: a release that comes at once must not be missed.
        let mut released = self.gate.released();
        if !self.gate.hold_request() {
            return target.write_all(&pending).await;
        }
        self.asked.send_replace(Asked::Held);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut alive = true;
        loop {
            tokio::select! {
                biased;
                _ = released.changed() => break,
                length = caller.read(&mut chunk), if alive && pending.len() < PENDING_BYTES_MAX => {
                    let bytes = &chunk[..length.unwrap_or_default()];
                    alive = !bytes.is_empty();
                    pending.extend_from_slice(bytes);
                    // Only to keep count of where requests begin: the moment is taken.
                    let _ = requests.read(bytes, self.gate);
                }
            }
            if !alive && self.gate.protocol == Protocol::Postgres {
                self.request_ended();
                return Err(std::io::ErrorKind::ConnectionAborted.into());
            }
        }
        target.write_all(&pending).await?;
        self.asked.send_if_modified(|asked| {
            let is_held = *asked == Asked::Held;
            if is_held {
                *asked = Asked::Delivered;
            }
            is_held
        });
        if !alive {
            let mut asked = self.asked.subscribe();
            // Unanswered, it shows where the release is waited for.
            let _ = timeout(LATE_ANSWER, asked.wait_for(|asked| *asked == Asked::Ended)).await;
        }
        Ok(())
    }

    async fn answers(&self, mut target: OwnedReadHalf, mut caller: OwnedWriteHalf) -> std::io::Result<()> {
        let mut answers = Answers::new(self.gate.protocol);
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = target.read(&mut chunk).await.unwrap_or_default();
            if length == 0 {
                // Whoever was called gave it up: what is held for them will not be answered.
                self.request_ended();
                return Ok(());
            }
            let bytes = &chunk[..length];
            let is_answer = answers.begin(bytes);
            if is_answer && *self.asked.borrow() == Asked::Delivered {
                self.request_ended();
            }
            // Settings and credit pass: they say nothing of the call.
            if is_answer && self.silent.swap(false, Ordering::AcqRel) {
                let mut released = self.gate.released();
                if self.gate.hold_answer() {
                    let _ = released.changed().await;
                }
            }
            // A caller that is gone does not end the other direction: its late request is still to be answered.
            let _ = caller.write_all(bytes).await;
        }
    }

    /// Once: the held request is answered, or lost.
    fn request_ended(&self) {
        let before = self.asked.send_replace(Asked::Ended);
        if matches!(before, Asked::Held | Asked::Delivered) {
            self.gate.request_ended();
        }
    }
}
