//! payment-svc: the port to payment providers. It knows payments and scopes, and nothing of orders but whom to tell.
//!
//! `payment` is the pure core; `charge`, `ask`, `settle`, `cancel_scope`, `give_back` and `refund` are the use cases;
//! `store` is the book, `provider` the port; `report`, `sweep` and `feed` run in the background; `grpc` and `wire`
//! are the face. Absent: retries, apart from the relay's repeated delivery and the sweep's repeated question.

mod ask;
mod cancel_scope;
mod charge;
mod config;
mod feed;
mod give_back;
mod grpc;
mod ids;
mod money;
mod payment;
mod payments;
mod provider;
mod record;
mod refund;
mod report;
mod settle;
mod store;
mod sweep;
mod trace;
mod wire;

pub use config::Config;

use crate::{
    grpc::Grpc,
    payments::Payments,
    provider::{client::ProviderClient, simulator::Simulator},
    report::Relay,
    store::Store,
};
use proto::payment::v1::payment_service_server::PaymentServiceServer;
use std::{sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long the database may take to come up.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
const CONNECT_EVERY: Duration = Duration::from_millis(250);
/// How long the background work may take to finish what it has begun; a report takes two seconds at most.
const BACKGROUND_STOP_LIMIT: Duration = Duration::from_secs(3);

/// Why the service could not run, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The database did not come up in time, or its schema cannot be brought up to date.
    #[error("the database cannot be used")]
    Database(#[from] sqlx::Error),
    /// The address of the order service cannot be used.
    #[error("the order service cannot be reached")]
    Orders(#[from] runtime::client::ConnectError),
    /// The server failed.
    #[error(transparent)]
    Server(#[from] runtime::server::ServeError),
    /// Background work ended by itself, which only a fault in it can bring about.
    #[error("background work ended")]
    Background,
}

/// Runs the service on `listener` until `shutdown`.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    tokio::select! {
        migrated = migrate(config.database_url.expose()) => migrated?,
        () = shutdown.cancelled() => return Ok(()),
    }
    let connections = config.database_connections;
    let pool = store::connect(config.database_url.expose(), "payment-svc", connections)?;
    let providers_pool = store::connect(config.database_url.expose(), "payment-simulator", connections / 2)?;

    // The sweep looks after a charge's own call has surely ended.
    let store = Store::new(pool.clone(), config.provider_timeout() + Duration::from_secs(1));
    let simulator = Simulator::new(providers_pool.clone(), config.provider_timeout());
    let provider = ProviderClient::new(Arc::new(simulator.clone()), config.provider_timeout());
    let payments = Payments::new(store.clone(), provider);
    let relay = Relay::new(payments.clone(), runtime::client::connect(&config.order_url)?);

    let stop = CancellationToken::new();
    let mut background = JoinSet::new();
    background.spawn(relay.run(stop.clone()));
    background.spawn(sweep::run(payments.clone(), stop.clone()));
    background.spawn(feed::run(simulator, payments.clone(), stop.clone()));

    let server = runtime::server::Server::new(listener)
        .service(PaymentServiceServer::new(Grpc::new(payments)))
        .reflection(proto::DESCRIPTOR_SET)
        .readiness(move || {
            let store = store.clone();
            async move { store.ping().await }
        })
        .drain(config.listen.drain());
    let outcome = tokio::select! {
        ended = server.serve(shutdown) => ended.map_err(ServeError::from),
        Some(_) = background.join_next() => Err(ServeError::Background),
    };
    stop.cancel();
    if timeout(BACKGROUND_STOP_LIMIT, background.join_all()).await.is_err() {
        tracing::warn!("background work did not end in time");
    }
    pool.close().await;
    providers_pool.close().await;
    outcome
}

/// Migrates as soon as the database answers.
async fn migrate(database_url: &str) -> Result<(), sqlx::Error> {
    let give_up_at = Instant::now() + CONNECT_WITHIN;
    loop {
        match store::migrate(database_url).await {
            Err(error @ (sqlx::Error::Io(_) | sqlx::Error::Database(_))) if Instant::now() < give_up_at => {
                tracing::info!(%error, "waiting for the database");
                sleep(CONNECT_EVERY).await;
            }
            ended => return ended,
        }
    }
}
