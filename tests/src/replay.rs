//! The replay of a real day (or year) of a shop through the public API, and the reckoning afterwards.
//!
//! `untidy` reads the shop's file, `stock_plan` and `payment_plan` decide what it meets, `run` sends it, `identities`
//! holds the stores to what was sent, `report` says it. Absent: any knowledge of how the services work inside.

pub mod call;
pub mod identities;
pub mod journal;
pub mod payment_plan;
pub mod price;
pub mod report;
pub mod run;
pub mod stock_plan;
pub mod stock_watch;
pub mod stocking;
pub mod untidy;

pub use run::{Replay, replay};
