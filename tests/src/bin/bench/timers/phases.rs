//! The child: one engine through all phases.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use chrono::{DateTime, Utc};
use saga::{Engine, EngineConfig};
use sqlx::PgPool;
use tokio::time::{Instant, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Found;
use super::plan::{self, Plan};
use crate::child::say;
use crate::load::{self, Durations};
use crate::machine::resident_mib;
use crate::sagas::{self, Seen};
use crate::server::pool;
use crate::waiting::Rows;

/// Of the engine's pool, beside those it opens itself.
pub(super) const CONNECTIONS: u32 = 8;
/// How often a condition is looked at.
pub(super) const PROBE_EVERY: Duration = Duration::from_millis(2);
/// The longest that a phase may take.
const PHASE_WITHIN: Duration = Duration::from_secs(300);
/// New sagas come for this long before a burst is due.
const NEW_BEFORE: Duration = Duration::from_secs(2);

struct Phases {
    plan: Plan,
    engine: Engine,
    seen: Arc<Seen>,
    /// The bench's own: what it asks goes not through the engine's.
    pool: PgPool,
}

/// How a burst went.
struct Drained {
    per_second: f64,
    due: Instant,
    end: Instant,
}

/// Plays the child.
pub(crate) async fn be(url: &str, plan: Plan) -> Result<()> {
    let bare_mib = resident_mib()?;
    let seen = Arc::default();
    let (engine, ready_s) = open(pool(url, CONNECTIONS).await?, &seen, plan::SENTINEL).await?;
    sleep(plan.rest).await;
    let resident_mib = resident_mib()?;
    let pool = pool(url, 2).await?;
    let phases = Phases { plan, engine, seen, pool };
    let sleeps = phases.sleeps().await;
    let late = phases.steady().await?;
    let (quiet, _) = phases.quiet().await?;
    let burst = phases.burst(plan::BURST).await?;
    let (beside, new, refused) = phases.burst_beside_new().await?;
    say(&Found {
        bare_mib,
        resident_mib,
        ready_s,
        sleep_p99_ms: sleeps.percentile_ms(99.0),
        sleep_max_ms: sleeps.max_ms(),
        late_p50_ms: late.percentile_ms(50.0),
        late_p99_ms: late.percentile_ms(99.0),
        late_max_ms: late.max_ms(),
        burst_per_s: burst.per_second,
        beside_per_s: beside.per_second,
        quiet_p50_ms: quiet.percentile_ms(50.0),
        quiet_p99_ms: quiet.percentile_ms(99.0),
        new_p50_ms: new.percentile_ms(50.0),
        new_p99_ms: new.percentile_ms(99.0),
        new_during_burst: new.count(),
        refused,
    })
}

/// Opens an engine; gives it and how many seconds it took until it had woken the sentinel.
pub(super) async fn open(pool: PgPool, seen: &Arc<Seen>, sentinel: usize) -> Result<(Engine, f64)> {
    let begun = Instant::now();
    let definitions = [sagas::three(), sagas::waiting(seen)];
    let engine = Engine::open(pool, EngineConfig::named("bench"), definitions).await?;
    seen.by(&engine);
    until("the engine wakes what is overdue", || seen.entered(sentinel) == 1).await?;
    Ok((engine, begun.elapsed().as_secs_f64()))
}

impl Phases {
    /// How late the runtime's own timer wakes at the same rate.
    async fn sleeps(&self) -> Durations {
        let mut late = Durations::default();
        let end = Instant::now() + self.plan.warm_up;
        let mut ticks = interval(Duration::from_secs(1) / self.plan.per_second);
        while Instant::now() < end {
            late.record(ticks.tick().await.elapsed());
        }
        late
    }

    async fn steady(&self) -> Result<Durations> {
        let rows = self.plan.steady();
        rows.write(&self.pool).await?;
        until("all that are due at a steady rate wake", || self.seen.entered(rows.group) == rows.count)
            .await?;
        self.ended(&rows).await?;
        let late = self.seen.late(rows.group);
        ensure!(late.count() == rows.count - rows.warm_up, "{} of {} woke", late.count(), rows.count);
        Ok(late)
    }

    /// New sagas by the clock, from start to durable end, with nothing else to do.
    async fn quiet(&self) -> Result<(Durations, u64)> {
        let (enough, from) = (CancellationToken::new(), Instant::now() + self.plan.warm_up);
        let to = from + self.plan.quiet;
        let stop = async {
            sleep_until(to).await;
            enough.cancel();
            anyhow::Ok(())
        };
        let (arrivals, ()) = tokio::try_join!(self.new_ones(enough.clone()), stop)?;
        Ok(load::within(&arrivals, from, to))
    }

    /// From the instant at which all are due until the last has ended.
    async fn burst(&self, group: usize) -> Result<Drained> {
        let rows = self.plan.burst(group);
        let due = rows.write(&self.pool).await?;
        self.drain(&rows, due).await
    }

    /// The same while new sagas come by the clock; gives also how those fared that came while it drained, and how many
    /// of them were refused.
    async fn burst_beside_new(&self) -> Result<(Drained, Durations, u64)> {
        let rows = self.plan.burst(plan::BESIDE);
        let due = rows.write(&self.pool).await?;
        let enough = CancellationToken::new();
        let drain = async {
            let drained = self.drain(&rows, due).await;
            enough.cancel();
            drained
        };
        let new_ones = async {
            self.sleep_until(due - NEW_BEFORE).await;
            self.new_ones(enough.clone()).await
        };
        let (drained, arrivals) = tokio::try_join!(drain, new_ones)?;
        let (new, refused) = load::within(&arrivals, drained.due, drained.end);
        Ok((drained, new, refused))
    }

    async fn drain(&self, rows: &Rows, due: DateTime<Utc>) -> Result<Drained> {
        self.sleep_until(due).await;
        let begun = Instant::now();
        until("the last of a burst passes its pivot", || self.seen.pivots(rows.group) == rows.count).await?;
        self.ended(rows).await?;
        let end = Instant::now();
        #[expect(clippy::cast_precision_loss, reason = "some hundred thousand")]
        let per_second = rows.count as f64 / (end - begun).as_secs_f64();
        Ok(Drained { per_second, due: begun, end })
    }

    /// Until none of them lives any more, on disk.
    async fn ended(&self, rows: &Rows) -> Result<()> {
        let end = Instant::now() + PHASE_WITHIN;
        while rows.unfinished(&self.pool).await? > 0 {
            ensure!(Instant::now() < end, "not within {PHASE_WITHIN:?}: all of a phase end");
            sleep(PROBE_EVERY).await;
        }
        Ok(())
    }

    async fn new_ones(&self, enough: CancellationToken) -> Result<Vec<load::Arrival>> {
        let engine = self.engine.clone();
        let one = move || {
            let engine = engine.clone();
            async move { sagas::once(&engine).await }
        };
        load::open(self.plan.new_per_second, enough, one).await
    }

    /// By the engine's clock.
    async fn sleep_until(&self, instant: DateTime<Utc>) {
        sleep((instant - self.engine.now()).to_std().unwrap_or_default()).await;
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + PHASE_WITHIN;
    while !holds() {
        ensure!(Instant::now() < end, "not within {PHASE_WITHIN:?}: {what}");
        sleep(PROBE_EVERY).await;
    }
    Ok(())
}
