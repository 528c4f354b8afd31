//! The rows of refunds, written under the lock of their payment.

use super::{StoreError, Tx, row, sql};
use crate::{
    ids::{PaymentId, RefundKey},
    money::MinorUnits,
    record::Fingerprint,
};
use sqlx::{Row, postgres::PgRow};

/// What became of a refund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RefundState {
    /// The amount is promised; whether the provider executed it is open.
    Pending,
    /// The money went back.
    Done,
    /// More was asked for than was left. Kept, so that a repeat gets the same answer.
    Refused,
    /// The provider will never execute it.
    Failed,
}

impl RefundState {
    const ALL: [(RefundState, &'static str); 4] = [
        (RefundState::Pending, "PENDING"),
        (RefundState::Done, "DONE"),
        (RefundState::Refused, "REFUSED"),
        (RefundState::Failed, "FAILED"),
    ];

    fn text(&self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| state == self).map_or("", |(_, text)| text)
    }
}

/// A refund.
#[derive(Clone, Debug)]
pub(crate) struct Refund {
    /// Its name.
    pub key: RefundKey,
    /// Of which payment.
    pub payment_id: PaymentId,
    /// What its request meant.
    pub fingerprint: Fingerprint,
    /// How much.
    pub amount: MinorUnits,
    /// What became of it.
    pub state: RefundState,
    /// Why not, if not.
    pub refusal: String,
}

impl Tx {
    /// Reads a refund.
    pub(crate) async fn refund(&mut self, key: &RefundKey) -> Result<Option<Refund>, StoreError> {
        let found = sqlx::query(sql::FIND_REFUND).bind(key.as_str()).fetch_optional(&mut *self.tx).await?;
        found.as_ref().map(refund).transpose()
    }

    /// The open refund of a locked payment that is next to be finished.
    pub(crate) async fn pending_refund(
        &mut self,
        payment_id: &PaymentId,
    ) -> Result<Option<Refund>, StoreError> {
        let found =
            sqlx::query(sql::PENDING_REFUND).bind(payment_id.as_str()).fetch_optional(&mut *self.tx).await?;
        found.as_ref().map(refund).transpose()
    }

    /// Writes a new refund down. `false`: the key is taken, by a refund of another payment.
    pub(crate) async fn insert_refund(&mut self, new: &Refund) -> Result<bool, StoreError> {
        let done = sqlx::query(sql::INSERT_REFUND)
            .bind(new.key.as_str())
            .bind(new.payment_id.as_str())
            .bind(new.fingerprint.0.as_slice())
            .bind(new.amount.get())
            .bind(new.state.text())
            .bind(&new.refusal)
            .execute(&mut *self.tx)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Ends an open refund. `false`: it ended before.
    pub(crate) async fn end_refund(
        &mut self,
        key: &RefundKey,
        state: &RefundState,
        refusal: &str,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query(sql::END_REFUND)
            .bind(key.as_str())
            .bind(state.text())
            .bind(refusal)
            .execute(&mut *self.tx)
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

fn refund(found: &PgRow) -> Result<Refund, StoreError> {
    let state: String = found.try_get("state")?;
    let known = RefundState::ALL.into_iter().find(|(_, text)| *text == state);
    let (state, _) = known.ok_or(StoreError::Unreadable("payment.refunds"))?;
    Ok(Refund {
        key: RefundKey::stored(found.try_get("refund_key")?),
        payment_id: PaymentId::stored(found.try_get("payment_id")?),
        fingerprint: row::fingerprint(found)?,
        amount: row::units(found, "amount")?,
        state,
        refusal: found.try_get("refusal")?,
    })
}
