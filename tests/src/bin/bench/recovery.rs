//! kill -9 of a process that drives thousands of sagas: how long until all of them are at rest, driven to their end by a
//! process that ran beside it. In the victim the second step never answers, so that all of them are in flight at one
//! time, each with its start on disk and its first step done; the heir's second step is done at once.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use saga::admission::AdmissionConfig;
use saga::{Context, Definition, Engine, EngineConfig, Outcome, Retry, SagaId, Step, Undo};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::child::{Child, Role, say};
use crate::line::Line;
use crate::sagas::{First, Pivot, start_of};
use crate::server::{Server, pool};

const KIND: &str = "recovered";
const CONNECTIONS: u32 = 8;
/// Starts asked for at a time.
const STARTS: usize = 512;
const PROBE_EVERY: Duration = Duration::from_millis(10);
const READY_WITHIN: Duration = Duration::from_secs(30);
const BLOCKED_WITHIN: Duration = Duration::from_secs(120);
const AT_REST_WITHIN: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    in_flight: u32,
    lease: Duration,
}

pub(crate) async fn run(quick: bool) -> Result<Line> {
    let server = Server::create(quick).await?;
    let plan = Plan {
        in_flight: if quick { 300 } else { 10_000 },
        lease: Duration::from_secs(if quick { 1 } else { 5 }),
    };
    let pool = server.pool(1).await?;
    let mut heir = Child::start(Role::Heir, server.url(), &plan)?;
    let undisturbed: Duration = heir.hear(READY_WITHIN + BLOCKED_WITHIN).await?;
    println!("{} sagas begun and driven to their end by the heir alone: {undisturbed:.2?}", plan.in_flight);
    server.settle().await?;
    let mut victim = Child::start(Role::Victim, server.url(), &plan)?;
    let took: Duration = victim.hear(BLOCKED_WITHIN).await?;
    println!("{} sagas begun by the victim and blocked in their second step: {took:.2?}", plan.in_flight);
    let living = living(&pool).await?;
    ensure!(living == i64::from(plan.in_flight), "{living} live");
    let killed = Instant::now();
    victim.kill().await?;
    let first = until_fewer(&pool, living, killed).await?;
    let all = until_fewer(&pool, 1, killed).await?;
    println!("the first was at rest after {first:.2?}, the last after {all:.2?}");
    let unfinished: i64 =
        sqlx::query_scalar(UNFINISHED).bind(i64::from(2 * plan.in_flight)).fetch_one(&pool).await?;
    heir.kill().await?;
    Ok(Line::of("recovery")
        .number("in_flight", u64::from(plan.in_flight))
        .figure("lease_s", plan.lease.as_secs_f64(), 0)
        .figure("seconds", all.as_secs_f64(), 2)
        .number("unfinished", u64::try_from(unfinished)?))
}

/// What does not rest.
const LIVING: &str = "SELECT count(*) FROM saga.instances WHERE status <> 'PARKED'";

/// Of $1 sagas begun, how many did not complete.
const UNFINISHED: &str = "SELECT $1::bigint - count(*) FROM saga.finished WHERE status = 'COMPLETED'";

async fn living(pool: &PgPool) -> Result<i64> {
    Ok(sqlx::query_scalar(LIVING).fetch_one(pool).await?)
}

/// How long after the kill fewer than `limit` did not rest.
async fn until_fewer(pool: &PgPool, limit: i64, killed: Instant) -> Result<Duration> {
    while living(pool).await? >= limit {
        ensure!(killed.elapsed() < AT_REST_WITHIN, "not at rest within {AT_REST_WITHIN:?}");
        sleep(PROBE_EVERY).await;
    }
    Ok(killed.elapsed())
}

async fn open(url: &str, plan: &Plan, name: &str, blocks: Option<Arc<Blocked>>) -> Result<Engine> {
    let config = EngineConfig {
        lease: plan.lease,
        heartbeat: plan.lease / 5,
        // All of them at a time: that is the case.
        admission: AdmissionConfig { in_flight_max: plan.in_flight + 1, ..AdmissionConfig::default() },
        ..EngineConfig::named(name)
    };
    // The victim's second step is not to end by itself either.
    let patient = Retry { attempt_timeout: Duration::from_secs(600), ..Retry::STEP };
    let definition = Definition::new::<()>(KIND, 1)
        .step(First)
        .step(Second(blocks))
        .retry(patient, Retry::MUST)
        .pivot(Pivot)
        .build();
    Ok(Engine::open(pool(url, CONNECTIONS).await?, config, [definition]).await?)
}

/// Starts all of them, and does with each what comes `then`.
async fn start_all(engine: &Engine, plan: &Plan, then: impl AsyncFn(SagaId) -> Result<()>) -> Result<()> {
    let started = stream::iter(0..plan.in_flight).map(async |_| {
        let saga = SagaId::generate();
        engine.start(KIND, &start_of(saga)).await?;
        then(saga).await
    });
    started.buffer_unordered(STARTS).try_collect().await
}

/// Plays the victim: says when all are blocked, and goes nowhere from there.
pub(crate) async fn be_victim(url: &str, plan: Plan) -> Result<()> {
    let blocked = Arc::new(Blocked {
        number: AtomicU64::new(0),
        enough: u64::from(plan.in_flight),
        all: Notify::new(),
    });
    let engine = open(url, &plan, "victim", Some(Arc::clone(&blocked))).await?;
    let begun = Instant::now();
    start_all(&engine, &plan, async |_| Ok(())).await?;
    blocked.all.notified().await;
    say(&begun.elapsed())?;
    pending().await
}

/// Plays the heir: drives as many to their end undisturbed, which also warms it up, says how long that took, and waits
/// for its inheritance.
pub(crate) async fn be_heir(url: &str, plan: Plan) -> Result<()> {
    let engine = open(url, &plan, "heir", None).await?;
    let begun = Instant::now();
    let ended = async |saga| {
        let standing = engine.wait_for(saga, AT_REST_WITHIN, |standing| standing.status.is_final()).await?;
        ensure!(standing.is_some_and(|standing| standing.at_rest), "a saga is not at rest");
        Ok(())
    };
    start_all(&engine, &plan, ended).await?;
    say(&begun.elapsed())?;
    pending().await
}

/// Counts the sagas that reached the second step and stay there.
struct Blocked {
    number: AtomicU64,
    enough: u64,
    all: Notify,
}

struct Second(Option<Arc<Blocked>>);

impl Step for Second {
    type Input = ();
    type Output = ();
    const NAME: &'static str = "second";

    async fn run(&self, _: &Context<'_, ()>) -> Outcome<()> {
        if let Some(blocked) = &self.0 {
            if blocked.number.fetch_add(1, Ordering::Relaxed) + 1 == blocked.enough {
                blocked.all.notify_one();
            }
            pending::<()>().await;
        }
        Outcome::Done(())
    }

    async fn undo(&self, _: &Context<'_, ()>) -> Undo {
        Undo::Done
    }
}
