//! A durable saga engine: several steps in several services, all done or all undone, whatever dies in between.
//!
//! A *saga* is a list of [`Step`]s. Each answers [`Outcome::Done`], [`Outcome::Pending`], [`Outcome::Retry`] or
//! [`Outcome::Abort`]; what it answered is an event in a journal in Postgres. When a participant refuses, the
//! deadline passes or somebody cancels, the saga *turns*: every step that may have run is undone. After the *pivot*
//! it only goes forward.
//!
//! Steps run at least once; their effects must happen once. So every effect is named by the caller
//! (`<saga>.<step>.<round>`), and a participant that is asked twice answers what it answered before.
//!
//! - [`Definition`] says what a kind of saga consists of; [`Step`] is one step and its undo.
//! - [`Engine::start`] starts a saga, [`Engine::start_in`] in the caller's own transaction; [`Engine::signal`] tells it
//!   something.
//! - [`State`] is a fold over [`Event`]s and [`decide`](decide::decide) says what comes next: both are pure, used
//!   alike when running and when recovering.
//! - Ownership: a worker holds one lease; each saga has an owner and an [`Epoch`]. Every append names owner, epoch
//!   and seq, so a worker that lost a saga cannot write, however late it wakes.
//!
//! Absent on purpose: knowledge of what the steps do, of gRPC, and of the environment. It prints nothing.

pub mod admission;
pub mod breaker;
mod claim;
mod clock;
mod context;
pub mod decide;
mod definition;
mod dice;
mod drive;
mod engine;
mod event;
mod id;
mod journal;
pub mod operate;
pub mod operations;
mod retry;
mod side_rows;
mod signals;
mod spawn;
pub mod state;
mod tail;
#[cfg(feature = "testing")]
pub mod testing;
mod timer;
mod tokens;
mod trace;
mod watch;
mod writer;

pub use self::{
    admission::Priority,
    context::{Context, Unreadable},
    decide::{AtDeadline, DeadlineView},
    definition::{Builder, Definition, Outcome, Step, Undo},
    engine::{
        Begun, CANCEL, ConfigError, Engine, EngineConfig, OpenError, Schedule, Start, StartError, Started, Stopped,
    },
    event::{Cause, Event, Progress, Verb},
    id::{Epoch, SagaId, Seq},
    journal::{JournalError, Standing, Status, postgres::migrate},
    operations::Operations,
    retry::Retry,
    side_rows::{Beginning, Change, SideRows},
    state::State,
    trace::traceparent_of,
};
