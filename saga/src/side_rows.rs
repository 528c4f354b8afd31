//! The seam through which a caller's own rows ride in the transactions that record a saga's beginning and changes.

use std::{any::Any, sync::Arc};

use futures::future::BoxFuture;
use sqlx::PgConnection;

use crate::{event::Event, id::SagaId, state::State};

/// A saga that is about to begin, with the caller's row for it.
#[derive(Debug)]
pub struct Beginning<'a, R> {
    /// The saga.
    pub saga: SagaId,
    /// The caller's row.
    pub row: &'a R,
}

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

/// Writes the caller's rows beside its sagas: an order with its saga's start, its status with its saga's changes.
///
/// Both are called inside the transaction of a flush, with everything the flush has of this definition. An error undoes
/// the whole transaction, and it is tried again: they must depend on nothing but what they are given and the rows, and
/// keep no error to themselves.
pub trait SideRows: Send + Sync + 'static {
    /// What a caller hands to `Engine::start_with`.
    type Row: Send + Sync + 'static;

    /// Writes the rows of sagas that begin, one answer each: `false` means that this one must not begin, because its
    /// row is there already.
    fn begin<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        beginnings: &'c [Beginning<'c, Self::Row>],
    ) -> BoxFuture<'c, Result<Vec<bool>, sqlx::Error>>;

    /// Writes the rows of sagas that changed, after their appends won their compare-and-set.
    fn change<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        changes: &'c [Change<'c>],
    ) -> BoxFuture<'c, Result<(), sqlx::Error>>;
}

/// [`SideRows`] without its type, as the journal calls it.
pub(crate) trait ErasedSideRows: Send + Sync {
    fn begin<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        beginnings: Vec<(SagaId, &'c (dyn Any + Send + Sync))>,
    ) -> BoxFuture<'c, Result<Vec<bool>, sqlx::Error>>;

    fn change<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        changes: &'c [Change<'c>],
    ) -> BoxFuture<'c, Result<(), sqlx::Error>>;

    /// Whether this is a row that `begin` takes.
    fn takes(&self, row: &(dyn Any + Send + Sync)) -> bool;
}

impl<S: SideRows> ErasedSideRows for S {
    fn begin<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        beginnings: Vec<(SagaId, &'c (dyn Any + Send + Sync))>,
    ) -> BoxFuture<'c, Result<Vec<bool>, sqlx::Error>> {
        Box::pin(async move {
            let typed: Vec<_> = beginnings
                .into_iter()
                .map(|(saga, row)| Beginning {
                    saga,
                    row: row
                        .downcast_ref::<S::Row>()
                        .expect("the engine takes only rows of the definition's type"),
                })
                .collect();
            SideRows::begin(self, connection, &typed).await
        })
    }

    fn change<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        changes: &'c [Change<'c>],
    ) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        SideRows::change(self, connection, changes)
    }

    fn takes(&self, row: &(dyn Any + Send + Sync)) -> bool {
        row.is::<S::Row>()
    }
}

/// The row of a saga that has none.
pub(crate) fn no_row() -> Arc<dyn Any + Send + Sync> {
    Arc::new(())
}
