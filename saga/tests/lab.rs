//! A database per test, steps that do what a script says, and workers that can die without a word.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say so at once")]
#![allow(dead_code, reason = "each suite needs a part of it")]

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::FutureExt as _;
use saga::{
    Begun, Builder, Context, Definition, Engine, EngineConfig, Outcome, Priority, Retry, SagaId, SideRows,
    Standing, Start, StartError, Status, Step, Undo,
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

/// Runs a test with a database of its own, dropped at the end also when the test fails.
pub(crate) fn with_database<F: Future<Output = ()>>(test: impl FnOnce(Lab) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let admin = std::env::var("TEST_DATABASE_URL")
        .expect("TEST_DATABASE_URL must name a Postgres server; `./dev test` starts one");
    let name = format!("saga_{}", uuid::Uuid::new_v4().simple());
    let (prefix, _) = admin.rsplit_once('/').expect("a database URL ends in a database");
    let url = format!("{prefix}/{name}");
    runtime.block_on(async {
        let mut connection = PgConnection::connect(&admin).await.unwrap();
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await.unwrap();
        let pool = PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap();
        saga::migrate(&pool).await.unwrap();
        let lab = Lab { url, pool: pool.clone() };
        let outcome = AssertUnwindSafe(test(lab)).catch_unwind().await;
        pool.close().await;
        sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))
            .execute(&mut connection)
            .await
            .unwrap();
        if let Err(failed) = outcome {
            std::panic::resume_unwind(failed);
        }
    });
}

pub(crate) struct Lab {
    url: String,
    pub(crate) pool: PgPool,
}

/// What the steps of a test do: what their script says, then `Done`.
#[derive(Default)]
pub(crate) struct World {
    /// Every call, in order: "do reserve 1", "undo reserve".
    pub(crate) calls: Mutex<Vec<String>>,
    scripts: Mutex<HashMap<&'static str, VecDeque<Outcome<i32>>>>,
    /// These answer nothing.
    pub(crate) down: Mutex<Vec<&'static str>>,
    /// An undo of these fails always.
    pub(crate) stuck: Mutex<Vec<&'static str>>,
    /// A step of this name waits for a permit.
    pub(crate) gates: Mutex<HashMap<&'static str, Arc<Semaphore>>>,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub(crate) fn script(&self, step: &'static str, outcomes: impl IntoIterator<Item = Outcome<i32>>) {
        self.scripts.lock().unwrap().entry(step).or_default().extend(outcomes);
    }

    pub(crate) fn gate(&self, step: &'static str) -> Arc<Semaphore> {
        Arc::clone(self.gates.lock().unwrap().entry(step).or_insert_with(|| Arc::new(Semaphore::new(0))))
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    async fn run(&self, step: &'static str, round: u32) -> Outcome<i32> {
        self.calls.lock().unwrap().push(format!("do {step} {round}"));
        if self.down.lock().unwrap().contains(&step) {
            return Outcome::Retry { reason: "it is down".into() };
        }
        let gate = self.gates.lock().unwrap().get(step).cloned();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        let scripted = self.scripts.lock().unwrap().get_mut(step).and_then(VecDeque::pop_front);
        scripted.unwrap_or(Outcome::Done(7))
    }

    fn undo(&self, step: &'static str) -> Undo {
        self.calls.lock().unwrap().push(format!("undo {step}"));
        if self.stuck.lock().unwrap().contains(&step) {
            return Undo::Retry { reason: "it is stuck".into() };
        }
        Undo::Done
    }
}

macro_rules! step {
    ($type:ident, $name:literal) => {
        pub(crate) struct $type(Arc<World>);

        impl Step for $type {
            type Input = String;
            type Output = i32;
            const NAME: &'static str = $name;

            async fn run(&self, context: &Context<'_, String>) -> Outcome<i32> {
                self.0.run($name, context.round).await
            }

            async fn undo(&self, _: &Context<'_, String>) -> Undo {
                self.0.undo($name)
            }
        }
    };
}

step!(Reserve, "reserve");
step!(Pay, "pay");
step!(Sell, "sell");
step!(Tell, "tell");

/// Three quick attempts.
pub(crate) const QUICK: Retry = Retry {
    first: Duration::from_millis(5),
    cap: Duration::from_millis(20),
    attempts_max: 3,
    attempt_timeout: Duration::from_secs(20),
};

/// reserve, pay, sell (pivot), tell.
pub(crate) fn shop(world: &Arc<World>) -> Definition {
    shop_of(world, 1)
}

/// The same in another version.
pub(crate) fn shop_of(world: &Arc<World>, version: i32) -> Definition {
    steps(world, version).build()
}

/// The same with another patience.
pub(crate) fn shop_with_retry(world: &Arc<World>, retry: Retry) -> Definition {
    Definition::new::<String>("shop", 1)
        .step(Reserve(Arc::clone(world)))
        .retry(retry, QUICK)
        .step(Pay(Arc::clone(world)))
        .retry(retry, QUICK)
        .pivot(Sell(Arc::clone(world)))
        .retry(retry, QUICK)
        .step(Tell(Arc::clone(world)))
        .retry(retry, QUICK)
        .build()
}

/// The same with side rows.
pub(crate) fn shop_with(world: &Arc<World>, side_rows: impl SideRows) -> Definition {
    steps(world, 1).side_rows(side_rows).build()
}

fn steps(world: &Arc<World>, version: i32) -> Builder<String> {
    Definition::new::<String>("shop", version)
        .step(Reserve(Arc::clone(world)))
        .retry(QUICK, QUICK)
        .step(Pay(Arc::clone(world)))
        .retry(QUICK, QUICK)
        .pivot(Sell(Arc::clone(world)))
        .retry(QUICK, QUICK)
        .step(Tell(Arc::clone(world)))
        .retry(QUICK, QUICK)
}

/// A worker in a runtime of its own, so that it can die like a process.
pub(crate) struct Worker {
    runtime: Option<tokio::runtime::Runtime>,
    pub(crate) engine: Engine,
    pub(crate) pool: PgPool,
}

impl Worker {
    /// Ends without a word: tasks stop where they are, nothing is released.
    pub(crate) fn die(mut self) {
        self.runtime.take().expect("it lives").shutdown_background();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Lab {
    /// The same database behind a line that can go silent.
    pub(crate) async fn behind(&self, line: &Line) -> Self {
        let (start, database) = self.url.rsplit_once('/').expect("a database URL ends in a database");
        let (start, server) = start.rsplit_once('@').expect("a test's URL names its user");
        let port = line.open(server.to_owned()).await;
        Self { url: format!("{start}@127.0.0.1:{port}/{database}"), pool: self.pool.clone() }
    }

    /// Starts a worker of this name with leases of 400 ms.
    pub(crate) async fn worker(&self, name: &str, definition: Definition) -> Worker {
        self.worker_with(name, definition, |config| config).await
    }

    /// The same with other settings.
    pub(crate) async fn worker_with(
        &self,
        name: &str,
        definition: Definition,
        change: impl FnOnce(EngineConfig) -> EngineConfig,
    ) -> Worker {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let config = change(EngineConfig {
            lease: Duration::from_millis(400),
            heartbeat: Duration::from_millis(100),
            scan_every: Duration::from_millis(50),
            near_window: Duration::from_millis(200),
            hold_max: Duration::from_millis(300),
            ..EngineConfig::named(name)
        });
        let url = self.url.clone();
        let started = runtime.spawn(async move {
            let pool = PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap();
            (Engine::open(pool.clone(), config, [definition]).await.unwrap(), pool)
        });
        let (engine, pool) = started.await.unwrap();
        Worker { runtime: Some(runtime), engine, pool }
    }

    /// Starts a shop saga.
    pub(crate) async fn start(&self, worker: &Worker, patience: Option<Duration>) -> SagaId {
        let saga = SagaId::generate();
        let (engine, pool) = (worker.engine.clone(), worker.pool.clone());
        let start = basket(saga, patience);
        // In the worker's own runtime, as a process's callers are.
        worker
            .runtime
            .as_ref()
            .unwrap()
            .spawn(async move {
                let mut transaction = pool.begin().await.unwrap();
                let started = engine.start_in(&mut transaction, "shop", &start).await.unwrap();
                transaction.commit().await.unwrap();
                started.run();
            })
            .await
            .unwrap();
        saga
    }

    /// Gives a saga more time.
    pub(crate) async fn extend(
        &self,
        worker: &Worker,
        saga: SagaId,
        key: &str,
        until: DateTime<Utc>,
    ) -> bool {
        let (engine, key) = (worker.engine.clone(), key.to_owned());
        let extended = async move { engine.extend(saga, &key, until).await.unwrap() };
        worker.runtime.as_ref().unwrap().spawn(extended).await.unwrap()
    }

    /// Starts a shop saga with its side row.
    pub(crate) async fn begin_with<S: SideRows>(
        &self,
        worker: &Worker,
        saga: SagaId,
        row: S::Row,
    ) -> Result<Begun, StartError> {
        let start = basket(saga, None);
        let engine = worker.engine.clone();
        let begun = async move { engine.start_with::<S, _>("shop", &start, row).await };
        worker.runtime.as_ref().unwrap().spawn(begun).await.unwrap()
    }

    /// Starts a shop saga with the writer's flush.
    pub(crate) async fn begin(&self, worker: &Worker, saga: SagaId) -> Result<(), StartError> {
        let start = basket(saga, None);
        let engine = worker.engine.clone();
        let begun = async move { engine.start("shop", &start).await };
        worker.runtime.as_ref().unwrap().spawn(begun).await.unwrap()
    }

    pub(crate) async fn signal(
        &self,
        worker: &Worker,
        saga: SagaId,
        key: &str,
        name: &str,
        payload: Value,
    ) -> bool {
        let (engine, key, name) = (worker.engine.clone(), key.to_owned(), name.to_owned());
        let sent = async move { engine.signal(saga, &key, &name, &payload).await.unwrap() };
        worker.runtime.as_ref().unwrap().spawn(sent).await.unwrap()
    }

    /// Waits until the saga has this status.
    pub(crate) async fn reaches(&self, worker: &Worker, saga: SagaId, status: Status) -> Standing {
        let standing = worker
            .engine
            .wait_for(saga, PATIENCE, |standing| standing.status == status)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(standing.status, status, "{:?}", self.journal(saga).await);
        standing
    }

    /// What a takeover by another worker does to the row, without a word to the one that drives the saga.
    pub(crate) async fn take_away(&self, saga: SagaId) {
        sqlx::query("UPDATE saga.instances SET owner = 4711, epoch = epoch + 1 WHERE id = $1")
            .bind(saga.0)
            .execute(&self.pool)
            .await
            .unwrap();
        sqlx::query(
            "INSERT INTO saga.workers VALUES (4711, 'b', clock_timestamp() + interval '1 hour', '{}')",
        )
        .execute(&self.pool)
        .await
        .unwrap();
    }

    /// Names of the saga's events, in order.
    pub(crate) async fn journal(&self, saga: SagaId) -> Vec<String> {
        sqlx::query_scalar("SELECT event->>'event' FROM saga.event_list WHERE saga_id = $1 ORDER BY seq")
            .bind(saga.0)
            .fetch_all(&self.pool)
            .await
            .unwrap()
    }
}

/// The start of a shop saga.
fn basket(saga: SagaId, patience: Option<Duration>) -> Start<String> {
    Start {
        saga,
        input: "basket".to_owned(),
        patience,
        attributes: BTreeMap::new(),
        traceparent: None,
        priority: Priority::Ordinary,
    }
}

/// A line to a server. Once silent, what is connected hears nothing any more, though nothing is closed; new connections are
/// as good as ever.
#[derive(Default)]
pub(crate) struct Line {
    silent: Arc<Mutex<Vec<CancellationToken>>>,
}

impl Line {
    async fn open(&self, server: String) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = Arc::clone(&self.silent);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = TcpStream::connect(&server).await.unwrap();
                let silence = CancellationToken::new();
                silent.lock().unwrap().push(silence.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        () = silence.cancelled() => std::future::pending().await,
                    }
                });
            }
        });
        port
    }

    pub(crate) fn go_silent(&self) {
        self.silent.lock().unwrap().drain(..).for_each(|silence| silence.cancel());
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
