//! A TCP proxy on the way between one service and what it calls, which can hold a chosen request or its answer: so a
//! test kills or freezes the caller at exactly that moment, without a word of it in the caller's code.
//!
//! What a frozen caller asked arrives when it is released. What a killed caller asked over gRPC may still arrive, as
//! a packet may that was under way; what it asked Postgres is lost with its session. Absent: any change of a byte.

mod gate;
mod line;
mod wire;

pub use wire::{Held, Moment, Protocol};

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::deadline::eventually;
use gate::Gate;

/// A participant ends a call by itself within two seconds; more than that is no answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    gate: Arc<Gate>,
    serving: JoinHandle<()>,
}

impl Proxy {
    /// Starts one on a free port, to `target` (`host:port`).
    pub async fn start(protocol: Protocol, target: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let gate = Arc::new(Gate::new(protocol));
        let serving = tokio::spawn(serve(listener, target.to_owned(), Arc::clone(&gate)));
        Ok(Self { address, gate, serving })
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// From now on waits for this moment, and holds it when it comes. Requests are counted from here. What is held
    /// already stays held.
    pub fn arm(&self, moment: Moment) {
        self.gate.arm(moment);
    }

    /// Waits for no moment any more. What is held stays held.
    pub fn disarm(&self) {
        self.gate.disarm();
    }

    /// Whether the moment that it is armed for came.
    pub fn is_holding(&self) -> bool {
        self.gate.is_holding()
    }

    /// Waits until the moment has come: the request is held back, or was answered and the answer is.
    pub async fn holds(&self, within: Duration) -> Result<()> {
        let moment = self.gate.moment();
        eventually(&format!("{moment:?} is held"), within, async || {
            ensure!(self.is_holding(), "it did not come");
            Ok(())
        })
        .await
    }

    /// Lets everything pass again, and waits until each request that was held is answered, or lost with its caller.
    pub async fn release(&self) -> Result<()> {
        self.gate.release();
        eventually("what was held is answered", ANSWERED_WITHIN, async || {
            let unanswered = self.gate.unanswered();
            ensure!(unanswered == 0, "{unanswered} requests are not");
            Ok(())
        })
        .await
        .context("after a release")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // With it end all connections.
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, target: String, gate: Arc<Gate>) {
    let mut lines = JoinSet::new();
    while let Ok((caller, _)) = listener.accept().await {
        let (target, gate) = (target.clone(), Arc::clone(&gate));
        lines.spawn(async move {
            // A target that is not there is seen by the caller as a connection that ends.
            let Ok(target) = TcpStream::connect(target).await else { return };
            if caller.set_nodelay(true).is_ok() && target.set_nodelay(true).is_ok() {
                line::carry(caller, target, &gate).await;
            }
        });
        while lines.try_join_next().is_some() {}
    }
}
