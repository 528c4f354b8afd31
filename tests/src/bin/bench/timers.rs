//! A million sagas that wait. In one fresh process: how long until the engine works, what it keeps in memory, how late
//! it wakes them at a steady rate, and how fast it gets through very many that are due at one instant, alone and beside
//! new ones. The parent only writes the rows; everything else happens in the child, in the order of its phases.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::child::{Child, Role};
use crate::line::Line;
use crate::server::Server;
use crate::waiting;

mod phases;
mod plan;

pub(crate) use self::phases::be;
use self::phases::{CONNECTIONS, PROBE_EVERY, open};
use self::plan::{Plan, sentinel};

const STOP_WITHIN: Duration = Duration::from_secs(5);
/// The longest that the child may take.
const FOUND_WITHIN: Duration = Duration::from_secs(1_200);

/// What the child found.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    /// Before the engine was opened.
    bare_mib: f64,
    resident_mib: f64,
    ready_s: f64,
    /// Of plain sleeps in the same process at the same rate: what the runtime's timer and the machine allow.
    sleep_p99_ms: f64,
    sleep_max_ms: f64,
    late_p50_ms: f64,
    late_p99_ms: f64,
    late_max_ms: f64,
    burst_per_s: f64,
    beside_per_s: f64,
    quiet_p50_ms: f64,
    quiet_p99_ms: f64,
    new_p50_ms: f64,
    new_p99_ms: f64,
    new_during_burst: u64,
    refused: u64,
}

pub(crate) async fn run(quick: bool) -> Result<Line> {
    let server = Server::create(quick).await?;
    let plan = Plan::new(quick);
    let writer = server.pool(1).await?;
    let empty_ready_s = ready_of_an_empty_journal(&server).await?;
    let begun = Instant::now();
    plan.asleep().write(&writer).await?;
    waiting::analyse(&server).await?;
    println!("{} waiting sagas written as rows within {:.0?}", plan.asleep, begun.elapsed());
    sentinel(plan::SENTINEL).insert(&writer).await?;
    let mut child = Child::start(Role::Timers, server.url(), &plan)?;
    let found: Found = child.hear(FOUND_WITHIN).await?;
    child.kill().await?;
    report(&plan, &found, empty_ready_s);
    Ok(Line::of("timers")
        .figure("rss_mb", found.resident_mib, 1)
        .figure("ready_s", found.ready_s, 3)
        .figure("late_p50_ms", found.late_p50_ms, 1)
        .figure("late_p99_ms", found.late_p99_ms, 1)
        .figure("late_max_ms", found.late_max_ms, 1)
        .figure("burst_per_s", found.burst_per_s, 0)
        .figure("beside_per_s", found.beside_per_s, 0)
        .figure("new_p99_ms", found.new_p99_ms, 1)
        .figure("new_p99_ratio", found.new_p99_ms / found.quiet_p99_ms, 2))
}

fn report(plan: &Plan, found: &Found, empty_ready_s: f64) {
    println!(
        "memory: {:.1} MiB resident after {:?} at rest; the process before it opened the engine: {:.1} MiB",
        found.resident_mib, plan.rest, found.bare_mib
    );
    println!(
        "ready: {:.3} s from Engine::open until a saga that was overdue had been woken; with no other saga in the \
         journal {empty_ready_s:.3} s",
        found.ready_s
    );
    println!(
        "lateness at {}/s for {:?} after {:?} of warm-up: p50 {:.1} p99 {:.1} max {:.1} ms; of plain sleeps in the same \
         process: p99 {:.1} max {:.1} ms",
        plan.per_second,
        plan.steady,
        plan.warm_up,
        found.late_p50_ms,
        found.late_p99_ms,
        found.late_max_ms,
        found.sleep_p99_ms,
        found.sleep_max_ms
    );
    println!("{} due at one instant, alone: {:.0}/s until all had ended", plan.burst, found.burst_per_s);
    println!(
        "{} due at one instant beside {} new sagas/s: {:.0}/s; {} new ones in that time, {} refused, start to end p50 \
         {:.1} p99 {:.1} ms; quiet p50 {:.1} p99 {:.1} ms over {:?}",
        plan.burst,
        plan.new_per_second,
        found.beside_per_s,
        found.new_during_burst,
        found.refused,
        found.new_p50_ms,
        found.new_p99_ms,
        found.quiet_p50_ms,
        found.quiet_p99_ms,
        plan.quiet
    );
}

/// How long an engine takes that finds nothing but one overdue saga.
async fn ready_of_an_empty_journal(server: &Server) -> Result<f64> {
    let pool = server.pool(CONNECTIONS).await?;
    let only = sentinel(plan::ONLY);
    only.insert(&pool).await?;
    let (engine, took) = open(pool.clone(), &Arc::default(), plan::ONLY).await?;
    while only.unfinished(&pool).await? > 0 {
        sleep(PROBE_EVERY).await;
    }
    engine.stop(STOP_WITHIN).await?;
    Ok(took)
}
