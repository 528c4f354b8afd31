//! The port to a payment provider: what can be asked of one, and the answers kept apart.
//!
//! Absent: retries (the callers' engine has the only retry loop), storage, and webhooks (an adapter's events come in
//! by `settle`, whatever brings them).

pub(crate) mod client;
pub(crate) mod simulator;

use crate::{
    ids::{PaymentId, RefundKey},
    money::{MinorUnits, Money},
};
use std::pin::Pin;

/// What to charge. It always travels whole, also with a cancel, so that an adapter can find or create the provider's
/// object for a charge that was never answered.
#[derive(Clone, Debug)]
pub(crate) struct ChargeOrder {
    /// The payment's id, which is the idempotency key.
    pub key: PaymentId,
    /// How much.
    pub amount: Money,
    /// The means of payment.
    pub payment_token: String,
}

/// What to give back.
#[derive(Clone, Debug)]
pub(crate) struct RefundOrder {
    /// The idempotency key.
    pub key: RefundKey,
    /// Of which charge.
    pub charge: PaymentId,
    /// How much.
    pub amount: MinorUnits,
}

/// What the provider says a charge has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// The provider's name for the charge: 1 to 100 characters of `[A-Za-z0-9_.:-]`.
    pub reference: String,
    /// What it says.
    pub verdict: Verdict,
}

/// The provider's word about a charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not decided yet.
    Processing,
    /// The money is ours.
    Captured,
    /// Refused, for this reason.
    Declined {
        /// The provider's reason.
        reason: String,
    },
    /// No money moved, by a cancel. A provider may still change its mind: some pay after a cancel.
    Cancelled,
}

/// The provider's word about a refund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RefundVerdict {
    /// The money went back.
    Refunded,
    /// It will never go back under this key.
    Refused {
        /// The provider's reason.
        reason: String,
    },
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The provider says that it did nothing.
    #[error("the provider did not execute the call")]
    NotExecuted,
    /// Time-out, lost connection: it may have happened. Never to be read as a refusal.
    #[error("the provider did not answer")]
    Unknown,
}

/// A call under way.
pub(crate) type Call<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// A payment provider. Every call may be repeated with the same key: its effect happens once and the answer is the
/// present one.
pub(crate) trait Provider: Send + Sync + 'static {
    /// Whether a payment token is one this provider can charge; otherwise why not.
    fn check_token(&self, payment_token: &str) -> Result<(), &'static str>;

    /// Authorises and captures. The provider's object exists under the key before money can move, so that an
    /// unanswered charge can be found and cancelled.
    fn charge(&self, order: ChargeOrder) -> Call<Fact>;

    /// Asks what became of a charge. `None`: the provider has never heard of it (a call under way may still come).
    fn query(&self, key: PaymentId) -> Call<Option<Fact>>;

    /// Ends a charge if no money moved yet, also one the provider has never heard of: its late original must then
    /// move no money. Answers what the charge has come to.
    fn cancel(&self, order: ChargeOrder) -> Call<Fact>;

    /// Gives money of a captured charge back.
    fn refund(&self, order: RefundOrder) -> Call<RefundVerdict>;
}
