//! How a Holdfast process starts, listens, is observed, drains and stops.
//!
//! Every service is built from the same parts: configuration groups ([`config`]), logs and traces ([`telemetry`]),
//! a signal that asks it to stop ([`shutdown`]), a gRPC server that reports its health and drains ([`server`]), a
//! client to its peers ([`client`]), the patience of the call in hand ([`deadline`]), work that outlives its caller
//! ([`detached()`]) and rich errors ([`status`]).
//!
//! Absent on purpose: domain types, SQL, Redis, and retries. The one retry loop of the workspace is the saga engine.

mod call;
pub mod client;
pub mod config;
pub mod deadline;
mod detached;
mod rpc_span;
pub mod server;
pub mod shutdown;
pub mod status;
pub mod telemetry;

pub use detached::detached;
