//! A whole process: what it writes to stderr, and how signals end it. The test runs itself as a child.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test may fail where it stands")]

use runtime::{config::TelemetryArgs, shutdown, telemetry};
use serde_json::{Map, Value};
use std::{
    io::{BufRead as _, BufReader, Lines},
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

/// Tells the child that it is one, and how it is to stop.
const STOPS: &str = "PROBE_STOPS";

/// The child, when it is started by the tests below. By itself it is no test.
#[tokio::test]
async fn child() {
    let Ok(stops) = std::env::var(STOPS) else { return };
    let args = TelemetryArgs { otlp_endpoint: None, trace_ratio: 1.0, log: "warn,process=info".to_owned() };
    let process = telemetry::init("probe-svc", &args).unwrap();
    let token = shutdown::on_signal();
    let span = tracing::info_span!("work", order.id = "o-1");
    span.in_scope(|| {
        tracing::warn!(target: "elsewhere", "told");
        tracing::info!(target: "elsewhere", "not told");
    });
    let failing = async {
        panic!("as asked");
    };
    assert!(tokio::spawn(tracing::Instrument::instrument(failing, span)).await.is_err());
    tracing::info!("up");
    token.cancelled().await;
    tracing::info!("stopping");
    if stops == "never" {
        std::future::pending::<()>().await;
    }
    process.shutdown(Duration::from_secs(1)).await;
}

struct Started {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Started {
    fn stopping(how: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(STOPS, how);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The lines up to the one with this message; every one must be JSON.
    fn until(&mut self, message: &str) -> Vec<Map<String, Value>> {
        let mut seen = Vec::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            let line: Map<String, Value> =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
            let last = line["message"] == message;
            seen.push(line);
            if last {
                return seen;
            }
        }
        panic!("the child ended without saying {message:?}: {seen:#?}");
    }

    fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn logs_are_json_lines_with_trace_and_ids_and_sigterm_ends_well() {
    let mut started = Started::stopping("when asked");
    let lines = started.until("up");
    let [told, panicked, up] = lines.as_slice() else { panic!("{lines:#?}") };
    for line in [told, panicked] {
        assert_eq!(line["service"], "probe-svc");
        assert_eq!(line["order.id"], "o-1", "the filter is about events; ids stay");
        assert_eq!(line["trace_id"].as_str().unwrap().len(), 32, "without a collector too");
    }
    assert_eq!((&told["message"], &told["level"]), (&"told".into(), &"WARN".into()));
    assert_eq!((&panicked["message"], &panicked["level"]), (&"panicked: as asked".into(), &"ERROR".into()));
    assert_eq!(told["trace_id"], panicked["trace_id"]);
    assert!(!up.contains_key("trace_id"));
    started.terminate();
    started.until("stopping");
    assert!(started.child.wait().unwrap().success());
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let mut started = Started::stopping("never");
    started.until("up");
    started.terminate();
    started.until("stopping");
    started.terminate();
    assert_eq!(started.child.wait().unwrap().code(), Some(128 + 15));
}
