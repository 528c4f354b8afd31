//! inventory-svc over real stores: a redis-server of its own and a fresh database for every test.
//! Needs `TEST_DATABASE_URL`, an address that may create databases, and `redis-server` on the path.

// The crate is all tests; what they share is outside of functions marked as tests.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod appender;
mod calls;
mod heal;
mod matrix;
mod service;
mod speed;
mod stores;
