//! What a payment is and how it may change: one pure function from a standing and an event to the next standing.
//!
//! The money is counted, not remembered: `captured` and `refunded` are what really moved, and a state that would
//! contradict them cannot be reached. The provider's word about captured money overrides every state, because money
//! that moved must never be kept silently (a "cancelled" payment can still pay). Absent: storage, providers, transport.

use crate::money::MinorUnits;

/// Where a payment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// The provider has not decided, or its answer is not known.
    Processing,
    /// Money moved, and not all of it was given back by a cancel.
    Captured,
    /// The provider refused.
    Declined,
    /// Ended without money, or all of it given back because the scope was cancelled.
    Cancelled,
}

impl State {
    /// Every state.
    pub(crate) const ALL: [State; 4] =
        [State::Processing, State::Captured, State::Declined, State::Cancelled];
}

/// What the caller wants to become of the payment's money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wish {
    /// Keep it.
    Keep,
    /// The scope is cancelled: keep nothing, whenever it comes.
    GiveBack,
}

/// The whole of what decides about a payment. All amounts are of the payment's one currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Where it stands.
    pub state: State,
    /// What is wanted of it.
    pub wish: Wish,
    /// What was asked for; more than zero.
    pub amount: MinorUnits,
    /// What was captured: zero or `amount`.
    pub captured: MinorUnits,
    /// What was given back.
    pub refunded: MinorUnits,
    /// What is being given back: promised to refunds whose fate is open.
    pub refund_pending: MinorUnits,
}

/// What can happen to a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The provider says: captured.
    Captured,
    /// The provider says: declined.
    Declined,
    /// The provider says: cancelled, no money moved.
    Cancelled,
    /// The scope was cancelled.
    CancelRequested,
    /// This much is promised to a refund.
    RefundReserved(MinorUnits),
    /// A promised refund was executed.
    RefundDone(MinorUnits),
    /// A promised refund will never be executed.
    RefundFailed(MinorUnits),
}

/// What a payment's owner is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The money was captured.
    Captured,
    /// The provider declined.
    Declined,
}

/// Why an event cannot happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Illegal {
    /// A late or contradicting word of the provider, against what is known already.
    #[error("{event:?} contradicts {state:?}")]
    Contradiction {
        /// Where the payment stands.
        state: State,
        /// What was said.
        event: Event,
    },
    /// More would be refunded than is left.
    #[error("{asked:?} exceeds the {left:?} left to refund")]
    RefundExceedsCaptured {
        /// What was asked for.
        asked: MinorUnits,
        /// What is left.
        left: MinorUnits,
    },
    /// A refund ended that was never promised.
    #[error("a refund of {amount:?} ended that was never reserved")]
    NotReserved {
        /// Its amount.
        amount: MinorUnits,
    },
}

impl Standing {
    /// What a refund may still take: captured, less refunded, less promised.
    pub(crate) fn left(&self) -> MinorUnits {
        self.captured
            .checked_sub(self.refunded)
            .and_then(|rest| rest.checked_sub(self.refund_pending))
            .unwrap_or(MinorUnits::ZERO)
    }

    /// What a caller's refund may still take. Nothing once the scope is cancelled: that money is going back already.
    pub(crate) fn left_for_callers(&self) -> MinorUnits {
        match self.wish {
            Wish::Keep => self.left(),
            Wish::GiveBack => MinorUnits::ZERO,
        }
    }

    /// Whether something still has to happen by itself: an answer to be had, a refund to be finished, or money to be
    /// given back. Such a payment is always due for the background sweep.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Processing
            || !self.refund_pending.is_zero()
            || (self.wish == Wish::GiveBack && !self.left().is_zero())
    }

    /// The standing after `event`. An event that is known already changes nothing.
    pub(crate) fn apply(self, event: Event) -> Result<Standing, Illegal> {
        let contradiction = Illegal::Contradiction { state: self.state, event };
        let mut next = self;
        match (event, self.state) {
            (Event::Captured, _) if self.captured.is_zero() => {
                next.state = State::Captured;
                next.captured = self.amount;
            }
            (Event::Declined, State::Processing) => next.state = State::Declined,
            (Event::Cancelled, State::Processing) => next.state = State::Cancelled,
            (Event::Captured, _)
            | (Event::Declined, State::Declined)
            | (Event::Cancelled, State::Cancelled) => {}
            (Event::Declined | Event::Cancelled, _) => return Err(contradiction),
            (Event::CancelRequested, _) => next.wish = Wish::GiveBack,
            (Event::RefundReserved(asked), _) => {
                let left = self.left();
                if asked > left {
                    return Err(Illegal::RefundExceedsCaptured { asked, left });
                }
                next.refund_pending = sum(self.refund_pending, asked, contradiction)?;
            }
            (Event::RefundDone(amount), _) => {
                next.refund_pending = self.end_refund(amount)?;
                next.refunded = sum(self.refunded, amount, contradiction)?;
            }
            (Event::RefundFailed(amount), _) => next.refund_pending = self.end_refund(amount)?,
        }
        if next.wish == Wish::GiveBack && next.state == State::Captured && next.refunded == next.captured {
            next.state = State::Cancelled;
        }
        Ok(next)
    }

    fn end_refund(&self, amount: MinorUnits) -> Result<MinorUnits, Illegal> {
        self.refund_pending.checked_sub(amount).ok_or(Illegal::NotReserved { amount })
    }

    /// What the owner must be told of the change from `self` to `next`. Once per fact: a repeat changes nothing.
    pub(crate) fn report(&self, next: &Standing) -> Option<Report> {
        if self.captured.is_zero() && !next.captured.is_zero() {
            Some(Report::Captured)
        } else if self.state != State::Declined && next.state == State::Declined {
            Some(Report::Declined)
        } else {
            None
        }
    }
}

fn sum(a: MinorUnits, b: MinorUnits, overflow: Illegal) -> Result<MinorUnits, Illegal> {
    a.checked_add(b).ok_or(overflow)
}

#[cfg(test)]
mod tests;
