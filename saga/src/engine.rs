//! The engine of one process: starts sagas, runs what this worker owns, and takes over what nobody living owns. How one
//! saga is driven is in `drive.rs`, what is claimed and when in `claim.rs` and `watch.rs`.

use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::FutureExt as _;
use sqlx::PgPool;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{Admission, AdmissionConfig, AdmissionConfigError, Occupancy, Slot},
    breaker::Breakers,
    claim::Claims,
    clock::Clock,
    definition::Definition,
    dice::Dice,
    drive::{Drive, drive},
    id::SagaId,
    journal::{Entry, Journal, JournalError, Pauses, Position, Standing, Status, postgres::PgJournal},
    signals::SignalReader,
    spawn::Tasks,
    tail::Tail,
    watch as loops,
    writer::Writer,
};

mod config;
mod start;

pub use self::{
    config::{ConfigError, EngineConfig},
    start::{Begun, Start, StartError, Started},
};

/// The signal that asks a saga to undo itself. Once its pivot began, it changes nothing.
pub const CANCEL: &str = "cancel";

/// An engine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot run so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nothing could be admitted so.
    #[error(transparent)]
    Admission(#[from] AdmissionConfigError),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Why an engine stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// It was asked to.
    #[error("the engine was stopped")]
    Asked,
    /// A newer process of the same name runs.
    #[error("a newer worker of the name {0:?} runs")]
    Replaced(String),
    /// One of its loops failed, so it could not keep its promises any more.
    #[error("the engine's {0} failed")]
    Failed(&'static str),
}

/// The engine of one process. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) config: EngineConfig,
    pub(crate) clock: Clock,
    pub(crate) writer: Writer,
    pub(crate) signals: SignalReader,
    pub(crate) claims: Claims,
    pub(crate) admission: Admission,
    pub(crate) breakers: Breakers,
    pub(crate) dice: Dice,
    #[cfg(feature = "testing")]
    pub(crate) weakened: crate::testing::Weakened,
    definitions: HashMap<(String, i32), Definition>,
    pub(crate) latest: HashMap<&'static str, Definition>,
    pauses: Mutex<Pauses>,
    held: Mutex<HashMap<SagaId, Arc<Held>>>,
    watchers: Mutex<HashMap<SagaId, watch::Sender<Option<Standing>>>>,
    /// Ends with the sagas that are driven.
    tasks: Tasks,
    /// Ends last: without it nothing that ends could be recorded.
    writing: Tasks,
    pub(crate) stop: CancellationToken,
    stopped: OnceLock<Stopped>,
    closed: CancellationToken,
}

/// A saga that a task of this process drives.
pub(crate) struct Held {
    pub(crate) tail: Arc<Tail>,
    nudged: AtomicBool,
    wake: Notify,
    _slot: Slot,
}

impl Held {
    pub(crate) fn new(tail: Arc<Tail>, slot: Slot) -> Self {
        Self { tail, nudged: AtomicBool::new(false), wake: Notify::new(), _slot: slot }
    }

    /// There may be a signal.
    pub(crate) fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn is_nudged(&self) -> bool {
        self.nudged.load(Ordering::Acquire)
    }

    /// Whether it was nudged since last asked.
    pub(crate) fn take_nudge(&self) -> bool {
        self.is_nudged() && self.nudged.swap(false, Ordering::AcqRel)
    }

    pub(crate) async fn nudge_arrives(&self) {
        while !self.is_nudged() {
            self.wake.notified().await;
        }
    }
}

/// When a saga is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Where it stands.
    pub status: Status,
    /// Some worker runs it now.
    pub is_held: bool,
    /// When it wants to run again, while it waits.
    pub due: Option<DateTime<Utc>>,
    /// Until when the steps before the pivot may take, while that applies.
    pub deadline: Option<DateTime<Utc>>,
}

/// What an engine runs on besides its journal.
pub(crate) struct Ground {
    pub(crate) tasks: Tasks,
    pub(crate) writing: Tasks,
    pub(crate) dice: Dice,
    #[cfg(feature = "testing")]
    pub(crate) weakened: crate::testing::Weakened,
}

impl Engine {
    /// Opens an engine on this database, whose schema must be migrated. Returns once the worker is registered.
    pub async fn open(
        pool: PgPool,
        config: EngineConfig,
        definitions: impl IntoIterator<Item = Definition>,
    ) -> Result<Self, OpenError> {
        let journal = Arc::new(PgJournal::new(pool, config.worker.clone()));
        let ground = Ground {
            tasks: Tasks::new(),
            writing: Tasks::new(),
            dice: Dice::default(),
            #[cfg(feature = "testing")]
            weakened: crate::testing::Weakened::default(),
        };
        Self::open_on(journal, ground, config, definitions).await
    }

    pub(crate) async fn open_on(
        journal: Arc<dyn Journal>,
        ground: Ground,
        config: EngineConfig,
        definitions: impl IntoIterator<Item = Definition>,
    ) -> Result<Self, OpenError> {
        config.check()?;
        let mut latest: HashMap<&'static str, Definition> = HashMap::new();
        let mut by_version = HashMap::new();
        for definition in definitions {
            let newest = latest.entry(definition.kind).or_insert_with(|| definition.clone());
            if newest.version < definition.version {
                *newest = definition.clone();
            }
            by_version.insert((definition.kind.to_owned(), definition.version), definition);
        }
        let mut knows: Vec<_> = by_version.values().map(Definition::tag).collect();
        knows.sort_unstable();
        let admission = Admission::new(config.admission)?;
        let beat = journal.register(config.lease, &knows).await?;
        let engine = Self {
            shared: Arc::new(Shared {
                journal,
                clock: Clock::set_to(beat.now),
                writer: Writer::default(),
                signals: SignalReader::default(),
                claims: Claims::new(knows),
                admission,
                breakers: Breakers::new(config.breaker),
                dice: ground.dice,
                #[cfg(feature = "testing")]
                weakened: ground.weakened,
                config,
                definitions: by_version,
                latest,
                pauses: Mutex::new(beat.pauses),
                held: Mutex::default(),
                watchers: Mutex::default(),
                tasks: ground.tasks,
                writing: ground.writing,
                stop: CancellationToken::new(),
                stopped: OnceLock::new(),
                closed: CancellationToken::new(),
            }),
        };
        engine.run_loops();
        Ok(engine)
    }

    fn run_loops(&self) {
        let shared = &self.shared;
        for _ in 0..WRITERS {
            let engine = self.clone();
            self.supervise(&shared.writing, "writer", async move {
                let closed = engine.shared.closed.clone();
                tokio::select! {
                    biased;
                    () = closed.cancelled() => {}
                    () = engine.shared.writer.write(engine.shared.journal.as_ref(), |entry| engine.publish(entry)) => {}
                }
            });
        }
        let engine = self.clone();
        self.supervise(&shared.tasks, "heartbeat", async move { loops::heartbeat(&engine).await });
        let engine = self.clone();
        self.supervise(&shared.tasks, "scan", async move { loops::scan(&engine).await });
        let engine = self.clone();
        self.supervise(&shared.tasks, "listener", async move { loops::listen(&engine).await });
        let engine = self.clone();
        self.supervise(&shared.tasks, "audit", async move { loops::audit(&engine).await });
        let engine = self.clone();
        self.supervise(&shared.tasks, "reader of signals", async move {
            engine.shared.signals.run(&engine).await;
        });
        let engine = self.clone();
        self.supervise(&shared.tasks, "claimer", async move { engine.shared.claims.run(&engine).await });
    }

    /// A loop that dies takes the engine with it: half an engine keeps no promises.
    fn supervise(&self, tasks: &Tasks, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let engine = self.clone();
        tasks.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                engine.halt(Stopped::Failed(name));
            }
        });
    }

    /// Stops by itself.
    pub(crate) fn halt(&self, why: Stopped) {
        if why != Stopped::Asked {
            tracing::error!(%why, "the engine stops");
        }
        // The first reason is the reason.
        let _ = self.shared.stopped.set(why);
        self.shared.stop.cancel();
    }

    /// Waits until the saga's standing satisfies `enough`, at most `within`; gives the last standing seen. `None`:
    /// there is no such saga.
    pub async fn wait_for(
        &self,
        saga: SagaId,
        within: Duration,
        enough: impl Fn(&Standing) -> bool,
    ) -> Result<Option<Standing>, JournalError> {
        let end = Instant::now() + within;
        let mut changes = self.subscribe(saga);
        loop {
            let told = *changes.borrow_and_update();
            let held = self.held().get(&saga).cloned();
            let seen = told.or_else(|| held.as_ref().and_then(|held| held.tail.standing()));
            if let Some(standing) = seen.filter(|standing| enough(standing)) {
                return Ok(Some(standing));
            }
            // What this process drives tells at once; the row is read for what another one drives.
            let is_over = Instant::now() >= end;
            if is_over || held.is_none() {
                match self.standing(saga).await {
                    Ok(standing) if is_over || standing.is_none_or(|standing| enough(&standing)) => {
                        return Ok(standing);
                    }
                    // A read that failed is repeated as long as there is patience.
                    Err(error) if is_over => return Err(error),
                    Ok(_) | Err(_) => {}
                }
            }
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(end.min(Instant::now() + POLL)) => {}
            }
        }
    }

    /// Where a saga stands on disk.
    pub async fn standing(&self, saga: SagaId) -> Result<Option<Standing>, JournalError> {
        let positions = self.shared.journal.positions(&[saga]).await?;
        Ok(positions.get(&saga).map(|row| Standing {
            status: row.status,
            at_rest: row.owner.is_none(),
            seq: row.seq,
        }))
    }

    /// When these sagas are to be looked at, as far as they are known; for a second look at what depends on them.
    pub async fn schedules(&self, sagas: &[SagaId]) -> Result<BTreeMap<SagaId, Schedule>, JournalError> {
        let positions = self.shared.journal.positions(sagas).await?;
        let schedule = |row: &Position| Schedule {
            status: row.status,
            is_held: row.owner.is_some(),
            due: row.due,
            deadline: row.deadline,
        };
        Ok(positions.iter().map(|(saga, row)| (*saga, schedule(row))).collect())
    }

    /// The database's time, as this process knows it.
    pub fn now(&self) -> DateTime<Utc> {
        self.shared.clock.now()
    }

    /// Takes the database's time for right after it jumped: until then nothing that is due is released.
    pub fn accept_time(&self) {
        self.shared.clock.accept();
    }

    /// Changes, while it runs, which saga may run next.
    pub fn set_admission(&self, config: AdmissionConfig) -> Result<(), AdmissionConfigError> {
        self.shared.admission.set(config)
    }

    /// Who is in, and who waits.
    pub fn occupancy(&self) -> Occupancy {
        self.shared.admission.occupancy()
    }

    /// How many sagas this process drives at the moment.
    pub fn in_flight(&self) -> usize {
        self.held().len()
    }

    /// Resolves when the engine stops, and says why.
    pub async fn stopped(&self) -> Stopped {
        self.shared.stop.cancelled().await;
        self.shared.stopped.get().cloned().unwrap_or(Stopped::Asked)
    }

    /// Stops claiming, lets running attempts end for at most `within`, then frees what is left for other workers.
    pub async fn stop(&self, within: Duration) -> Result<(), JournalError> {
        self.halt(Stopped::Asked);
        if tokio::time::timeout(within, self.shared.tasks.ended()).await.is_err() {
            tracing::warn!(held = self.in_flight(), "sagas are given up in the middle of a step");
        }
        let resigned = self.shared.journal.resign().await;
        self.shared.closed.cancel();
        resigned
    }

    pub(crate) fn definition(&self, kind: &str, version: i32) -> Option<Definition> {
        self.shared.definitions.get(&(kind.to_owned(), version)).cloned()
    }

    pub(crate) fn pauses(&self) -> MutexGuard<'_, Pauses> {
        self.shared.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_paused(&self, kind: &str, participant: &str) -> bool {
        let pauses = self.pauses();
        pauses.kinds.iter().any(|paused| paused == kind)
            || pauses.participants.iter().any(|paused| paused == participant)
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, HashMap<SagaId, Arc<Held>>> {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a task of this process drives the saga. `None`: one does already.
    pub(crate) fn hold(&self, held: &Arc<Held>) -> Option<HoldGuard> {
        let saga = held.tail.saga;
        let mut all = self.held();
        if all.contains_key(&saga) {
            return None;
        }
        all.insert(saga, Arc::clone(held));
        Some(HoldGuard { engine: self.clone(), saga })
    }

    /// Drives a saga in its own task, unless one does already.
    pub(crate) fn begin(&self, work: Drive) {
        if let Some(guard) = self.hold(&work.held) {
            self.run_held(guard, work);
        }
    }

    pub(crate) fn run_held(&self, guard: HoldGuard, work: Drive) {
        let engine = self.clone();
        self.shared.tasks.spawn(async move {
            let _guard = guard;
            let closed = engine.shared.closed.clone();
            tokio::select! {
                biased;
                // What is recorded now is never written, so nobody may wait for it, and nothing may be done on it.
                () = closed.cancelled() => {}
                () = drive(&engine, work) => {}
            }
        });
    }

    pub(crate) fn run_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.tasks.spawn(task);
    }

    /// Tells those who wait for a saga what is on disk of it.
    fn publish(&self, entry: &Entry) {
        let mut watchers = self.watchers();
        let Some(watcher) = watchers.get(&entry.saga) else { return };
        if watcher.send(Some(entry.standing())).is_err() {
            watchers.remove(&entry.saga);
        }
    }

    fn subscribe(&self, saga: SagaId) -> Subscription<'_> {
        let receiver = self.watchers().entry(saga).or_insert_with(|| watch::channel(None).0).subscribe();
        Subscription { engine: self, saga, receiver }
    }

    fn watchers(&self) -> MutexGuard<'_, HashMap<SagaId, watch::Sender<Option<Standing>>>> {
        self.shared.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One writer: more would only make flushes smaller.
const WRITERS: usize = 1;
/// How often a waiting caller reads the row of a saga that another process may drive.
const POLL: Duration = Duration::from_millis(250);

/// A caller that waits for a saga. The map of watchers holds only sagas somebody waits for.
struct Subscription<'e> {
    engine: &'e Engine,
    saga: SagaId,
    receiver: watch::Receiver<Option<Standing>>,
}

impl std::ops::Deref for Subscription<'_> {
    type Target = watch::Receiver<Option<Standing>>;

    fn deref(&self) -> &Self::Target {
        &self.receiver
    }
}

impl std::ops::DerefMut for Subscription<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.receiver
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        let mut watchers = self.engine.watchers();
        // This one still counts.
        if watchers.get(&self.saga).is_some_and(|watcher| watcher.receiver_count() <= 1) {
            watchers.remove(&self.saga);
        }
    }
}

/// Forgets a saga when its task ends, also by panic: the journal's scan then finds it.
pub(crate) struct HoldGuard {
    engine: Engine,
    saga: SagaId,
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        let held = self.engine.held().remove(&self.saga);
        // A signal that came while it was given up.
        if held.is_some_and(|held| held.is_nudged()) {
            self.engine.shared.claims.want([self.saga]);
        }
    }
}
