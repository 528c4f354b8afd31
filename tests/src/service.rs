//! One of our binaries as a process: started, found healthy, killed, stopped, frozen, started again on its port.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::Signal;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::clients::channel;
use crate::deadline::eventually;
use crate::ports::Port;
use crate::process::Process;

const SERVING_WITHIN: Duration = Duration::from_secs(15);
/// More than the default drain of a service, so a stop that hangs is seen as one.
const STOPPED_WITHIN: Duration = Duration::from_secs(10);
const LOG_LINES_SHOWN: usize = 40;

/// Which binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// order-svc.
    Order,
    /// inventory-svc.
    Inventory,
    /// payment-svc.
    Payment,
}

impl Part {
    /// The binary's name.
    pub fn binary(self) -> &'static str {
        match self {
            Self::Order => "order-svc",
            Self::Inventory => "inventory-svc",
            Self::Payment => "payment-svc",
        }
    }
}

/// A service on a port of its own, running or not.
#[derive(Debug)]
pub struct Service {
    part: Part,
    port: Port,
    env: Vec<(String, String)>,
    log: PathBuf,
    process: Option<Process>,
}

impl Service {
    /// A service that does not run yet. Its log goes to `folder`.
    pub fn new(part: Part, at: Port, folder: &Path, mut env: Vec<(String, String)>) -> Self {
        env.push(("HOLDFAST_LISTEN".to_owned(), at.address()));
        let log = folder.join(format!("{}-{}.log", part.binary(), at.number()));
        Self { part, port: at, env, log, process: None }
    }

    /// `http://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// A new channel to it; connects at the first call.
    pub fn channel(&self) -> Result<Channel> {
        channel(&self.url())
    }

    /// Starts the process and waits until its health is SERVING.
    pub async fn start(&mut self) -> Result<()> {
        self.launch()?;
        self.serving().await
    }

    /// Starts the process without waiting for anything.
    pub fn launch(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "{} runs already", self.part.binary());
        let program = program(self.part.binary())?;
        let mut command = Command::new(program);
        // Nothing of the caller's own settings may reach the service: a test says everything it depends on.
        for (name, _) in std::env::vars() {
            if name.starts_with("HOLDFAST_") || name.starts_with("OTEL_") || name.ends_with("_URL") {
                command.env_remove(name);
            }
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        self.process = Some(Process::spawn(self.part.binary(), &mut command, &self.log)?);
        Ok(())
    }

    /// Waits until its health is SERVING.
    pub async fn serving(&mut self) -> Result<()> {
        let name = self.part.binary();
        let channel = self.channel()?;
        let what = format!("{name} serves");
        let process = self.process.as_mut().with_context(|| format!("{name} does not run"))?;
        let mut died = None;
        let seen = eventually(&what, SERVING_WITHIN, async || {
            if let Some(status) = process.ended()? {
                died = Some(status);
                return Ok(());
            }
            let asked = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await?;
            let status = asked.into_inner().status();
            ensure!(status == ServingStatus::Serving, "health is {status:?}");
            Ok(())
        });
        let seen = seen.await;
        let tail = process.log_tail(LOG_LINES_SHOWN);
        if let Some(status) = died {
            bail!("{name} ended with {status} before it served; its log:\n{tail}");
        }
        seen.map_err(|error| anyhow!("{error:#}; its log:\n{tail}"))
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// SIGTERM; waits for the end, which must be exit code 0.
    pub async fn stop(&mut self) -> Result<()> {
        let name = self.part.binary();
        let mut process = self.process.take().with_context(|| format!("{name} does not run"))?;
        process.signal(Signal::SIGTERM)?;
        let status = process.wait(STOPPED_WITHIN).await?;
        ensure!(
            status.success(),
            "{name} ended with {status}; its log:\n{}",
            process.log_tail(LOG_LINES_SHOWN)
        );
        Ok(())
    }

    /// Kills it if it runs, and starts it again on the same port.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        self.start().await
    }

    /// SIGSTOP: alive for the kernel, silent for everybody else.
    pub fn freeze(&self) -> Result<()> {
        self.running()?.signal(Signal::SIGSTOP)
    }

    /// SIGCONT.
    pub fn thaw(&self) -> Result<()> {
        self.running()?.signal(Signal::SIGCONT)
    }

    fn running(&self) -> Result<&Process> {
        self.process.as_ref().with_context(|| format!("{} does not run", self.part.binary()))
    }
}

impl Drop for Service {
    /// A failing test shows what its services said.
    #[expect(clippy::print_stderr, reason = "the test runner shows it with the failure")]
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(process) = &self.process
        {
            eprintln!("--- {} said last:\n{}", self.part.binary(), process.log_tail(LOG_LINES_SHOWN));
        }
    }
}

/// The binary: in `HOLDFAST_BIN_DIR`, else where cargo puts it, beside the test executable's folder.
pub fn program(name: &str) -> Result<PathBuf> {
    let folder = match std::env::var_os("HOLDFAST_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => built_beside_tests()?,
    };
    let program = folder.join(name);
    ensure!(program.exists(), "no {}: build it first (cargo build --workspace)", program.display());
    Ok(program)
}

/// Test executables are in `target/<profile>/deps`, binaries in `target/<profile>`.
fn built_beside_tests() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let folder = test.parent().context("an executable is in a folder")?;
    let profile =
        if folder.ends_with("deps") { folder.parent().context("deps is in a folder")? } else { folder };
    Ok(profile.to_owned())
}
