//! The runtime on real sockets: every test serves on a free port and calls it.
//!
//! Absent: what needs a process of its own (signals, the process-wide telemetry); see the files beside this folder.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test may fail where it stands")]

mod bare;
mod deadlines;
mod errors;
mod health;
mod probe;
mod stopping;
mod traces;
