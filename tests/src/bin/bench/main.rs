//! Measures what Holdfast promises about speed: `bench NAME`. Prints what it did and, as its last line, the figures as
//! `name key=value …`. One file per bench; what they share is beside them: the server (`server.rs`), rows that wait
//! (`waiting.rs`), processes of their own (`child.rs`), load (`load.rs`) and the machine (`machine.rs`).
//!
//! Every figure is taken on a real Postgres that syncs every commit, beside a baseline of the same run, without the
//! warm-up. `--quick` runs a slice of a bench within seconds to show that it works: its figures mean nothing.
//!
//! Absent: opinions. Whether a figure is good enough is for whoever reads the line.
#![expect(clippy::print_stdout, reason = "the report is the product of this program")]

mod child;
mod engine;
mod idle;
mod line;
mod load;
mod machine;
mod plain;
mod recovery;
mod sagas;
mod server;
mod timers;
mod waiting;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::child::Role;

/// Measures Holdfast. The last line holds the figures.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
    /// A slice of the bench within seconds, with small numbers: its figures mean nothing.
    #[arg(long, global = true)]
    quick: bool,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Completed three-step sagas per second, against one statement per transition.
    Engine,
    /// A million waiting sagas: memory, start-up, lateness, and many due at one instant.
    Timers,
    /// kill -9 with thousands in flight: how long until all are at rest.
    Recovery,
    /// Statements per second while everything waits.
    Idle,
    /// A process of another bench.
    #[command(hide = true)]
    Child {
        /// What it is there for.
        role: Role,
        /// Its plan, as JSON.
        plan: String,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { bench, quick } = Arguments::parse();
    let line = match bench {
        Bench::Engine => engine::run(quick).await?,
        Bench::Timers => timers::run(quick).await?,
        Bench::Recovery => recovery::run(quick).await?,
        Bench::Idle => idle::run(quick).await?,
        Bench::Child { role, plan } => return child::be(role, &plan).await,
    };
    println!("{line}");
    Ok(())
}
