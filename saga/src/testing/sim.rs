//! The workers of a simulation that runs: how they start, freeze, crash and are called.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    journal::MemoryJournal,
    life::{Life, Stage},
    world::World,
};
use crate::{
    definition::Definition,
    dice::Dice,
    engine::{Engine, EngineConfig, Ground, OpenError, Start, StartError},
    id::SagaId,
    journal::{JournalError, Standing},
    spawn::Tasks,
};

/// How often an engine whose registration failed is opened anew.
const OPEN_AGAIN: Duration = Duration::from_millis(100);
/// How often a drained simulation is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The worker crashed before it answered: what was asked of it may have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the worker crashed before it answered")]
pub struct Crashed;

/// A simulation that runs.
pub struct Sim {
    pub(super) world: Arc<World>,
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
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), workers: Mutex::default(), lives: Mutex::default() }
    }

    /// What the tasks of all processes panicked with.
    pub(super) fn panics(&self) -> Vec<String> {
        let lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives.iter().flat_map(|(_, life)| life.panics()).collect()
    }

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

    /// Whether a worker has neither crashed nor stopped, of itself or because it was told to. A frozen one is alive.
    pub fn is_alive(&self, name: &str) -> bool {
        let workers = self.workers();
        let worker = workers.get(name).unwrap_or_else(|| panic!("there is no worker {name}"));
        let halted = worker.engine.as_ref().is_some_and(|engine| engine.shared.stop.is_cancelled());
        worker.life.stage() != Stage::Ended && !halted
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
