//! A caller's refund: promise the amount under the payment's lock, ask the provider, record what became of it.
//!
//! The promise is what keeps two refunds at once from exceeding what was captured. A refund whose answer did not come
//! stays promised and is finished under the same key by a repeat, by the sweep, or by a cancel of the scope.

use crate::{
    give_back::GiveBackError,
    ids::{PaymentId, RefundKey},
    money::{MinorUnits, Money},
    payment::Event,
    payments::Payments,
    record::{Fingerprint, Payment},
    store::{Refund, RefundState, StoreError, Tx},
};

/// A refund as a caller asks for it, parsed.
#[derive(Clone, Debug)]
pub(crate) struct RefundRequest {
    /// Of which payment.
    pub payment_id: PaymentId,
    /// Its name.
    pub key: RefundKey,
    /// How much; `None`: all that is left.
    pub amount: Option<Money>,
}

impl RefundRequest {
    /// What the refund means.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let payment = self.payment_id.as_str().as_bytes();
        match &self.amount {
            Some(amount) => Fingerprint::of(&[
                payment,
                amount.currency.as_str().as_bytes(),
                &amount.units.get().to_be_bytes(),
            ]),
            None => Fingerprint::of(&[payment, b"all"]),
        }
    }
}

/// Why there is no refund.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefundError {
    /// No payment has this id.
    #[error("no payment has this id")]
    UnknownPayment,
    /// The request id was used with another content.
    #[error("the request id was used with another content")]
    Reused,
    /// The amount is in another currency than the payment.
    #[error("the payment is in {expected}")]
    OtherCurrency {
        /// The payment's currency.
        expected: String,
    },
    /// More than is left. Repeats get the same answer.
    #[error("{0}")]
    Exceeds(String),
    /// The fate of the payment or the refund is not known yet: repeat with the same id.
    #[error("the provider has not answered yet")]
    ProviderUnavailable,
    /// The book failed: repeat with the same id.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<GiveBackError> for RefundError {
    fn from(error: GiveBackError) -> Self {
        match error {
            GiveBackError::ProviderUnavailable => Self::ProviderUnavailable,
            GiveBackError::Refused(reason) => Self::Exceeds(reason),
            GiveBackError::Store(error) => Self::Store(error),
        }
    }
}

impl Payments {
    /// Refunds once per request id, and answers where the payment stands then.
    pub(crate) async fn refund(&self, request: &RefundRequest) -> Result<Payment, RefundError> {
        let payment = self.get(&request.payment_id).await?.ok_or(RefundError::UnknownPayment)?;
        if payment.is_processing() {
            // Whether there is anything to refund is unknown, which is no refusal.
            return Err(RefundError::ProviderUnavailable);
        }
        if payment.owes() {
            // Its money is on its way back already; "all that is left" must not be answered before it is back.
            self.give_back(&payment.payment_id).await?;
        }
        let mut refund = self.promise(request).await?;
        if refund.state == RefundState::Pending {
            self.finish_refund(&refund).await?;
            refund = self.reread(&refund.key).await?;
        }
        match refund.state {
            RefundState::Done => {
                Ok(self.store.find(&request.payment_id).await?.ok_or(RefundError::UnknownPayment)?)
            }
            RefundState::Refused | RefundState::Failed => Err(RefundError::Exceeds(refund.refusal)),
            RefundState::Pending => Err(RefundError::ProviderUnavailable),
        }
    }

    /// One transaction: the recorded refund of this request id, or a new one with its amount promised or refused.
    async fn promise(&self, request: &RefundRequest) -> Result<Refund, RefundError> {
        let mut tx = self.store.begin().await?;
        let payment = tx.lock(&request.payment_id).await?.ok_or(RefundError::UnknownPayment)?;
        if let Some(known) = tx.refund(&request.key).await? {
            return same(known, request);
        }
        if let Some(amount) = &request.amount
            && amount.currency != payment.currency
        {
            return Err(RefundError::OtherCurrency { expected: payment.currency.as_str().to_owned() });
        }
        let refund = write_promise(&mut tx, &payment, request).await?;
        match refund {
            Some(refund) => {
                tx.commit().await?;
                Ok(refund)
            }
            // Taken at the same moment by a request for another payment.
            None => Err(RefundError::Reused),
        }
    }

    /// Finishes one open refund of a payment, if it has one, for callers that never came back.
    pub(crate) async fn finish_open_refund(&self, id: &PaymentId) -> Result<(), GiveBackError> {
        let mut tx = self.store.begin().await?;
        let open = tx.pending_refund(id).await?;
        // The provider is never asked inside a transaction.
        tx.rollback().await?;
        match open {
            Some(refund) => self.finish_refund(&refund).await,
            None => Ok(()),
        }
    }

    async fn reread(&self, key: &RefundKey) -> Result<Refund, RefundError> {
        let mut tx = self.store.begin().await?;
        let refund = tx.refund(key).await?.ok_or(StoreError::Unfenced)?;
        tx.rollback().await?;
        Ok(refund)
    }
}

async fn write_promise(
    tx: &mut Tx,
    payment: &Payment,
    request: &RefundRequest,
) -> Result<Option<Refund>, RefundError> {
    let left = payment.standing.left_for_callers();
    let amount = request.amount.map_or(left, |amount| amount.units);
    let mut refund = Refund {
        key: request.key.clone(),
        payment_id: payment.payment_id.clone(),
        fingerprint: request.fingerprint(),
        amount,
        state: RefundState::Pending,
        refusal: String::new(),
    };
    if amount > left {
        refund.state = RefundState::Refused;
        refund.refusal = format!("{} of {} are left to refund", left.get(), payment.standing.captured.get());
    } else if amount == MinorUnits::ZERO {
        refund.state = RefundState::Done;
    }
    if !tx.insert_refund(&refund).await? {
        return Ok(None);
    }
    if refund.state == RefundState::Pending {
        let after =
            payment.standing.apply(Event::RefundReserved(amount)).map_err(|_| StoreError::Unfenced)?;
        tx.save(payment, &after, None).await?;
    }
    Ok(Some(refund))
}

fn same(known: Refund, request: &RefundRequest) -> Result<Refund, RefundError> {
    if known.fingerprint == request.fingerprint() { Ok(known) } else { Err(RefundError::Reused) }
}
