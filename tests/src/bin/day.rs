//! Replays a real day (or year) of a shop through the public API of a running Holdfast and says whether everything
//! adds up afterwards. Exit code 0 only if it does. The work is in `harness::replay`.
#![expect(clippy::print_stdout, reason = "the report is the product of this program")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use harness::clients::Clients;
use harness::replay::stock_plan::Shortage;
use harness::replay::{Replay, replay, report};
use tokio::sync::watch;

const DAY: &str = "data/online-retail-2011-12-05.csv";
const YEAR: &str = "data/online-retail.csv.gz";

/// Replays a shop's invoices as orders and holds the stores to what was sent.
#[derive(Debug, Parser)]
#[command(name = "day", version)]
struct Arguments {
    /// Address of order-svc.
    #[arg(long, env = "ORDERS_URL", value_name = "URL")]
    orders_url: String,
    /// Address of inventory-svc.
    #[arg(long, env = "INVENTORY_URL", value_name = "URL")]
    inventory_url: String,
    /// Address of payment-svc.
    #[arg(long, env = "PAYMENT_URL", value_name = "URL")]
    payment_url: String,
    /// The invoices, CSV or CSV.gz. Default: the day, or the year with --year, below data/.
    #[arg(long, env = "HOLDFAST_DAY_FILE", value_name = "PATH")]
    file: Option<PathBuf>,
    /// The year instead of the day: its file, and its rule for which SKUs are short.
    #[arg(long, env = "HOLDFAST_DAY_YEAR")]
    year: bool,
    /// Calls in flight at a time.
    #[arg(long, env = "HOLDFAST_DAY_IN_FLIGHT", value_name = "CALLS", default_value_t = 64)]
    in_flight: usize,
    /// The orders database, to hold the journal against the orders.
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Address of Jaeger's pages, for links to traces.
    #[arg(long, env = "JAEGER_URL", value_name = "URL")]
    jaeger_url: Option<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let clients = Clients::connect(&arguments.orders_url, &arguments.inventory_url, &arguments.payment_url)?;
    let plan = Replay {
        file: arguments.file.unwrap_or_else(|| PathBuf::from(if arguments.year { YEAR } else { DAY })),
        shortage: if arguments.year { Shortage::Year } else { Shortage::Day },
        in_flight: arguments.in_flight,
        // A run of its own each time: the same invoices are new orders then.
        run_id: format!("day-{}", uuid::Uuid::now_v7().simple()),
        database_url: arguments.database_url,
    };
    let (answered, _) = watch::channel(0);
    let day = replay(&clients, &plan, &answered).await?;
    print!("{}", report::render(&day, arguments.jaeger_url.as_deref()));
    Ok(if day.reckoning.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
