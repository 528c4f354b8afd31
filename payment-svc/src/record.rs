//! A payment as it is kept: its standing, and everything about it that never decides anything.
//!
//! Absent: how it is stored (`store`) and how it is told (`grpc`).

use crate::{
    ids::{PaymentId, Reference, Scope},
    money::{Currency, Money},
    payment::{Standing, State, Wish},
    provider::ChargeOrder,
};
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

/// A hash of what a request means; another one under the same id is another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// Hashes the parts. Each is length-prefixed, so that no two lists of parts read the same.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// A charge as a caller asks for it, parsed.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    /// Its name.
    pub payment_id: PaymentId,
    /// What it belongs to.
    pub scope: Scope,
    /// Whom reports go to.
    pub reference: Option<Reference>,
    /// What to charge; more than zero.
    pub amount: Money,
    /// What the provider knows the means of payment by.
    pub payment_token: String,
    /// What the reference is told of outcomes that the answer carries.
    pub telling: Telling,
}

/// Whether an outcome is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// To the payment's reference.
    Reported,
    /// By the answer to a caller that repeats its call until it answers.
    Answered,
}

impl Charge {
    /// What the charge means.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&[
            self.scope.as_str().as_bytes(),
            self.reference.as_ref().map_or("", Reference::as_str).as_bytes(),
            self.amount.currency.as_str().as_bytes(),
            &self.amount.units.get().to_be_bytes(),
            self.payment_token.as_bytes(),
        ])
    }
}

/// A payment.
#[allow(clippy::struct_field_names)] // the contract's names
#[derive(Clone, Debug)]
pub(crate) struct Payment {
    /// Its name.
    pub payment_id: PaymentId,
    /// What it belongs to.
    pub scope: Scope,
    /// Whom reports go to.
    pub reference: Option<Reference>,
    /// What its charge meant.
    pub fingerprint: Fingerprint,
    /// The currency of all its amounts.
    pub currency: Currency,
    /// Where it stands.
    pub standing: Standing,
    /// What the provider knows the means of payment by.
    pub payment_token: String,
    /// The provider's name for it; empty while unknown.
    pub provider_reference: String,
    /// The provider's reason for a decline.
    pub decline_reason: String,
    /// The trace of the charge.
    pub traceparent: Option<String>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl Payment {
    /// What the provider is asked to do for it.
    pub(crate) fn order(&self) -> ChargeOrder {
        ChargeOrder {
            key: self.payment_id.clone(),
            amount: Money { currency: self.currency, units: self.standing.amount },
            payment_token: self.payment_token.clone(),
        }
    }

    /// Whether the provider's answer is still awaited.
    pub(crate) fn is_processing(&self) -> bool {
        self.standing.state == State::Processing
    }

    /// Whether its scope was cancelled and something is still to be done about it.
    pub(crate) fn owes(&self) -> bool {
        self.standing.wish == Wish::GiveBack && self.standing.is_open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_keep_parts_apart() {
        assert_ne!(Fingerprint::of(&[b"ab", b"c"]), Fingerprint::of(&[b"a", b"bc"]));
        assert_ne!(Fingerprint::of(&[b"a"]), Fingerprint::of(&[b"a", b""]));
    }
}
