//! A private Redis per stack, on a unix socket in the stack's folder, without persistence: inventory-svc's ledger is
//! the truth.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::deadline::eventually;
use crate::process::Process;

const READY_WITHIN: Duration = Duration::from_secs(10);

/// A running redis-server.
#[derive(Debug)]
pub struct Redis {
    socket: PathBuf,
    _process: Process,
}

impl Redis {
    /// Starts it with its socket and log in `folder`.
    pub async fn start(folder: &Path) -> Result<Self> {
        let socket = folder.join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(folder);
        let process = Process::spawn("redis-server", &mut command, &folder.join("redis.log"))?;
        eventually("redis-server accepts", READY_WITHIN, async || Ok(UnixStream::connect(&socket)?)).await?;
        Ok(Self { socket, _process: process })
    }

    /// The URL a service is given.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket.display())
    }
}
