//! How each order is paid: by its invoice number, so that every run meets every behaviour of the provider.

use std::time::Duration;

use proto::orders::v1::create_order_request::Payment;
use proto::orders::v1::{PayLater, PayNow};

/// When an order that nobody pays is closed.
const UNPAID_CLOSES_AFTER: Duration = Duration::from_secs(2);

/// What becomes of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Means {
    /// Taken at once.
    Approved,
    /// Taken after 300 ms.
    Late,
    /// Executed by the provider, whose answer was a time-out.
    AnsweredTimeout,
    /// Refused by the provider.
    Declined,
    /// The customer never pays; the deadline closes the order.
    NeverPaid,
}

impl Means {
    /// The plan: invoice number mod 20.
    pub fn of(invoice_number: u64) -> Self {
        match invoice_number % 20 {
            2 => Self::Declined,
            3 => Self::NeverPaid,
            4 => Self::Late,
            18 => Self::AnsweredTimeout,
            _ => Self::Approved,
        }
    }

    /// In words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Late => "answered late",
            Self::AnsweredTimeout => "executed, answered with a time-out",
            Self::Declined => "declined",
            Self::NeverPaid => "never paid",
        }
    }

    /// Whether an order paid so can be sold.
    pub fn pays(self) -> bool {
        matches!(self, Self::Approved | Self::Late | Self::AnsweredTimeout)
    }

    /// The payment part of the order's request, and its deadline.
    pub fn payment(self) -> (Payment, Option<Duration>) {
        let now = |token: &str| (Payment::PayNow(PayNow { payment_token: token.to_owned() }), None);
        match self {
            Self::Approved => now("sim_approve"),
            Self::Late => now("sim_approve_after_300"),
            Self::AnsweredTimeout => now("sim_timeout"),
            Self::Declined => now("sim_decline"),
            Self::NeverPaid => (Payment::PayLater(PayLater {}), Some(UNPAID_CLOSES_AFTER)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Means;

    #[test]
    fn the_plan_goes_by_the_number_mod_20() {
        let kinds: Vec<Means> = (580_520..580_540).map(Means::of).collect();
        assert_eq!(kinds[2..5], [Means::Declined, Means::NeverPaid, Means::Late]);
        assert_eq!(kinds[18], Means::AnsweredTimeout);
        assert_eq!(kinds.iter().filter(|means| **means == Means::Approved).count(), 16);
    }
}
