//! What order-svc is told by flags and environment.

use std::time::Duration;

use clap::Parser;
use runtime::config::{ListenArgs, Secret, TelemetryArgs};

/// Orders and their checkout sagas, over gRPC.
#[derive(Debug, Clone, Parser)]
#[command(name = "order-svc", version)]
pub struct Config {
    /// Where it listens.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// What it tells about itself.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
    /// How sagas are run.
    #[command(flatten)]
    pub saga: SagaArgs,
    /// Postgres with orders and sagas: `postgres://…`, or `@file`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Secret,
    /// Most connections to it.
    #[arg(long, env = "HOLDFAST_DATABASE_CONNECTIONS", default_value_t = 32)]
    pub database_connections: u32,
    /// inventory-svc: `http://host:port`.
    #[arg(long, env = "INVENTORY_URL")]
    pub inventory_url: String,
    /// payment-svc: `http://host:port`.
    #[arg(long, env = "PAYMENT_URL")]
    pub payment_url: String,
    /// How long an order waits for its payment if its request does not say, in milliseconds.
    #[arg(long, env = "HOLDFAST_EXPIRE_AFTER_MS", default_value_t = 1_800_000)]
    pub expire_after_ms: u64,
    /// What a payment in process at the deadline earns, once, in milliseconds.
    #[arg(long, env = "HOLDFAST_PAYMENT_GRACE_MS", default_value_t = 30_000)]
    pub payment_grace_ms: u64,
    /// How long holds outlive deadline and grace, in milliseconds: more than a lease and the slack of a takeover.
    #[arg(long, env = "HOLDFAST_HOLD_MARGIN_MS", default_value_t = 60_000)]
    pub hold_margin_ms: u64,
    /// Print the configuration, secrets left out, and exit.
    #[arg(long)]
    pub print_config: bool,
}

/// How sagas are run.
#[derive(Debug, Clone, clap::Args)]
pub struct SagaArgs {
    /// This worker's name: kept by a restarted process, never shared by two. Default: host name and listening port.
    #[arg(long = "worker", env = "HOLDFAST_WORKER")]
    pub worker: Option<String>,
    /// How long after its last heartbeat a worker's sagas may be taken over, in milliseconds.
    #[arg(long, env = "HOLDFAST_LEASE_MS", default_value_t = 5_000)]
    pub lease_ms: u64,
    /// How often everything that waits is looked at a second time, in milliseconds.
    #[arg(long, env = "HOLDFAST_AUDIT_MS", default_value_t = 300_000)]
    pub audit_ms: u64,
    /// How many days finished sagas are kept.
    #[arg(long, env = "HOLDFAST_RETAIN_DAYS", default_value_t = 30)]
    pub retain_days: u32,
    /// How often the lease is renewed, in milliseconds.
    #[arg(long, env = "HOLDFAST_HEARTBEAT_MS", default_value_t = 1_000)]
    pub heartbeat_ms: u64,
}

impl Config {
    /// What a payment in process at the deadline earns, once.
    pub fn payment_grace(&self) -> Duration {
        Duration::from_millis(self.payment_grace_ms)
    }

    /// How long holds outlive the deadline.
    pub fn hold_beyond_deadline(&self) -> Duration {
        Duration::from_millis(self.payment_grace_ms + self.hold_margin_ms)
    }
}
