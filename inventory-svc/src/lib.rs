//! inventory-svc: how many units of a SKU can be sold, who holds some of them, and for how long.
//!
//! A gate (Redis, [`stock`]) decides by scripts, a ledger (Postgres, [`ledger`]) remembers, and no answer leaves before
//! the ledger has what it tells ([`standing`]). The [`appender`] carries movements from one to the other, the [`guard`]
//! opens the gate at start and rebuilds it from the ledger whenever it is in doubt, [`expiry`] gives back what nobody
//! came back for. Absent: orders, payments and sagas.

pub mod appender;
pub mod clock;
pub mod config;
pub mod expiry;
pub mod grouped;
pub mod grpc;
pub mod guard;
pub mod inventory;
pub mod keys;
pub mod ledger;
pub mod movement;
pub mod partition;
pub mod reservation;
pub mod sku;
pub mod standing;
pub mod stock;
pub mod wire;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    appender::Appender,
    clock::Clock,
    config::Config,
    expiry::Expiry,
    grpc::Api,
    guard::Guard,
    inventory::Inventory,
    ledger::{Ledger, LedgerError},
    partition::PartitionId,
    standing::Standing,
    stock::{Gate, GateError, Limits},
};

/// Why the service could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The gate's address is wrong.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The server cannot run.
    #[error(transparent)]
    Server(#[from] runtime::server::ServeError),
}

/// Serves until `shutdown`, then drains. Needs the ledger's database to start; Redis may come later.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let partition = PartitionId::FIRST;
    let outcome_ttl = config.stock.outcome_ttl();
    let limits = Limits { outcome_ttl, backlog_entries: config.stock.backlog_entries };
    let gate = Gate::new(config.redis_url.expose(), partition, limits)?;
    let ledger = Ledger::open(config.database_url.expose(), partition).await?;
    let clock = Arc::new(Clock::measure(&ledger).await?);
    let standing = Arc::new(Standing::new());
    let redis_answers = Arc::new(AtomicBool::new(true));

    // These outlive the server: calls that are being drained still need the ledger to move on.
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let (appender_gate, appender_ledger) = (gate.clone(), ledger.clone());
    let appender = Appender {
        gate: appender_gate,
        ledger: appender_ledger,
        standing: standing.clone(),
        clock: clock.clone(),
    };
    tasks.spawn(appender.run(stop.clone()));
    let process = format!("{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
    let guard = Guard {
        gate: gate.clone(),
        ledger: ledger.clone(),
        standing: standing.clone(),
        process,
        clock: clock.clone(),
        outcome_ttl,
    };
    tasks.spawn(guard.run(stop.clone()));
    let expiry = Expiry {
        gate: gate.clone(),
        standing: standing.clone(),
        clock: clock.clone(),
        redis_answers: redis_answers.clone(),
    };
    tasks.spawn(expiry.run(stop.clone()));
    let (told_clock, told_ledger, told_stop) = (clock.clone(), ledger.clone(), stop.clone());
    tasks.spawn(async move { told_clock.follow(&told_ledger, told_stop).await });

    let api = Api::new(Arc::new(Inventory::new(
        gate,
        ledger.clone(),
        standing.clone(),
        clock.clone(),
        outcome_ttl,
    )));
    let ready = move || {
        let ready = standing.open().is_ok() && clock.answers() && redis_answers.load(Ordering::Relaxed);
        std::future::ready(ready)
    };
    let served = runtime::server::Server::new(listener)
        .service(api.reservations())
        .service(api.stock())
        .reflection(proto::DESCRIPTOR_SET)
        .readiness(ready)
        .drain(config.listen.drain())
        .serve(shutdown)
        .await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    ledger.close().await;
    Ok(served?)
}
