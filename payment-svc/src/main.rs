//! The payment-svc process.

use anyhow::Context;
use clap::Parser;
use payment_svc::Config;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long the last spans may take to leave.
const TELEMETRY_FLUSH_LIMIT: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    if config.print_config {
        #[allow(clippy::print_stdout)] // what was asked for
        {
            println!("{config:#?}");
        }
        return Ok(());
    }
    let telemetry = runtime::telemetry::init("payment-svc", &config.telemetry)?;
    let shutdown = runtime::shutdown::on_signal();
    let listener = TcpListener::bind(config.listen.listen).await.context("cannot listen")?;
    let served = payment_svc::serve(config, listener, shutdown).await;
    if let Err(error) = &served {
        tracing::error!(%error, source = ?std::error::Error::source(error), "the service failed");
    }
    telemetry.shutdown(TELEMETRY_FLUSH_LIMIT).await;
    Ok(served?)
}
