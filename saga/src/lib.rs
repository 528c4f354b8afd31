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
//! - [`Engine::start_in`] starts a saga in the caller's own transaction; [`Engine::send`] signals to it.
//! - [`State`] is a fold over [`Event`]s and [`decide`](decide::decide) says what comes next: both are pure, used
//!   alike when running and when recovering.
//! - Ownership: a worker holds one lease; each saga has an owner and an [`Epoch`]. Every append names owner, epoch
//!   and seq, so a worker that lost a saga cannot write, however late it wakes.
//!
//! Absent on purpose: knowledge of what the steps do, of gRPC, and of the environment. It prints nothing.

pub mod breaker;
mod clock;
mod context;
pub mod decide;
mod definition;
mod drive;
mod engine;
mod event;
mod id;
mod journal;
mod retry;
mod side_rows;
pub mod state;
mod tokens;
mod trace;
mod watch;

pub use self::{
    context::Context,
    decide::{AtDeadline, DeadlineView},
    definition::{Builder, Definition, Outcome, Step, Undo},
    engine::{CANCEL, Engine, EngineConfig, Start, StartError, Started},
    event::{Cause, Event, Progress},
    id::{Epoch, SagaId, Seq},
    journal::{JournalError, Standing, Status, migrate},
    retry::Retry,
    side_rows::{Change, SideRows},
    state::State,
    trace::traceparent_of,
};
