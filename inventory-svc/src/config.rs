//! What inventory-svc is told: flags or environment.

use std::time::Duration;

use runtime::config::{ListenArgs, Secret, TelemetryArgs};

/// Configuration of inventory-svc.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "inventory-svc", version, about = "Stock: a gate in Redis and a ledger in Postgres")]
pub struct Config {
    /// Where it listens.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// How it is observed.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
    /// The ledger's database; the schema `inventory` is created in it.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Secret,
    /// The gate: `redis://…` or `redis+unix:///path`. It must not evict (`noeviction`) and is best not shared.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Secret,
    /// Rules of stock.
    #[command(flatten)]
    pub stock: StockArgs,
    /// Print the configuration, secrets redacted, and exit.
    #[arg(long)]
    pub print_config: bool,
}

/// Rules of stock.
#[derive(Debug, Clone, clap::Args)]
pub struct StockArgs {
    /// How long Redis remembers the outcome of a call, in milliseconds. After that the ledger answers; a refused
    /// reservation, which the ledger does not know, is then forgotten.
    #[arg(long, env = "HOLDFAST_OUTCOME_TTL_MS", default_value_t = 24 * 60 * 60 * 1_000, value_parser = clap::value_parser!(u64).range(1_000..=2_592_000_000))]
    pub outcome_ttl_ms: u64,
    /// How many movements may wait for the ledger before stock refuses to decide more.
    #[arg(long, env = "HOLDFAST_BACKLOG_ENTRIES", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub backlog_entries: u64,
}

impl StockArgs {
    /// How long outcomes are remembered.
    pub fn outcome_ttl(&self) -> Duration {
        Duration::from_millis(self.outcome_ttl_ms)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn secrets_are_not_printed() {
        let config = Config::parse_from([
            "inventory-svc",
            "--database-url=postgres://holdfast:hunter2@db/inventory",
            "--redis-url=redis://:hunter2@cache",
        ]);
        assert!(!format!("{config:#?}").contains("hunter2"));
        assert_eq!(config.stock.outcome_ttl(), Duration::from_secs(86_400));
    }
}
