//! The engine of one process: starts sagas in their callers' transactions, runs what this worker owns, and takes
//! over what nobody living owns. How one saga is driven is in `drive.rs`; the loops are in `watch.rs`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::Clock,
    definition::Definition,
    drive::{Drive, drive},
    event::Event,
    id::{Epoch, SagaId, Seq, Worker},
    journal::{Journal, JournalError, Standing},
    state::State,
    watch as loops,
};

/// The signal that asks a saga to undo itself. Once its pivot began, it changes nothing.
pub const CANCEL: &str = "cancel";

/// How an engine runs.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The worker's name: two live processes never share one, a restarted process keeps it.
    pub worker: String,
    /// How long after its last heartbeat a worker's sagas may be taken over.
    pub lease: Duration,
    /// How often the lease is renewed and the database's clock read.
    pub heartbeat: Duration,
    /// How often the journal is scanned for what is due, abandoned or signalled.
    pub scan_every: Duration,
    /// How far ahead due times are loaded into the process; at least twice `scan_every`.
    pub near_window: Duration,
    /// A saga that waits longer than this is given up until it is due: it costs no memory and no lease.
    pub hold_max: Duration,
    /// Sagas run at once. More starts are refused, more claims wait.
    pub in_flight_max: usize,
    /// Claims without progress after which a saga is parked: it may be what kills the process.
    pub claims_max: i32,
}

impl EngineConfig {
    /// The defaults, for a worker of this name.
    pub fn named(worker: impl Into<String>) -> Self {
        Self {
            worker: worker.into(),
            lease: Duration::from_secs(5),
            heartbeat: Duration::from_secs(1),
            scan_every: Duration::from_millis(500),
            near_window: Duration::from_secs(2),
            hold_max: Duration::from_millis(500),
            in_flight_max: 4_096,
            claims_max: 10,
        }
    }
}

/// A saga could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Too many run already; nothing was begun.
    #[error("{0} sagas are in flight, which is the limit")]
    Overloaded(usize),
    /// No definition of this kind was given to the engine.
    #[error("no saga is of kind {0:?}")]
    UnknownKind(&'static str),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What a saga is started with.
#[derive(Debug, Clone)]
pub struct Start<I> {
    /// Its id, chosen by the caller.
    pub saga: SagaId,
    /// What its steps read.
    pub input: I,
    /// How long the steps before the pivot may take, from now.
    pub patience: Option<Duration>,
    /// Names for it, searchable, and attributes of its spans.
    pub attributes: BTreeMap<String, String>,
    /// W3C trace context its steps belong to.
    pub traceparent: Option<String>,
}

/// A started saga that begins to run when its transaction is known to be committed. Dropped without that, it is
/// found in the journal if the transaction was committed all the same.
#[must_use = "call `run` once the transaction is committed"]
pub struct Started {
    engine: Engine,
    drive: Drive,
}

impl Started {
    /// Begins to run it. Its transaction must be committed.
    pub fn run(self) {
        self.engine.begin(self.drive);
    }
}

/// The engine of one process. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) journal: Journal,
    pub(crate) config: EngineConfig,
    pub(crate) clock: Clock,
    definitions: HashMap<(String, i32), Definition>,
    latest: HashMap<&'static str, Definition>,
    held: Mutex<HashMap<SagaId, Arc<Held>>>,
    watchers: Mutex<HashMap<SagaId, watch::Sender<Option<Standing>>>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// A saga that a task of this process drives.
#[derive(Default)]
pub(crate) struct Held {
    nudged: AtomicBool,
    wake: Notify,
}

impl Held {
    pub(crate) fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn is_nudged(&self) -> bool {
        self.nudged.load(Ordering::Acquire)
    }

    /// Whether it was nudged since last asked.
    pub(crate) fn take_nudge(&self) -> bool {
        self.nudged.swap(false, Ordering::AcqRel)
    }

    pub(crate) async fn nudge_arrives(&self) {
        while !self.is_nudged() {
            self.wake.notified().await;
        }
    }
}

impl Engine {
    /// Starts the engine: the schema must be migrated. Returns once the worker is registered.
    pub async fn start(
        pool: PgPool,
        config: EngineConfig,
        definitions: impl IntoIterator<Item = Definition>,
    ) -> Result<Self, JournalError> {
        let journal = Journal::new(pool, Worker::boot(config.worker.clone()));
        let clock = Clock::set_to(journal.register(config.lease).await?);
        let mut latest: HashMap<&'static str, Definition> = HashMap::new();
        let mut by_version = HashMap::new();
        for definition in definitions {
            let newest = latest.entry(definition.kind).or_insert_with(|| definition.clone());
            if newest.version < definition.version {
                *newest = definition.clone();
            }
            by_version.insert((definition.kind.to_owned(), definition.version), definition);
        }
        let engine = Self {
            shared: Arc::new(Shared {
                journal,
                config,
                clock,
                definitions: by_version,
                latest,
                held: Mutex::default(),
                watchers: Mutex::default(),
                tasks: TaskTracker::new(),
                stop: CancellationToken::new(),
            }),
        };
        engine.shared.tasks.spawn(loops::heartbeat(engine.clone()));
        engine.shared.tasks.spawn(loops::scan(engine.clone()));
        Ok(engine)
    }

    /// Starts a saga in the caller's transaction. Call [`Started::run`] after the commit.
    pub async fn start_in<I: Serialize + Sync>(
        &self,
        connection: &mut PgConnection,
        kind: &'static str,
        start: &Start<I>,
    ) -> Result<Started, StartError> {
        let in_flight = self.held().len();
        if in_flight >= self.shared.config.in_flight_max {
            return Err(StartError::Overloaded(in_flight));
        }
        let definition = self.shared.latest.get(kind).ok_or(StartError::UnknownKind(kind))?.clone();
        let now = self.now();
        let first = Event::Started {
            at: now,
            input: serde_json::to_value(&start.input).map_err(JournalError::from)?,
            deadline: start.patience.map(|patience| now + patience),
            traceparent: start.traceparent.clone(),
            attributes: start.attributes.clone(),
        };
        let state =
            self.shared.journal.start(connection, start.saga, kind, definition.version, &first).await?;
        let drive = Drive {
            saga: start.saga,
            definition,
            epoch: Epoch(1),
            seq: Seq(1),
            state,
            resumed: false,
            look_for_signals: false,
        };
        Ok(Started { engine: self.clone(), drive })
    }

    /// Sends a signal in the caller's transaction: durable, once per `key`. `false`: the saga has ended or does not
    /// exist. Call [`Engine::nudge`] after the commit, so that it is taken in at once.
    pub async fn send(
        &self,
        connection: &mut PgConnection,
        saga: SagaId,
        key: &str,
        name: &str,
        payload: &Value,
    ) -> Result<bool, JournalError> {
        Journal::send(connection, saga, key, name, payload).await
    }

    /// Says that a signal was sent. Only a hint: without it the next scan finds the signal.
    pub fn nudge(&self, saga: SagaId) {
        let held = self.held().get(&saga).cloned();
        if let Some(held) = held {
            held.nudge();
        } else {
            let engine = self.clone();
            self.shared.tasks.spawn(async move { loops::claim(&engine, vec![saga]).await });
        }
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
            let seen = *changes.borrow_and_update();
            if let Some(standing) = seen.filter(|standing| enough(standing)) {
                return Ok(Some(standing));
            }
            // What this process drives tells at once; the row is read for what another one drives.
            let is_over = Instant::now() >= end;
            if is_over || !self.held().contains_key(&saga) {
                let standing = self.shared.journal.standing(saga).await?;
                if is_over || standing.is_none_or(|standing| enough(&standing)) {
                    return Ok(standing);
                }
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(end.min(Instant::now() + POLL)) => {}
            }
        }
    }

    /// The database's time, as this process knows it.
    pub fn now(&self) -> DateTime<Utc> {
        self.shared.clock.now()
    }

    /// Resolves when the engine stopped by itself, because a newer process of the same name replaced it.
    pub async fn stopped(&self) {
        self.shared.stop.cancelled().await;
    }

    /// Stops claiming, lets running attempts end for at most `within`, then frees what is left for other workers.
    pub async fn stop(&self, within: Duration) -> Result<(), JournalError> {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(within, self.shared.tasks.wait()).await.is_err() {
            tracing::warn!(held = self.held().len(), "sagas are given up in the middle of a step");
        }
        self.shared.journal.resign().await
    }

    pub(crate) fn definition(&self, kind: &str, version: i32) -> Option<Definition> {
        self.shared.definitions.get(&(kind.to_owned(), version)).cloned()
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, HashMap<SagaId, Arc<Held>>> {
        self.shared.held.lock().expect("no code panics while it holds the map")
    }

    /// Drives a saga in its own task, unless one does already.
    pub(crate) fn begin(&self, work: Drive) {
        let held = Arc::new(Held::default());
        if work.look_for_signals {
            held.nudge();
        }
        let saga = work.saga;
        {
            let mut all = self.held();
            if all.contains_key(&saga) {
                return;
            }
            all.insert(saga, Arc::clone(&held));
        }
        let guard = HoldGuard { engine: self.clone(), saga };
        let engine = self.clone();
        self.shared.tasks.spawn(async move {
            let _guard = guard;
            drive(&engine, &held, work).await;
        });
    }

    pub(crate) fn publish(&self, saga: SagaId, state: &State, seq: Seq, at_rest: bool) {
        let mut watchers = self.watchers();
        let Some(watcher) = watchers.get(&saga) else { return };
        let standing = Standing { status: crate::journal::Status::of(state), at_rest, seq };
        if watcher.send(Some(standing)).is_err() {
            watchers.remove(&saga);
        }
    }

    fn subscribe(&self, saga: SagaId) -> watch::Receiver<Option<Standing>> {
        let mut watchers = self.watchers();
        // Entries whose last subscriber left are dropped here, so the map is bounded by the callers that wait.
        if watchers.len() > WATCHERS_SWEPT_AT {
            watchers.retain(|_, watcher| watcher.receiver_count() > 0);
        }
        watchers.entry(saga).or_insert_with(|| watch::channel(None).0).subscribe()
    }

    fn watchers(&self) -> MutexGuard<'_, HashMap<SagaId, watch::Sender<Option<Standing>>>> {
        self.shared.watchers.lock().expect("no code panics while it holds the map")
    }
}

/// How often a waiting caller reads the row of a saga that another process may drive.
const POLL: Duration = Duration::from_millis(250);
const WATCHERS_SWEPT_AT: usize = 1_024;

/// Forgets a saga when its task ends, also by panic: the journal's scan then finds it.
struct HoldGuard {
    engine: Engine,
    saga: SagaId,
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.engine.held().remove(&self.saga);
    }
}
