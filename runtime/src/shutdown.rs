//! How a process is asked to stop: SIGTERM or SIGINT, once kindly, twice at once.
//!
//! Absent: what stopping means. Whoever holds the token decides that.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that SIGTERM or SIGINT cancels. A second signal ends the process at once, with the exit code a shell would
/// give it (128 + the signal's number).
///
/// The signals are caught from the moment this returns.
///
/// # Panics
/// When called outside a tokio runtime, or when the process cannot catch signals at all.
pub fn on_signal() -> CancellationToken {
    let mut terminate = caught(SignalKind::terminate());
    let mut interrupt = caught(SignalKind::interrupt());
    let token = CancellationToken::new();
    let asked = token.clone();
    tokio::spawn(async move {
        let first = next(&mut terminate, &mut interrupt).await;
        tracing::info!(signal = first.as_raw_value(), "asked to stop");
        asked.cancel();
        let second = next(&mut terminate, &mut interrupt).await;
        tracing::warn!(signal = second.as_raw_value(), "asked again, leaving at once");
        std::process::exit(128 + second.as_raw_value());
    });
    token
}

fn caught(kind: SignalKind) -> Signal {
    signal(kind).expect("a process can catch SIGTERM and SIGINT")
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> SignalKind {
    tokio::select! {
        _ = terminate.recv() => SignalKind::terminate(),
        _ = interrupt.recv() => SignalKind::interrupt(),
    }
}
