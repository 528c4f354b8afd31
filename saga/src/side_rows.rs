//! The seam through which a caller's own rows ride in the transaction that records a saga's change.

use futures::future::BoxFuture;
use sqlx::PgConnection;

use crate::{event::Event, id::SagaId, state::State};

/// What was recorded of one saga in the transaction under way.
#[derive(Debug)]
pub struct Change<'a> {
    /// The saga.
    pub saga: SagaId,
    /// Where it stands with the events taken in.
    pub state: &'a State,
    /// What was recorded, in order.
    pub events: &'a [Event],
}

/// Writes the caller's rows for changes of sagas: an order's status beside its saga's journal.
pub trait SideRows: Send + Sync + 'static {
    /// Called inside the transaction that appends `changes`, after the append has won its compare-and-set. An error
    /// undoes the whole transaction, and it is tried again: it must depend on nothing but `changes` and the rows.
    fn write<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        changes: &'c [Change<'c>],
    ) -> BoxFuture<'c, Result<(), sqlx::Error>>;
}
