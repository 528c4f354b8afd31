//! A simulation for sagas: workers with their real engine, over a journal in memory, participants that answer badly,
//! and virtual time. Everything is drawn from one seed: the same seed gives the same run, to the last event.
//!
//! Of what a worker needs, only the journal and its life are replaced: the engine inside is the one that runs in
//! production. A worker can be [frozen](Sim::freeze) past its lease and go on, or [crash](Sim::crash);
//! calls to the journal may fail, go unanswered, or be carried out after their answer; requests to a [`Participant`]
//! may be lost, doubled, delayed and reordered, and arrive after whoever sent them has ended.
//!
//! Absent: side rows, which are SQL of the caller's, and starts in a caller's own transaction.
//!
//! # Example
//!
//! Two steps: hold a seat, then sell it for good.
//!
//! ```
//! use std::{collections::BTreeMap, time::Duration};
//! use saga::{Context, Definition, Outcome, Priority, Start, Status, Step, Undo};
//! use saga::testing::{Effect, Faults, Manners, Participant, Reply, Simulation};
//!
//! struct Hold(Participant);
//! impl Step for Hold {
//!     type Input = String;
//!     type Output = String;
//!     const NAME: &'static str = "hold";
//!     async fn run(&self, context: &Context<'_, String>) -> Outcome<String> {
//!         let id = format!("{}.hold.{}", context.saga, context.round);
//!         match self.0.ask(&id).await {
//!             Reply::Done => Outcome::Done(id),
//!             Reply::Refused(reason) => Outcome::Abort { reason: reason.into(), detail: ().into() },
//!             other => Outcome::Retry { reason: format!("{other:?}") },
//!         }
//!     }
//!     async fn undo(&self, context: &Context<'_, String>) -> Undo {
//!         match self.0.revoke(&format!("{}.hold", context.saga)).await {
//!             Reply::Done => Undo::Done,
//!             other => Undo::Retry { reason: format!("{other:?}") },
//!         }
//!     }
//! }
//!
//! struct Sell(Participant);
//! impl Step for Sell {
//!     type Input = String;
//!     type Output = ();
//!     const NAME: &'static str = "sell";
//!     async fn run(&self, context: &Context<'_, String>) -> Outcome<()> {
//!         let held = match context.output_of::<Hold>() {
//!             Ok(Some(held)) => held,
//!             other => return Outcome::Park { reason: format!("{other:?}") },
//!         };
//!         match self.0.settle(&held).await {
//!             Reply::Done => Outcome::Done(()),
//!             Reply::Refused(reason) => Outcome::Abort { reason: reason.into(), detail: ().into() },
//!             other => Outcome::Retry { reason: format!("{other:?}") },
//!         }
//!     }
//!     async fn undo(&self, _: &Context<'_, String>) -> Undo {
//!         Undo::Done
//!     }
//! }
//!
//! for seed in 0..20 {
//!     Simulation::new(seed).run(async |sim| {
//!         let seats = sim.participant("seats", Manners { refuses: 0.2, ..Manners::default() });
//!         let ticket = Definition::new::<String>("ticket", 1)
//!             .step(Hold(seats.clone()))
//!             .pivot(Sell(seats.clone()))
//!             .build();
//!         sim.worker("a", [ticket.clone()]).await;
//!         sim.worker("b", [ticket]).await;
//!         // From here on. A worker whose registration goes wrong is restarted by whoever runs it.
//!         sim.faults(Faults::MANY);
//!         let start = Start {
//!             saga: sim.saga_id(),
//!             input: "row 7".to_owned(),
//!             patience: None,
//!             attributes: BTreeMap::new(),
//!             traceparent: None,
//!             priority: Priority::default(),
//!         };
//!         sim.start("a", "ticket", &start).await.expect("it did not crash").expect("it starts");
//!         sim.sleep(Duration::from_millis(30)).await;
//!         sim.crash("a");
//!         let end = sim.rest("b", start.saga, Duration::from_secs(300)).await.expect("it rests");
//!         sim.drained(Duration::from_secs(60)).await;
//!         let sold = seats.count(&start.saga.to_string(), Effect::Settled);
//!         assert_eq!(sold, usize::from(end.status == Status::Completed));
//!         assert_eq!(seats.count(&start.saga.to_string(), Effect::Held), 0);
//!     });
//! }
//! ```

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::FutureExt as _;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::{
    definition::Definition,
    dice::Dice,
    engine::{Engine, EngineConfig, Ground, OpenError, Start, StartError},
    event::Event,
    id::{Epoch, SagaId},
    journal::{JournalError, Standing},
    spawn::Tasks,
};

mod chronicle;
mod faults;
mod journal;
mod life;
mod participant;
mod store;
mod trap;
mod world;

pub(crate) use self::life::Life;
pub use self::{
    chronicle::TraceHash,
    faults::{Faults, JournalFaults, NetworkFaults, Weakened},
    participant::{Effect, LAPSED, Manners, Participant, REFUSED, REVOKED, Reply},
    trap::{Harm, Trap, When},
};
use self::{journal::MemoryJournal, life::Stage, world::World};

/// No run takes longer in virtual time.
const RUN_MOST: Duration = Duration::from_hours(24);
/// Observations that are told when a simulated run fails.
const TOLD_MAX: usize = 60;
/// How often an engine whose registration failed is opened anew.
const OPEN_AGAIN: Duration = Duration::from_millis(100);
/// How often a drained simulation is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A simulation that is about to run.
#[derive(Debug, Clone)]
pub struct Simulation {
    seed: u64,
    faults: Faults,
    weakened: Weakened,
}

impl Simulation {
    /// Of this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, faults: Faults::NONE, weakened: Weakened::default() }
    }

    /// What goes wrong from the beginning on.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Leaves rules out, to see that somebody notices.
    #[must_use]
    pub fn weakened(mut self, weakened: Weakened) -> Self {
        self.weakened = weakened;
        self
    }

    /// Runs `body` in virtual time, on one thread. When it panics, the seed and the last observations are printed.
    ///
    /// # Panics
    /// When `body` does, or takes longer than a day of virtual time.
    #[expect(clippy::print_stderr, reason = "a failed run is of no use without its seed")]
    pub fn run<T>(self, body: impl AsyncFnOnce(&Sim) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O needs nothing");
        runtime.block_on(async {
            let world = World::new(self.seed, self.faults, self.weakened);
            let sim = Sim { world: Arc::clone(&world), workers: Mutex::default(), lives: Mutex::default() };
            let run = async {
                let run = tokio::time::timeout(RUN_MOST, body(&sim)).await;
                run.unwrap_or_else(|_| panic!("the run waits for something that never comes"))
            };
            match AssertUnwindSafe(run).catch_unwind().await {
                Ok(result) => result,
                Err(panic) => {
                    eprintln!("seed {} failed; the last observations:", world.seed);
                    for line in sim.last(TOLD_MAX, None) {
                        eprintln!("{line}");
                    }
                    resume_unwind(panic)
                }
            }
        })
    }
}

/// The worker crashed before it answered: what was asked of it may have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the worker crashed before it answered")]
pub struct Crashed;

/// A simulation that runs.
pub struct Sim {
    world: Arc<World>,
    workers: Mutex<BTreeMap<String, Worker>>,
    /// Every process there ever was.
    lives: Mutex<Vec<(String, Arc<Life>)>>,
}

#[derive(Clone)]
struct Worker {
    config: EngineConfig,
    definitions: Vec<Definition>,
    life: Arc<Life>,
    engine: Option<Engine>,
}

impl Sim {
    /// Starts a worker of this name with these definitions; returns once it is registered.
    pub async fn worker(&self, name: &str, definitions: impl IntoIterator<Item = Definition>) {
        self.worker_with(EngineConfig::named(name), definitions).await;
    }

    /// The same with another configuration than the default one.
    pub async fn worker_with(&self, config: EngineConfig, definitions: impl IntoIterator<Item = Definition>) {
        let name = config.worker.clone();
        let definitions = definitions.into_iter().collect();
        self.workers()
            .insert(name.clone(), Worker { config, definitions, life: Life::begin(), engine: None });
        self.restart(&name).await;
    }

    /// Starts a worker anew that crashed or was stopped; one that runs is replaced, and notices by and by. Returns
    /// once it is registered, or crashed again.
    ///
    /// # Panics
    /// When there was no such worker, or it cannot run with its configuration.
    pub async fn restart(&self, name: &str) {
        let life = Life::begin();
        let known = {
            let mut workers = self.workers();
            let worker = workers.get_mut(name).unwrap_or_else(|| panic!("there is no worker {name}"));
            worker.life = Arc::clone(&life);
            worker.engine = None;
            worker.clone()
        };
        self.world.lives().insert(name.to_owned(), Arc::clone(&life));
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), Arc::clone(&life)));
        self.note(&format!("worker {name} starts"));
        let world = Arc::clone(&self.world);
        let begun = Arc::clone(&life);
        let opened = alive(&life, async move {
            loop {
                let journal = Arc::new(MemoryJournal::new(&world, &known.config.worker));
                let ground = Ground {
                    tasks: Tasks::on(Arc::clone(&begun)),
                    writing: Tasks::on(Arc::clone(&begun)),
                    dice: Dice::seeded(world.number()),
                    weakened: world.weakened,
                };
                match Engine::open_on(journal, ground, known.config.clone(), known.definitions.clone()).await
                {
                    Ok(engine) => return engine,
                    Err(OpenError::Journal(_)) => tokio::time::sleep(OPEN_AGAIN).await,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        if let Ok(engine) = opened.await
            && let Some(worker) = self.workers().get_mut(name)
            && Arc::ptr_eq(&worker.life, &life)
        {
            worker.engine = Some(engine);
        }
    }

    /// Ends a worker like kill -9 does. What it sent is on its way all the same.
    pub fn crash(&self, name: &str) {
        self.note(&format!("worker {name} crashes"));
        self.life(name).end();
    }

    /// Stops a worker in an orderly way, which takes at most `within`.
    pub async fn stop(&self, name: &str, within: Duration) -> Result<Result<(), JournalError>, Crashed> {
        self.note(&format!("worker {name} stops"));
        let stopped = self.on(name, async move |engine| engine.stop(within).await).await;
        self.life(name).end();
        stopped
    }

    /// Stops a worker's time, like SIGSTOP does.
    pub fn freeze(&self, name: &str) {
        self.note(&format!("worker {name} freezes"));
        self.life(name).freeze();
    }

    /// Lets a frozen worker go on, and every frozen predecessor of its name.
    pub fn thaw(&self, name: &str) {
        self.note(&format!("worker {name} thaws"));
        let lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, life) in lives.iter().filter(|(known, _)| known == name) {
            life.thaw();
        }
    }

    /// Whether a worker has neither crashed nor was stopped.
    pub fn is_alive(&self, name: &str) -> bool {
        self.life(name).stage() != Stage::Ended
    }

    /// Waits until a worker crashed or was stopped.
    pub async fn ended(&self, name: &str) {
        let life = self.life(name);
        life.ended().await;
    }

    /// Calls a worker's engine, as code of its process would: it ends with it.
    ///
    /// # Panics
    /// When there is no such worker.
    pub async fn on<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        name: &str,
        call: impl FnOnce(Engine) -> F,
    ) -> Result<T, Crashed> {
        let (life, engine) = {
            let workers = self.workers();
            let worker = workers.get(name).unwrap_or_else(|| panic!("there is no worker {name}"));
            (Arc::clone(&worker.life), worker.engine.clone())
        };
        let engine = engine.ok_or(Crashed)?;
        alive(&life, call(engine)).await
    }

    /// Starts a saga.
    pub async fn start<I: Serialize + Clone + Send + Sync + 'static>(
        &self,
        worker: &str,
        kind: &'static str,
        start: &Start<I>,
    ) -> Result<Result<(), StartError>, Crashed> {
        let start = start.clone();
        self.on(worker, async move |engine| engine.start(kind, &start).await).await
    }

    /// Sends a saga a signal, as [`Engine::signal`] does.
    pub async fn signal(
        &self,
        worker: &str,
        saga: SagaId,
        key: &str,
        name: &str,
        payload: &Value,
    ) -> Result<Result<bool, JournalError>, Crashed> {
        let (key, name, payload) = (key.to_owned(), name.to_owned(), payload.clone());
        self.on(worker, async move |engine| engine.signal(saga, &key, &name, &payload).await).await
    }

    /// Waits until a worker knows that a saga has ended or is parked. `None`: it did not within that time, or the worker
    /// crashed.
    pub async fn rest(&self, worker: &str, saga: SagaId, within: Duration) -> Option<Standing> {
        let is_final = |standing: &Standing| standing.status.is_final();
        let end = tokio::time::Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            let asked =
                self.on(worker, async move |engine| engine.wait_for(saga, left, is_final).await).await;
            match asked {
                Ok(Ok(standing)) => return standing.filter(is_final),
                Err(Crashed) => return None,
                Ok(Err(_)) if left.is_zero() => return None,
                Ok(Err(_)) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Waits until every saga has ended or is parked and nothing is on its way any more, at most `within`; whether that
    /// came to be.
    pub async fn drained(&self, within: Duration) -> bool {
        let end = tokio::time::Instant::now() + within;
        let mut quiet = 0;
        while tokio::time::Instant::now() < end {
            let standings: Vec<_> = self.sagas().into_iter().filter_map(|saga| self.standing(saga)).collect();
            let rest = standings.iter().all(|standing| standing.at_rest && standing.status.is_final());
            quiet = if rest && self.world.under_way() == 0 { quiet + 1 } else { 0 };
            if quiet > 2 {
                return true;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        false
    }

    /// A participant of this name, which must be unique.
    pub fn participant(&self, name: &'static str, manners: Manners) -> Participant {
        Participant::new(&self.world, name, manners)
    }

    /// What goes wrong from now on.
    pub fn faults(&self, faults: Faults) {
        *self.world.faults() = faults;
    }

    /// Sets a trap.
    pub fn trap(&self, trap: Trap) {
        self.world.set(trap);
    }

    /// Takes away the traps that nothing ran into.
    pub fn clear_traps(&self) {
        self.world.clear_traps();
    }

    /// How many traps nothing ran into.
    pub fn traps_left(&self) -> usize {
        self.world.traps_left()
    }

    /// Every saga there is, on disk.
    pub fn sagas(&self) -> Vec<SagaId> {
        self.world.store().sagas()
    }

    /// A saga's journal, on disk.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn history(&self, saga: SagaId) -> Vec<Event> {
        let journal = self.world.store().journal_of(saga).unwrap_or_else(|| Ok(Vec::new()));
        journal.unwrap_or_else(|error| panic!("the journal of {saga} cannot be read: {error}"))
    }

    /// Where a saga stands, on disk.
    pub fn standing(&self, saga: SagaId) -> Option<Standing> {
        let row = self.world.store().position(saga)?;
        Some(Standing { status: row.status, at_rest: row.owner.is_none(), seq: row.seq })
    }

    /// How often a saga changed its owner, plus one.
    pub fn epoch(&self, saga: SagaId) -> Option<Epoch> {
        self.world.store().position(saga).map(|row| row.epoch)
    }

    /// Why a saga that has not ended is parked, or what failed last.
    pub fn last_error(&self, saga: SagaId) -> Option<String> {
        self.world.store().last_error(saga)
    }

    /// A new id, from the seed.
    pub fn saga_id(&self) -> SagaId {
        SagaId(Uuid::from_u64_pair(self.world.number(), self.world.number()))
    }

    /// A number from 0 up to and without `bound`, from the seed.
    pub fn number_below(&self, bound: u64) -> u64 {
        self.world.number_below(bound)
    }

    /// Whether what happens to this share of all does happen now, from the seed.
    pub fn happens(&self, share: f64) -> bool {
        self.world.happens(share)
    }

    /// Lets virtual time pass.
    pub async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// The database's time.
    pub fn now(&self) -> DateTime<Utc> {
        self.world.now()
    }

    /// Adds an observation of the caller's own.
    pub fn note(&self, what: &str) {
        self.world.note(what);
    }

    /// What must never be and was: a broken journal, or a worker that panicked.
    pub fn violations(&self) -> Vec<String> {
        let mut violations = self.world.violations();
        let lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        violations.extend(lives.iter().flat_map(|(_, life)| life.panics()));
        violations
    }

    /// A hash over everything observed so far, with its times.
    pub fn trace(&self) -> TraceHash {
        self.world.chronicle().hash()
    }

    /// The last observations, oldest first: those that name `about`, or all.
    pub fn last(&self, count: usize, about: Option<&str>) -> Vec<String> {
        self.world.chronicle().last(count, about)
    }

    fn life(&self, name: &str) -> Arc<Life> {
        let workers = self.workers();
        let worker = workers.get(name).unwrap_or_else(|| panic!("there is no worker {name}"));
        Arc::clone(&worker.life)
    }

    fn workers(&self) -> MutexGuard<'_, BTreeMap<String, Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `task` as part of a life.
async fn alive<T: Send + 'static>(
    life: &Arc<Life>,
    task: impl Future<Output = T> + Send + 'static,
) -> Result<T, Crashed> {
    let (answer, answered) = oneshot::channel();
    tokio::spawn(life.lead(async move {
        // Whoever asked may be gone.
        let _ = answer.send(task.await);
    }));
    answered.await.map_err(|_| Crashed)
}
