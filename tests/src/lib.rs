//! The end-to-end harness: real binaries, real stores, an OTLP sink, the invariant checker and the day replay.
//!
//! Everything here sees Holdfast from outside: the public gRPC API, the stores read-only, and the spans that the
//! services export. Absent on purpose: any type of a service crate, mocks, and test doubles of a store.

pub mod clients;
pub mod deadline;
pub mod invariants;
pub mod links;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod python;
pub mod reasons;
pub mod redis;
pub mod replay;
pub mod requests;
pub mod seed;
pub mod service;
pub mod sink;
pub mod stack;
pub mod stores;
pub mod wall_clock;
