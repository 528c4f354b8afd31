//! The process: configuration, telemetry, a listener, and [`inventory_svc::serve`].

use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use inventory_svc::config::Config;
use tokio::net::TcpListener;

/// How long spans may take to leave at the end.
const TELEMETRY_PATIENCE: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    if config.print_config {
        use std::io::Write as _;
        writeln!(std::io::stdout(), "{config:#?}")?;
        return Ok(());
    }
    let telemetry = runtime::telemetry::init("inventory-svc", &config.telemetry)?;
    let shutdown = runtime::shutdown::on_signal();
    let listener = TcpListener::bind(config.listen.listen).await.context("cannot listen")?;
    let served = inventory_svc::serve(config, listener, shutdown).await;
    if let Err(error) = &served {
        tracing::error!(%error, "inventory-svc ends");
    }
    telemetry.shutdown(TELEMETRY_PATIENCE).await;
    Ok(served?)
}
