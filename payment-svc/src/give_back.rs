//! Bringing one payment of a cancelled scope to its end: no money kept, whatever became of the attempt.
//!
//! It may be run by several at once: each step is decided under the payment's lock, every call to the provider has
//! its own key, and each outcome is recorded once. Absent: deciding that a scope is cancelled.

use crate::{
    ids::{PaymentId, RefundKey},
    payment::Event,
    payments::Payments,
    provider::{Failure, RefundOrder, RefundVerdict, Verdict},
    record::{Fingerprint, Payment},
    store::{Refund, RefundState, StoreError, Tx},
};

/// A payment ends in at most: cancel, finish the callers' open refunds one by one, give the rest back. More turns
/// than this means many open refunds; the next call or the sweep goes on.
const TURNS_MAX: usize = 32;

/// Why the money is not back yet. In every case a repeat goes on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GiveBackError {
    /// The fate of an attempt or a refund is not known yet.
    #[error("the provider has not answered yet")]
    ProviderUnavailable,
    /// The provider refused to give the money back; this needs a person.
    #[error("the provider refused the refund: {0}")]
    Refused(String),
    /// The book failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Failure> for GiveBackError {
    fn from(_: Failure) -> Self {
        Self::ProviderUnavailable
    }
}

/// What has to be done next.
enum Turn {
    Cancel(Payment),
    Refund(Refund),
    Nothing(Payment),
}

impl Payments {
    /// Drives a payment of a cancelled scope until it keeps no money and nothing about it is open.
    pub(crate) async fn give_back(&self, id: &PaymentId) -> Result<Payment, GiveBackError> {
        for _ in 0..TURNS_MAX {
            match self.next_turn(id).await? {
                Turn::Nothing(payment) => return Ok(payment),
                Turn::Cancel(payment) => self.cancel_at_provider(payment).await?,
                Turn::Refund(refund) => self.finish_refund(&refund).await?,
            }
        }
        Err(GiveBackError::ProviderUnavailable)
    }

    async fn next_turn(&self, id: &PaymentId) -> Result<Turn, GiveBackError> {
        let mut tx = self.store.begin().await?;
        let turn = decide(&mut tx, id).await?;
        // Also when nothing was written: it lets go of the lock before the provider is called.
        tx.commit().await?;
        Ok(turn)
    }

    /// Ends the attempt, or learns that it paid. An attempt that cannot be ended and is not decided is unknown.
    async fn cancel_at_provider(&self, payment: Payment) -> Result<(), GiveBackError> {
        let fact = match self.provider.cancel(payment.order()).await {
            Ok(fact) => fact,
            Err(Failure::NotExecuted) => return Err(GiveBackError::ProviderUnavailable),
            Err(Failure::Unknown) => self
                .provider
                .query(payment.payment_id.clone())
                .await?
                .ok_or(GiveBackError::ProviderUnavailable)?,
        };
        if fact.verdict == Verdict::Processing {
            return Err(GiveBackError::ProviderUnavailable);
        }
        self.record(&payment.payment_id, &fact).await?;
        Ok(())
    }

    /// Sends an open refund under its key, again if need be, and records what became of it. Done by whoever comes
    /// first; for the others it is done already.
    pub(crate) async fn finish_refund(&self, refund: &Refund) -> Result<(), GiveBackError> {
        let order =
            RefundOrder { key: refund.key.clone(), charge: refund.payment_id.clone(), amount: refund.amount };
        let (state, event, refusal) = match self.provider.refund(order).await? {
            RefundVerdict::Refunded => (RefundState::Done, Event::RefundDone(refund.amount), String::new()),
            RefundVerdict::Refused { reason } => {
                (RefundState::Failed, Event::RefundFailed(refund.amount), reason)
            }
        };
        let mut tx = self.store.begin().await?;
        let payment = tx.lock(&refund.payment_id).await?.ok_or(StoreError::Unfenced)?;
        if tx.end_refund(&refund.key, &state, &refusal).await? {
            let after = payment.standing.apply(event).map_err(|_| StoreError::Unfenced)?;
            tx.save(&payment, &after, None).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}

/// Under the payment's lock: what has to be done next. Promises the amount of a refund before it is sent.
async fn decide(tx: &mut Tx, id: &PaymentId) -> Result<Turn, GiveBackError> {
    let payment = tx.lock(id).await?.ok_or(StoreError::Unfenced)?;
    if !payment.owes() {
        return Ok(Turn::Nothing(payment));
    }
    if payment.is_processing() {
        return Ok(Turn::Cancel(payment));
    }
    // Callers' refunds first: no new ones are taken since the wish, so afterwards the rest is final and one
    // refund under the derived key returns all of it.
    if let Some(open) = tx.pending_refund(id).await? {
        return Ok(Turn::Refund(open));
    }
    let key = RefundKey::of_cancel(id);
    if let Some(known) = tx.refund(&key).await? {
        tracing::error!(payment.id = %id, refusal = known.refusal, "a cancelled payment keeps money");
        return Err(GiveBackError::Refused(known.refusal));
    }
    let refund = Refund {
        fingerprint: Fingerprint::of(&[id.as_str().as_bytes(), b"cancel"]),
        payment_id: id.clone(),
        amount: payment.standing.left(),
        state: RefundState::Pending,
        refusal: String::new(),
        key,
    };
    let reserved = Event::RefundReserved(refund.amount);
    let after = payment.standing.apply(reserved).map_err(|_| StoreError::Unfenced)?;
    tx.save(&payment, &after, None).await?;
    if !tx.insert_refund(&refund).await? {
        return Err(StoreError::Unfenced.into());
    }
    Ok(Turn::Refund(refund))
}
