//! A collector that accepts and never answers: spans cost no more, and the exit is not held up.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test may fail where it stands")]

use runtime::{config::TelemetryArgs, telemetry};
use std::time::{Duration, Instant};

#[test]
fn a_hanging_collector_slows_nothing() {
    let began = Instant::now();
    // As in a process: the runtime itself is dropped at the end, which waits for blocking work.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let args = TelemetryArgs { otlp_endpoint: Some(endpoint), trace_ratio: 1.0, log: "info".to_owned() };
        let process = telemetry::init("probe-svc", &args).unwrap();

        // More than the queue holds, while the exporter waits for its first answer.
        let working = Instant::now();
        for order in 0..40_000 {
            tracing::info_span!("work", order.id = order).in_scope(|| ());
        }
        let worked = working.elapsed();
        assert!(worked < Duration::from_secs(5), "{worked:?} for 40,000 spans");

        let leaving = Instant::now();
        process.shutdown(Duration::from_millis(500)).await;
        let left = leaving.elapsed();
        assert!(left < Duration::from_millis(1_500), "{left:?}");
    });
    drop(runtime);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
