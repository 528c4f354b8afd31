//! Configuration groups that every service flattens into its own clap arguments. Flags and environment are equal;
//! a flag wins.
//!
//! Absent: what belongs to one service only, and reading configuration files.

mod secret;

pub use secret::{Secret, SecretError};

use std::{net::SocketAddr, time::Duration};

/// Where a service listens and how long it may take to stop.
#[derive(Clone, Debug, clap::Args)]
pub struct ListenArgs {
    /// Address to listen on. Port 0 takes a free one.
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// How long running calls may take to finish when the service stops, in milliseconds.
    #[arg(long, env = "HOLDFAST_DRAIN_MS", default_value_t = 5_000)]
    pub drain_ms: u64,
}

impl ListenArgs {
    /// How long running calls may take to finish when the service stops.
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

/// What a service tells about itself, and to whom.
#[derive(Clone, Debug, clap::Args)]
pub struct TelemetryArgs {
    /// OTLP collector (gRPC), such as `http://127.0.0.1:4317`. Without one no span is exported; trace ids still exist.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// The share of new traces that is recorded, 0 to 1. A trace begun elsewhere keeps the decision taken there.
    #[arg(long, env = "HOLDFAST_TRACE_RATIO", default_value_t = 1.0, value_parser = ratio)]
    pub trace_ratio: f64,
    /// Which events are logged, as `tracing` filter directives: `info`, `warn,order_svc=debug`.
    #[arg(long, env = "HOLDFAST_LOG", default_value = "info")]
    pub log: String,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&ratio) { Ok(ratio) } else { Err("a ratio lies between 0 and 1".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Service {
        #[command(flatten)]
        listen: ListenArgs,
        #[command(flatten)]
        telemetry: TelemetryArgs,
    }

    #[test]
    fn defaults_need_no_environment() {
        let service = Service::parse_from(["service"]);
        assert_eq!(service.listen.listen, "127.0.0.1:0".parse().unwrap());
        assert_eq!(service.listen.drain(), Duration::from_secs(5));
        assert_eq!(service.telemetry.log, "info");
        assert!((service.telemetry.trace_ratio - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_ratio_outside_its_range_is_refused() {
        for ratio in ["1.1", "-0.1", "NaN", "all"] {
            assert!(
                Service::try_parse_from(["service", &format!("--trace-ratio={ratio}")]).is_err(),
                "{ratio}"
            );
        }
        assert!(Service::try_parse_from(["service", "--trace-ratio=0.01"]).is_ok());
    }
}
