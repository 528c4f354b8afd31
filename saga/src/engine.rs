//! The engine of one process: starts sagas, runs what this worker owns, and takes over what nobody living owns. How one
//! saga is driven is in `drive.rs`, what is claimed and when in `claim.rs` and `watch.rs`.

use std::{
    collections::HashMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{Admission, AdmissionConfig, AdmissionConfigError, Occupancy},
    breaker::Breakers,
    claim::Claims,
    clock::Clock,
    definition::Definition,
    dice::Dice,
    id::SagaId,
    journal::{Journal, JournalError, Pauses, Standing, postgres::PgJournal},
    signals::SignalReader,
    spawn::Tasks,
    watch as loops,
    writer::Writer,
};

mod config;
mod held;
mod standing;
mod start;

pub(crate) use self::held::Held;
pub use self::{
    config::{ConfigError, EngineConfig},
    standing::Schedule,
    start::{Begun, Start, StartError, Started},
};

/// The signal that asks a saga to undo itself. Once its pivot began, it changes nothing.
pub const CANCEL: &str = "cancel";

/// The signal that gives a saga more time; payload [`Extension`]. Once it turned or its pivot began, it changes nothing.
pub const EXTEND: &str = "extend";

/// What [`EXTEND`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// The deadline is not before this; never earlier than it was.
    pub until: DateTime<Utc>,
}

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
    pub(crate) closed: CancellationToken,
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
        // One writer: more would only make flushes smaller.
        let engine = self.clone();
        self.supervise(&shared.writing, "writer", async move {
            let closed = engine.shared.closed.clone();
            tokio::select! {
                biased;
                () = closed.cancelled() => {}
                () = engine.shared.writer.write(engine.shared.journal.as_ref(), |entry| engine.publish(entry)) => {}
            }
        });
        let engine = self.clone();
        self.supervise(&shared.writing, "heartbeat", async move { loops::heartbeat(&engine).await });
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

    pub(crate) fn run_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.tasks.spawn(task);
    }
}
