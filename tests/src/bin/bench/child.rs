//! Processes of their own: for memory, for a start from nothing, and for kill -9. The bench runs itself anew and hears
//! from the child one line of JSON at a time. A child ends when its parent is gone.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// What a child is there for.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Opens an engine over sagas that wait, and times it.
    Timers,
    /// Starts sagas that never get further than their second step, and is killed.
    Victim,
    /// Takes over.
    Heir,
}

/// Where the child finds its database. Not among its arguments, where every user of the machine could read the password.
const URL: &str = "DATABASE_URL";

/// Plays a role.
pub(crate) async fn be(role: Role, plan: &str) -> Result<()> {
    std::thread::spawn(|| {
        // Ends, or fails, when the parent's end of the pipe is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let url = std::env::var(URL)?;
    match role {
        Role::Timers => crate::timers::be(&url, serde_json::from_str(plan)?).await,
        Role::Victim => crate::recovery::be_victim(&url, serde_json::from_str(plan)?).await,
        Role::Heir => crate::recovery::be_heir(&url, serde_json::from_str(plan)?).await,
    }
}

/// In a child: tells the parent.
pub(crate) fn say(what: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(what)?);
    Ok(())
}

/// A running child; killed when dropped.
pub(crate) struct Child {
    process: tokio::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
    _parent_is_here: ChildStdin,
}

impl Child {
    /// On the database of `url`.
    pub(crate) fn start(role: Role, url: &str, plan: &impl Serialize) -> Result<Self> {
        let name = role.to_possible_value().context("every role has a name")?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["child", name.get_name(), &serde_json::to_string(plan)?])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().context("its output is piped")?;
        let parent_is_here = process.stdin.take().context("its input is piped")?;
        Ok(Self { process, lines: BufReader::new(output).lines(), _parent_is_here: parent_is_here })
    }

    /// The next thing it says.
    pub(crate) async fn hear<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T> {
        let line = timeout(within, self.lines.next_line()).await.context("a child is silent")??;
        Ok(serde_json::from_str(&line.context("a child ended before its time")?)?)
    }

    /// kill -9, by its id, and waits for its end.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}
