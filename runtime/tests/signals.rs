//! Signals: SIGTERM is caught and cancels the token.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{process::Command, time::Duration};

#[tokio::test]
async fn sigterm_asks_the_process_to_stop() {
    let token = runtime::shutdown::on_signal();
    assert!(!token.is_cancelled());
    let sent = Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status().unwrap();
    assert!(sent.success());
    tokio::time::timeout(Duration::from_secs(5), token.cancelled()).await.expect("the token is cancelled");
}
