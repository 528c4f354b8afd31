//! What operators do and see: finding sagas, explaining one, giving it an order, pausing many. Orders reach a saga as
//! durable signals, so that only its owner ever writes its journal. What may be ordered when is judged in `operate.rs`.
//!
//! Nothing here is bound to be quick: run it in a task of its own, and not in a caller's that may be dropped.

use sqlx::PgPool;

use crate::{
    engine::Engine,
    id::{SagaId, Seq},
    journal::{JournalError, postgres::operations as journal},
    operate::{Pause, Scope},
};

mod explained;
mod found;
mod orders;
mod pauses;

pub use self::{
    found::{Explained, Filter, Found, JournalEntry, Page, Saga, Told},
    orders::{OperateError, Operated, Outcome},
    pauses::Many,
};

/// What operators may do, over the journal of an engine.
#[derive(Clone)]
pub struct Operations {
    pool: PgPool,
    engine: Engine,
}

impl Operations {
    /// `pool` leads to the database that `engine` was opened on.
    pub fn new(pool: PgPool, engine: Engine) -> Self {
        Self { pool, engine }
    }

    /// Searches living and finished sagas. Given up after a few seconds: a rare attribute among millions is not indexed.
    pub async fn list(&self, filter: &Filter, page: Page) -> Result<Found, JournalError> {
        journal::list(&self.pool, filter, page).await
    }

    /// One saga with its events after this seq, at most 1,000. `None`: there is no such saga.
    pub async fn get(&self, saga: SagaId, after: Seq) -> Result<Option<Told>, JournalError> {
        let found = journal::entries(&self.pool, saga, after).await?;
        Ok(found.map(|(saga, entries)| Told { saga, entries }))
    }

    /// All that is paused besides single sagas. The clock is among it while this process doubts it.
    pub async fn pauses(&self) -> Result<Vec<Pause>, JournalError> {
        Ok(self.with_doubt(journal::pauses(&self.pool).await?))
    }

    fn with_doubt(&self, mut pauses: Vec<Pause>) -> Vec<Pause> {
        pauses.extend(self.engine.shared.clock.doubt().map(|doubt| Pause {
            scope: Scope::Clock,
            actor: "engine".into(),
            reason: format!("the database's clock jumped by {} ms", doubt.jump.num_milliseconds()),
            since: doubt.since,
        }));
        pauses
    }
}
