//! Charging: write the attempt down, ask the provider, write the answer down.
//!
//! A crash after the first step leaves a payment in process, which is healed by asking. Unknown is never failure: a
//! charge whose answer did not come stays in process. Absent: retries.

use crate::{
    payments::Payments,
    provider::Failure,
    record::{Charge, Payment, Telling},
    store::{Begun, StoreError},
};
use std::time::Duration;

/// How long after it was first asked for a charge may be sent again under its key. Providers remember keys for a day;
/// after that a repeat could be a second charge, so it is only asked for. By the book's clock, as everything here.
const RESEND_WITHIN: Duration = Duration::from_hours(23);

/// Why a charge has no answer. A payment that was declined or cancelled is an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChargeError {
    /// The id was used with another content.
    #[error("the payment id was used with another content")]
    Reused,
    /// The scope was cancelled before this payment was known.
    #[error("the scope is cancelled")]
    ScopeCancelled,
    /// The provider did nothing: repeat with the same id.
    #[error("the provider is not available")]
    ProviderUnavailable,
    /// The book failed: repeat with the same id.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Payments {
    /// Charges once per payment id, and answers where the payment stands.
    pub(crate) async fn charge(&self, charge: &Charge) -> Result<Payment, ChargeError> {
        let traceparent = runtime::telemetry::current_traceparent();
        match self.store.begin_charge(charge, traceparent.as_deref()).await? {
            Begun::Fresh(payment) => self.send(*payment, charge.telling).await,
            Begun::Known(payment) if payment.fingerprint != charge.fingerprint() => Err(ChargeError::Reused),
            Begun::Known(payment) => self.repeat(*payment, charge.telling).await,
            Begun::ScopeCancelled => Err(ChargeError::ScopeCancelled),
        }
    }

    /// A charge that was asked for before: its state is the answer, and one in process is asked for. Only if the
    /// provider has never heard of it is it sent again.
    async fn repeat(&self, payment: Payment, telling: Telling) -> Result<Payment, ChargeError> {
        if !payment.is_processing() || payment.owes() {
            return Ok(payment);
        }
        match self.provider.query(payment.payment_id.clone()).await {
            Ok(Some(fact)) => Ok(self.settle_read(&payment, &fact, telling).await?),
            Ok(None) if self.store.is_younger(&payment.payment_id, RESEND_WITHIN).await? => {
                self.send(payment, telling).await
            }
            Ok(None) | Err(Failure::Unknown) => Ok(payment),
            Err(Failure::NotExecuted) => Err(ChargeError::ProviderUnavailable),
        }
    }

    async fn send(&self, payment: Payment, telling: Telling) -> Result<Payment, ChargeError> {
        match self.provider.charge(payment.order()).await {
            Ok(fact) => Ok(self.settle_read(&payment, &fact, telling).await?),
            Err(Failure::Unknown) => Ok(payment),
            Err(Failure::NotExecuted) => Err(ChargeError::ProviderUnavailable),
        }
    }
}
