//! A transaction on the book. Dropped without [`Tx::commit`] it changes nothing.

use super::{SCOPE_BATCH, StoreError, decline_reason, row, sql};
use crate::{
    ids::{PaymentId, Scope},
    payment::{Standing, Wish},
    provider::Fact,
    record::Payment,
};
use sqlx::{Postgres, Transaction};

/// A transaction on the book.
pub(crate) struct Tx {
    pub(super) tx: Transaction<'static, Postgres>,
    look_after_ms: i64,
}

impl Tx {
    pub(super) fn new(tx: Transaction<'static, Postgres>, look_after_ms: i64) -> Self {
        Self { tx, look_after_ms }
    }

    /// Makes it happen. After an error it may have happened: read again.
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        Ok(self.tx.commit().await?)
    }

    /// Ends it without effect. A dropped transaction is rolled back too, but only when its connection is next used.
    pub(crate) async fn rollback(self) -> Result<(), StoreError> {
        Ok(self.tx.rollback().await?)
    }

    /// Writes a scope's tombstone and locks its row. From the commit on, no charge of the scope is taken.
    pub(crate) async fn cancel_scope(&mut self, scope: &Scope) -> Result<(), StoreError> {
        sqlx::query(sql::CANCEL_SCOPE).bind(scope.as_str()).execute(&mut *self.tx).await?;
        Ok(())
    }

    /// Locks the payments of a scope of which nobody has asked to give back yet, at most [`SCOPE_BATCH`].
    pub(crate) async fn lock_uncancelled(
        &mut self,
        scope: &Scope,
        keep: Option<&PaymentId>,
    ) -> Result<Vec<Payment>, StoreError> {
        let rows = sqlx::query(sql::LOCK_UNCANCELLED)
            .bind(scope.as_str())
            .bind(SCOPE_BATCH)
            .bind(keep.map_or("", PaymentId::as_str))
            .fetch_all(&mut *self.tx)
            .await?;
        rows.iter().map(row::payment).collect()
    }

    /// Reads a payment and locks its row.
    pub(crate) async fn lock(&mut self, id: &PaymentId) -> Result<Option<Payment>, StoreError> {
        let row = sqlx::query(sql::LOCK).bind(id.as_str()).fetch_optional(&mut *self.tx).await?;
        row.as_ref().map(row::payment).transpose()
    }

    /// Moves a locked payment to `after`; with `fact`, what the provider said is kept too. What its owner must be
    /// told of the change goes into the outbox in the same statement.
    pub(crate) async fn save(
        &mut self,
        before: &Payment,
        after: &Standing,
        fact: Option<&Fact>,
    ) -> Result<Payment, StoreError> {
        let row = sqlx::query(sql::SAVE)
            .bind(before.payment_id.as_str())
            .bind(row::state_text(after.state))
            .bind(after.wish == Wish::GiveBack)
            .bind(after.captured.get())
            .bind(after.refunded.get())
            .bind(after.refund_pending.get())
            .bind(fact.map_or("", |fact| fact.reference.as_str()))
            .bind(fact.map_or("", |fact| decline_reason(&fact.verdict)))
            .bind(after.is_open())
            .bind(self.look_after_ms)
            .bind(before.standing.report(after).map(row::report_text))
            .bind(row::state_text(before.standing.state))
            .bind(before.standing.refunded.get())
            .bind(before.standing.refund_pending.get())
            .fetch_optional(&mut *self.tx)
            .await?;
        row::payment(&row.ok_or(StoreError::Unfenced)?)
    }
}
