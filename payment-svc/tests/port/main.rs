//! payment-svc against a real Postgres, through its gRPC API, in process.
//!
//! `TEST_DATABASE_URL` names a database in which test databases may be created. Absent: crashes of the process and
//! the real order service, which the end-to-end suite brings.

#![allow(clippy::unwrap_used)] // a test may panic

mod bed;
mod cancel;
mod charge;
mod orders;
mod races;
mod refund;
mod reports;
