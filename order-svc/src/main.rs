//! Starts order-svc.

use anyhow::Context as _;
use clap::Parser as _;
use order_svc::Config;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    if config.print_config {
        #[expect(clippy::print_stdout, reason = "printing is what was asked for")]
        {
            println!("{config:#?}");
        }
        return Ok(());
    }
    let telemetry = runtime::telemetry::init("order-svc", &config.telemetry)?;
    let shutdown = runtime::shutdown::on_signal();
    let listener =
        TcpListener::bind(config.listen.listen).await.context("the listening address cannot be used")?;
    let drain = config.listen.drain();
    let served = order_svc::serve(config, listener, shutdown).await;
    telemetry.shutdown(drain).await;
    Ok(served?)
}
