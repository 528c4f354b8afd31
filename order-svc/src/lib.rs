//! order-svc: orders, the checkout saga that carries each, and the timeout compensator.
//!
//! It touches stock and money only through gRPC. Layers: `main → lib → grpc → wire → order`; use cases are verbs
//! (`place_order.rs`), sagas have a folder each (`checkout`), SQL is in `store`.

pub mod audit;
pub mod cancel_order;
pub mod checkout;
pub mod config;
pub mod grpc;
pub mod order;
pub mod peers;
pub mod place_order;
pub mod refund;
pub mod report_payment;
pub mod store;
pub mod watch_order;
pub mod wire;

use std::time::Duration;

use proto::orders::v1::{order_service_server::OrderServiceServer, saga_service_server::SagaServiceServer};
use runtime::{client::ConnectError, server::ServeError as ServerError};
use saga::{Engine, EngineConfig, JournalError, OpenError, Operations, Stopped};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;

pub use self::config::Config;
use self::{
    audit::Audit,
    grpc::{OrderApi, sagas::SagaApi},
    peers::Peers,
    store::{Store, StoreError},
};

/// order-svc could not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address of a peer cannot be used.
    #[error(transparent)]
    Peer(#[from] ConnectError),
    /// The database cannot be used.
    #[error("the database cannot be used")]
    Database(#[from] sqlx::Error),
    /// The order store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The saga journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The saga engine cannot be opened.
    #[error(transparent)]
    Engine(#[from] OpenError),
    /// The saga engine stopped by itself, so the service must not go on answering.
    #[error(transparent)]
    Stopped(Stopped),
    /// The server failed.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Serves until `shutdown`: then drains, and leaves unfinished sagas to whoever comes next.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let peers = Peers::connect(&config.inventory_url, &config.payment_url)?;
    let pool = connect(&config).await?;
    saga::migrate(&pool).await?;
    let store = Store::open(pool.clone()).await?;

    let definitions =
        [checkout::definition(&peers, &store, config.payment_grace()), refund::definition(&peers)];
    let engine = Engine::open(pool.clone(), engine_config(&config, &listener), definitions).await?;

    let audit = Audit::new(&store, &engine, &peers, &config);
    let auditing = tokio::spawn(async move { audit.run().await });

    let api = OrderApi {
        store: store.clone(),
        engine: engine.clone(),
        peers,
        expire_after_default: Duration::from_millis(config.expire_after_ms),
        hold_beyond_deadline: config.hold_beyond_deadline(),
        shutdown: shutdown.clone(),
    };
    let server = runtime::server::Server::new(listener)
        .service(OrderServiceServer::new(api))
        .service(SagaServiceServer::new(SagaApi { operations: Operations::new(pool, engine.clone()) }))
        .reflection(proto::DESCRIPTOR_SET)
        .readiness(move || {
            let store = store.clone();
            async move { store.answers().await }
        })
        .drain(config.listen.drain());
    // An engine that stopped by itself takes the service with it.
    let watched = {
        let (engine, shutdown) = (engine.clone(), shutdown.clone());
        tokio::spawn(async move {
            let why = engine.stopped().await;
            shutdown.cancel();
            why
        })
    };
    let outcome = server.serve(shutdown).await;
    auditing.abort();
    let stopped = engine.stop(config.listen.drain()).await;
    outcome?;
    stopped?;
    match watched.await {
        Ok(Stopped::Asked) | Err(_) => Ok(()),
        Ok(why) => Err(ServeError::Stopped(why)),
    }
}

fn engine_config(config: &Config, listener: &TcpListener) -> EngineConfig {
    let worker = config.saga.worker.clone().unwrap_or_else(|| worker_name(listener));
    EngineConfig {
        lease: Duration::from_millis(config.saga.lease_ms),
        heartbeat: Duration::from_millis(config.saga.heartbeat_ms),
        audit_every: Duration::from_millis(config.saga.audit_ms),
        retain_days: config.saga.retain_days,
        ..EngineConfig::named(worker)
    }
}

/// Host and port: a restarted process keeps them, and two containers that listen on 0.0.0.0 do not share them.
fn worker_name(listener: &TcpListener) -> String {
    let host = gethostname::gethostname();
    let port = listener.local_addr().map(|address| address.port()).unwrap_or_default();
    format!("{}:{port}", host.to_string_lossy())
}

/// Connects, and waits a while for a database that comes up after this service.
async fn connect(config: &Config) -> Result<PgPool, sqlx::Error> {
    let options: PgConnectOptions = config.database_url.expose().parse()?;
    let options = options.application_name("order-svc").options([
        // A killed client's locks must not outlive it for long, and nothing may hold a row for ever.
        ("client_connection_check_interval", "500ms"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "10s"),
        ("idle_in_transaction_session_timeout", "10s"),
    ]);
    let end = Instant::now() + CONNECT_PATIENCE;
    loop {
        let pool = PgPoolOptions::new()
            .max_connections(config.database_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A connection that died is found by its next statement, whose caller repeats; asking each time costs a
            // round trip per call.
            .test_before_acquire(false)
            .connect_with(options.clone())
            .await;
        match pool {
            Err(error) if Instant::now() < end => {
                tracing::warn!(%error, "the database does not answer yet");
                tokio::time::sleep(CONNECT_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// A database that recovers from a crash, or is started beside this service, is up by then.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Callers who wait longer for a connection are better told to ask again.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
