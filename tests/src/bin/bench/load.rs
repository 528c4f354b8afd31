//! Two ways of asking for work: a number of callers who each wait for their answer before they ask again (closed), and
//! arrivals by the clock that wait for nobody (open).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::machine::Cpu;
use crate::server::{Server, Work};

/// Longest duration that is told apart from longer ones.
const LONGEST: Duration = Duration::from_secs(600);
/// Arrivals that wait for their answer at a time, at most: more means that the bench measures its own queue.
const OUTSTANDING_MAX: usize = 65_536;

const WARMING: u8 = 0;
const COUNTING: u8 = 1;
const ENDING: u8 = 2;

/// Durations, told apart to one in a thousand.
#[derive(Debug, Clone)]
pub(crate) struct Durations(Histogram<u64>);

impl Default for Durations {
    fn default() -> Self {
        let longest = u64::try_from(LONGEST.as_micros()).expect("minutes");
        Self(Histogram::new_with_bounds(1, longest, 3).expect("constant bounds"))
    }
}

impl Durations {
    pub(crate) fn record(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    #[expect(clippy::cast_precision_loss, reason = "microseconds below ten minutes")]
    pub(crate) fn percentile_ms(&self, percent: f64) -> f64 {
        self.0.value_at_quantile(percent / 100.0) as f64 / 1e3
    }

    pub(crate) fn max_ms(&self) -> f64 {
        self.percentile_ms(100.0)
    }
}

/// How long a phase warms up, and how long it counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phase {
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
}

/// What a closed load did within its window.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) durations: Durations,
    pub(crate) window: Duration,
    pub(crate) cpu: Cpu,
    pub(crate) work: Work,
}

impl Closed {
    #[expect(clippy::cast_precision_loss, reason = "a count of some seconds")]
    pub(crate) fn completed(&self) -> f64 {
        self.durations.count() as f64
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.completed() / self.window.as_secs_f64()
    }

    /// One line for a person.
    #[expect(clippy::cast_precision_loss, reason = "counts of some seconds")]
    pub(crate) fn describe(&self) -> String {
        let each = |amount: f64| amount / self.completed().max(1.0);
        format!(
            "{:>8.0}/s, p50 {:.1} ms, p99 {:.1} ms; per saga {:.3} ms CPU here + {:.3} ms elsewhere, \
             {:.3} commits, {:.3} syncs, {:.0} bytes of log; CPU idle {:.0} %",
            self.per_second(),
            self.durations.percentile_ms(50.0),
            self.durations.percentile_ms(99.0),
            each(self.cpu.own.as_secs_f64() * 1e3),
            each(self.cpu.others().as_secs_f64() * 1e3),
            each(self.work.commits as f64),
            each(self.work.syncs as f64),
            each(self.work.log_bytes as f64),
            self.cpu.idle_share() * 100.0,
        )
    }
}

/// `callers` tasks that each do `one` again and again. What ends within the window counts.
pub(crate) async fn closed<F>(
    server: &Server,
    callers: usize,
    phase: Phase,
    one: impl Fn() -> F + Clone + Send + 'static,
) -> Result<Closed>
where
    F: Future<Output = Result<()>> + Send,
{
    let stage = Arc::new(AtomicU8::new(WARMING));
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (stage, one) = (Arc::clone(&stage), one.clone());
        tasks.spawn(async move {
            let mut durations = Durations::default();
            loop {
                let begun = Instant::now();
                one().await?;
                match stage.load(Ordering::Relaxed) {
                    WARMING => {}
                    COUNTING => durations.record(begun.elapsed()),
                    _ => return anyhow::Ok(durations),
                }
            }
        });
    }
    sleep(phase.warm_up).await;
    let (cpu, work) = (Cpu::now()?, server.work().await?);
    let begun = Instant::now();
    stage.store(COUNTING, Ordering::Relaxed);
    sleep(phase.window).await;
    stage.store(ENDING, Ordering::Relaxed);
    let window = begun.elapsed();
    let (cpu, work) = (Cpu::now()?.since(&cpu), server.work().await?.since(&work));
    let mut durations = Durations::default();
    while let Some(ended) = tasks.join_next().await {
        durations.add(&ended??);
    }
    ensure!(durations.count() > 0, "nothing was completed within {window:?}");
    Ok(Closed { durations, window, cpu, work })
}

/// One arrival of an open load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// When it was to come, by the clock: what it waited for its turn counts.
    pub(crate) at: Instant,
    /// `None`: it was refused or failed.
    pub(crate) took: Option<Duration>,
}

/// Arrivals within a span of time.
pub(crate) fn within(arrivals: &[Arrival], from: Instant, to: Instant) -> (Durations, u64) {
    let (mut durations, mut refused) = (Durations::default(), 0);
    for arrival in arrivals.iter().filter(|arrival| (from..to).contains(&arrival.at)) {
        // A refusal is worse than any answer, so it counts as the slowest one.
        durations.record(arrival.took.unwrap_or(LONGEST));
        refused += u64::from(arrival.took.is_none());
    }
    (durations, refused)
}

/// `per_second` arrivals, evenly spaced, each in a task of its own, until `end`; then waits for the last answer.
pub(crate) async fn open<F>(
    per_second: u32,
    end: CancellationToken,
    one: impl Fn() -> F + Clone + Send + 'static,
) -> Result<Vec<Arrival>>
where
    F: Future<Output = Result<()>> + Send,
{
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    // A late tick does not move those after it.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut tasks = JoinSet::new();
    let mut arrivals = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => break,
            Some(arrival) = tasks.join_next() => arrivals.push(arrival?),
            at = ticks.tick() => {
                ensure!(tasks.len() < OUTSTANDING_MAX, "{OUTSTANDING_MAX} arrivals wait for their answers");
                let one = one.clone();
                tasks.spawn(async move {
                    let took = one().await.is_ok().then(|| at.elapsed());
                    Arrival { at, took }
                });
            }
        }
    }
    while let Some(arrival) = tasks.join_next().await {
        arrivals.push(arrival?);
    }
    Ok(arrivals)
}
