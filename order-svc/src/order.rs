//! An order: what it consists of and how its state may change. Pure: no transport, no store, no clock.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrderId(pub Uuid);

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A caller's id: 1 to 128 of `[A-Za-z0-9_.:-]`. Empty where the contract allows none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallerId(pub String);

/// What is sold: 1 to 128 of `[A-Za-z0-9 _.-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sku(pub String);

/// Most units of one line.
pub const LINE_QUANTITY_MAX: i64 = 1_000_000;
/// Most units of one SKU in an order, over all its lines.
pub const SKU_QUANTITY_MAX: i64 = 1_000_000_000;

/// Units of a SKU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity(pub i64);

/// An amount in a currency's smallest unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MinorUnits(pub i64);

/// ISO 4217 code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Currency(pub String);

/// An amount of money.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    /// In what.
    pub currency: Currency,
    /// How much.
    pub amount: MinorUnits,
}

/// One line of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What.
    pub sku: Sku,
    /// How many.
    pub quantity: Quantity,
    /// For how much each.
    pub unit_price: MinorUnits,
}

/// How an order is paid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payment {
    /// At once, with this token.
    Now(String),
    /// By the customer, through payment-svc.
    Later,
}

/// What a valid CreateOrder asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The caller's id for the order.
    pub request_id: CallerId,
    /// Empty for a guest.
    pub customer_id: CallerId,
    /// As sent: 1 to 1,500.
    pub lines: Vec<Line>,
    /// Sum of the lines; at least one minor unit.
    pub total: Money,
    /// How it is paid.
    pub payment: Payment,
    /// How long it waits for its payment.
    pub expire_after: Duration,
}

impl Placement {
    /// Units per SKU, sorted: what is reserved. The wire has checked that sums fit.
    pub fn units_per_sku(&self) -> BTreeMap<Sku, Quantity> {
        let mut units = BTreeMap::new();
        for line in &self.lines {
            units.entry(line.sku.clone()).or_insert(Quantity(0)).0 += line.quantity.0;
        }
        units
    }
}

/// Where an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrderState {
    /// Stock is being reserved.
    Pending,
    /// Stock is held.
    AwaitingPayment,
    /// Paid, being confirmed.
    Paid,
    /// Sold and paid. At rest.
    Confirmed,
    /// Not sold. At rest.
    Cancelled,
    /// Taken back. At rest.
    Returned,
}

/// Why an order was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CancelReason {
    /// Not enough stock.
    InsufficientStock,
    /// Over the limit per customer.
    LimitExceeded,
    /// A SKU that was never received.
    UnknownSku,
    /// The provider declined.
    PaymentDeclined,
    /// Not paid in time.
    PaymentExpired,
    /// The hold ended before the sale.
    ReservationExpired,
    /// The customer cancelled.
    Customer,
    /// An operator cancelled.
    Operator,
    /// A participant could not be reached for longer than it is tried.
    Unavailable,
}

/// Where an order's money stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PaymentState {
    /// Waiting.
    Pending,
    /// Paid in full.
    Captured,
    /// The provider declined.
    Declined,
    /// No money is kept.
    NoneKept,
}

/// What happens to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderEvent {
    /// All lines are held.
    Held,
    /// Paid in full.
    Paid,
    /// Sold.
    Sold,
    /// It will be cancelled for this reason: undo begins.
    Turned(CancelReason),
    /// Everything is undone.
    Undone,
}

/// State, reason and money of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Where it stands.
    pub state: OrderState,
    /// Set from the turn on.
    pub cancel_reason: Option<CancelReason>,
    /// Where its money stands.
    pub payment: PaymentState,
}

/// An event that cannot happen to an order that stands like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to an order that is {standing:?}")]
pub struct Illegal {
    /// Where the order stood.
    pub standing: Standing,
    /// What came.
    pub event: OrderEvent,
}

impl Standing {
    /// A new order.
    pub const NEW: Self =
        Self { state: OrderState::Pending, cancel_reason: None, payment: PaymentState::Pending };

    /// The standing after `event`.
    pub fn after(self, event: OrderEvent) -> Result<Self, Illegal> {
        use OrderState::{AwaitingPayment, Cancelled, Confirmed, Paid, Pending};
        let illegal = Err(Illegal { standing: self, event });
        let turning = self.cancel_reason.is_some();
        match (self.state, event) {
            // A re-acquired hold changes nothing for an order that is paid already.
            (Paid, OrderEvent::Held) if !turning => Ok(self),
            (Pending, OrderEvent::Held) if !turning => Ok(Self { state: AwaitingPayment, ..self }),
            (AwaitingPayment, OrderEvent::Paid) if !turning => {
                Ok(Self { state: Paid, payment: PaymentState::Captured, ..self })
            }
            (Paid, OrderEvent::Sold) if !turning => Ok(Self { state: Confirmed, ..self }),
            (Pending | AwaitingPayment | Paid, OrderEvent::Turned(reason)) if !turning => {
                let declined = reason == CancelReason::PaymentDeclined;
                let payment = if declined { PaymentState::Declined } else { self.payment };
                Ok(Self { cancel_reason: Some(reason), payment, ..self })
            }
            (Pending | AwaitingPayment | Paid, OrderEvent::Undone) if turning => {
                let declined = self.payment == PaymentState::Declined;
                let payment = if declined { PaymentState::Declined } else { PaymentState::NoneKept };
                Ok(Self { state: Cancelled, payment, ..self })
            }
            _ => illegal,
        }
    }

    /// Whether a payment may still count for it.
    pub fn takes_payment(self) -> bool {
        self.cancel_reason.is_none()
            && matches!(self.state, OrderState::Pending | OrderState::AwaitingPayment)
    }

    /// Whether its caller need not wait: it ended, or waits for its payment and is not on its way to be cancelled.
    pub fn is_at_rest(self) -> bool {
        self.is_final() || (self.state == OrderState::AwaitingPayment && self.cancel_reason.is_none())
    }

    /// Whether nothing more will happen to it by itself.
    pub fn is_final(self) -> bool {
        matches!(self.state, OrderState::Confirmed | OrderState::Cancelled | OrderState::Returned)
    }
}

/// Names of the columns and of the contract, one for each value.
macro_rules! named {
    ($type:ty { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $type {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in the store and in the contract.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The value of that name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name)
            }
        }
    };
}

named!(OrderState {
    Pending => "PENDING",
    AwaitingPayment => "AWAITING_PAYMENT",
    Paid => "PAID",
    Confirmed => "CONFIRMED",
    Cancelled => "CANCELLED",
    Returned => "RETURNED",
});

named!(CancelReason {
    InsufficientStock => "INSUFFICIENT_STOCK",
    LimitExceeded => "LIMIT_EXCEEDED",
    UnknownSku => "UNKNOWN_SKU",
    PaymentDeclined => "PAYMENT_DECLINED",
    PaymentExpired => "PAYMENT_EXPIRED",
    ReservationExpired => "RESERVATION_EXPIRED",
    Customer => "CUSTOMER",
    Operator => "OPERATOR",
    Unavailable => "UNAVAILABLE",
});

named!(PaymentState {
    Pending => "PENDING",
    Captured => "CAPTURED",
    Declined => "DECLINED",
    NoneKept => "NONE_KEPT",
});

#[cfg(test)]
mod tests;
