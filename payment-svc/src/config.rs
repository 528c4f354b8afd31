//! What the service is told at its start.

use clap::Parser;
use runtime::config::{ListenArgs, Secret, TelemetryArgs};
use std::time::Duration;

/// The port to payment providers.
#[derive(Clone, Debug, Parser)]
#[command(name = "payment-svc", version)]
pub struct Config {
    /// Where it listens.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// What it tells about itself.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
    /// Postgres; its schemas payment and `payment_simulator` are created when missing. `@path` reads it from a file.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Secret,
    /// The order service, which is told what becomes of payments.
    #[arg(long, env = "ORDER_URL", default_value = "http://127.0.0.1:7001")]
    pub order_url: String,
    /// How long one call to the provider may take, in milliseconds, 1 to 60,000. After that its outcome is unknown.
    #[arg(long, env = "HOLDFAST_PROVIDER_TIMEOUT_MS", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub provider_timeout_ms: u64,
    /// Database connections at most; the simulated provider has half as many of its own.
    #[arg(long, env = "HOLDFAST_DATABASE_CONNECTIONS", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(2..=500))]
    pub database_connections: u32,
    /// Print the configuration, secrets redacted, and end.
    #[arg(long)]
    pub print_config: bool,
}

impl Config {
    /// How long one call to the provider may take.
    pub fn provider_timeout(&self) -> Duration {
        Duration::from_millis(self.provider_timeout_ms)
    }
}
