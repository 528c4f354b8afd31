//! The names callers choose: 1 to 128 characters of `[A-Za-z0-9_.:-]`.
//!
//! The slash is outside that alphabet on purpose: names we derive contain one, so no caller can choose them.

use std::fmt;

/// The longest id, in characters.
pub(crate) const ID_LEN_MAX: usize = 128;

fn well_formed(text: &str) -> bool {
    (1..=ID_LEN_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-'))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $name(String);

        impl $name {
            /// `None` unless the text is 1 to 128 characters of `[A-Za-z0-9_.:-]`.
            pub(crate) fn parse(text: &str) -> Option<Self> {
                well_formed(text).then(|| Self(text.to_owned()))
            }

            /// A name read back from where only parsed ones are written.
            pub(crate) fn stored(text: String) -> Self {
                Self(text)
            }

            /// The text.
            pub(crate) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// One attempt to pay; also the request id of its charge and the provider's idempotency key.
    PaymentId
}
id! {
    /// What the attempts for one thing share; what `CancelPayment` cancels.
    Scope
}
id! {
    /// What the caller knows the payment by: for orders the order id. Reports go to it.
    Reference
}

/// The name of one refund; also the provider's idempotency key for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RefundKey(String);

impl RefundKey {
    /// A caller's request id; `None` unless it is a well-formed id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        well_formed(text).then(|| Self(text.to_owned()))
    }

    /// The one refund by which a cancelled scope gives this payment's money back.
    pub(crate) fn of_cancel(payment: &PaymentId) -> Self {
        Self(format!("{payment}/cancel"))
    }

    pub(crate) fn stored(text: String) -> Self {
        Self(text)
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_alphabet_and_a_length() {
        assert!(PaymentId::parse("saga-1.pay.1").is_some());
        assert!(PaymentId::parse(&"x".repeat(ID_LEN_MAX)).is_some());
        for text in ["", "a b", "a/b", "ä", "a\n", &"x".repeat(ID_LEN_MAX + 1)] {
            assert!(PaymentId::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn no_caller_can_choose_a_derived_key() {
        let key = RefundKey::of_cancel(&PaymentId::parse("p").unwrap());
        assert_eq!(RefundKey::parse(key.as_str()), None);
    }
}
