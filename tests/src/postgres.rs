//! The Postgres that stacks make their databases in: the one of `TEST_DATABASE_URL`, or a private cluster that lives
//! as long as a stack of this test process does.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use tempfile::TempDir;

use crate::ports::Port;
use crate::process::Process;

const READY_WITHIN: Duration = Duration::from_secs(20);
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// Shared by the stacks of one test process, stopped with the last of them.
static PRIVATE: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());

/// Where databases are made.
#[derive(Debug, Clone)]
pub enum Postgres {
    /// Somebody else's server; only our databases in it are ours.
    Given {
        /// URL of a user who may create databases.
        admin_url: String,
    },
    /// Our own server.
    Private(Arc<Cluster>),
}

impl Postgres {
    /// The given server, else the private one of this test process.
    pub fn find() -> Result<Self> {
        if let Ok(admin_url) = std::env::var("TEST_DATABASE_URL") {
            return Ok(Self::Given { admin_url });
        }
        let mut running = PRIVATE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = running.upgrade() {
            return Ok(Self::Private(cluster));
        }
        let cluster = Arc::new(Cluster::start(Synced::Never)?);
        *running = Arc::downgrade(&cluster);
        Ok(Self::Private(cluster))
    }

    /// URL of the database that databases are made from.
    pub fn admin_url(&self) -> String {
        match self {
            Self::Given { admin_url } => admin_url.clone(),
            Self::Private(cluster) => format!("postgres://postgres@{}/postgres", cluster.port.address()),
        }
    }
}

/// Whether a cluster forces its log to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    /// As in production.
    Always,
    /// Its machine may not crash: for tests of what is not about the disk.
    Never,
}

/// A Postgres cluster in a temporary folder.
#[derive(Debug)]
pub struct Cluster {
    port: Port,
    home: TempDir,
    synced: Synced,
    /// `None`: it crashed.
    server: Mutex<Option<Process>>,
}

impl Cluster {
    /// Makes it and starts it. Blocks until it takes queries.
    pub fn start(synced: Synced) -> Result<Self> {
        let programs = programs()?;
        let home = tempfile::Builder::new().prefix("holdfast-pg-").tempdir_in("/tmp")?;
        let user = server_user()?;
        if let Some(user) = &user {
            chown(home.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        let made = as_user(Command::new(programs.join("initdb")), user.as_ref())
            .args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "-D"])
            .arg(home.path().join("data"))
            .current_dir(home.path())
            .output()?;
        ensure!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        let cluster = Self { port: Port::claim()?, home, synced, server: Mutex::new(None) };
        cluster.restart()?;
        Ok(cluster)
    }

    /// Takes it down as a crash does: no session is ended, nothing is written out. Blocks until it is gone.
    pub fn crash(&self) -> Result<()> {
        let mut server = self.server().take().context("it is down already")?;
        server.signal(Signal::SIGQUIT)?;
        let asked = Instant::now();
        while server.ended()?.is_none() {
            ensure!(asked.elapsed() < READY_WITHIN, "postgres does not end: {}", server.log_tail(20));
            std::thread::sleep(PROBE_EVERY);
        }
        Ok(())
    }

    /// Starts it after a crash, on the same port. Blocks until it has recovered and takes queries.
    pub fn restart(&self) -> Result<()> {
        let (home, data) = (self.home.path(), self.home.path().join("data"));
        // The one of the server that crashed would say "ready".
        let _ = std::fs::remove_file(data.join("postmaster.pid"));
        let mut command = as_user(Command::new(programs()?.join("postgres")), server_user()?.as_ref());
        command.arg("-D").arg(&data).arg("-p").arg(self.port.number().to_string()).current_dir(home);
        command.arg("-k").arg(home);
        let fsync = if self.synced == Synced::Always { "fsync=on" } else { "fsync=off" };
        for setting in ["listen_addresses=127.0.0.1", fsync, "max_connections=300"] {
            command.args(["-c", setting]);
        }
        let mut server = Process::spawn("postgres", &mut command, &home.join("log"))?;
        wait_ready(&mut server, &data)?;
        *self.server() = Some(server);
        Ok(())
    }

    fn server(&self) -> MutexGuard<'_, Option<Process>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Postgres writes into its pid file when it takes queries; that it accepts connections says less.
fn wait_ready(server: &mut Process, data: &Path) -> Result<()> {
    let pid_file = data.join("postmaster.pid");
    let ready = || std::fs::read_to_string(&pid_file).is_ok_and(|text| text.trim_end().ends_with("ready"));
    let started = Instant::now();
    while !ready() {
        if let Some(status) = server.ended()? {
            bail!("postgres ended with {status}: {}", server.log_tail(20));
        }
        ensure!(started.elapsed() < READY_WITHIN, "postgres is not ready: {}", server.log_tail(20));
        std::thread::sleep(PROBE_EVERY);
    }
    Ok(())
}

/// initdb and postgres refuse root: as root, the packaged user runs them.
fn server_user() -> Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let user = User::from_name("postgres")?;
    Ok(Some(user.context("no user postgres: install PostgreSQL or set TEST_DATABASE_URL")?))
}

fn as_user(mut command: Command, user: Option<&User>) -> Command {
    if let Some(user) = user {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

/// The newest installed server's folder of programs: Debian keeps them out of PATH.
fn programs() -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        for version in versions.flatten() {
            let folder = version.path().join("bin");
            let number = version.file_name().to_string_lossy().parse().unwrap_or(0);
            if folder.join("postgres").exists() {
                found.push((number, folder));
            }
        }
    }
    found.sort();
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
    });
    let newest = found.pop().map(|(_, folder)| folder);
    newest.or(on_path).context("no PostgreSQL server found: install it or set TEST_DATABASE_URL")
}
