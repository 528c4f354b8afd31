//! The checkout saga: reserve, pay, confirm. Parameters and definition are here, each step in its own file, and
//! what a change of the saga means for its order in `checkout/progress.rs`.

use std::{collections::BTreeMap, time::Duration};

use saga::{AtDeadline, DeadlineView, Definition, Progress, Retry};
use serde::{Deserialize, Serialize};

use crate::{
    order::{Money, OrderId, Payment, Quantity, Sku},
    peers::Peers,
    store::Store,
};

pub mod confirm;
pub mod pay;
pub mod progress;
pub mod reserve;

/// The saga's kind.
pub const KIND: &str = "checkout";
/// The signal that a payment was reported for the order; payload [`pay::Reported`].
pub const PAYMENT: &str = "payment";

/// The participant that holds and sells stock.
const INVENTORY: &str = "inventory-svc";
/// The participant that takes money and gives it back.
pub const PAYMENTS: &str = "payment-svc";

/// What a checkout is started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Checkout {
    /// The order it carries.
    pub order_id: OrderId,
    /// Empty for a guest.
    pub customer_id: String,
    /// Units per SKU.
    pub units: BTreeMap<Sku, Quantity>,
    /// What is to be paid.
    pub total: Money,
    /// How.
    pub payment: Payment,
    /// How long holds outlive the deadline: payment grace and hold margin.
    pub hold_beyond_deadline_ms: u64,
}

impl Checkout {
    /// How long holds outlive the deadline.
    pub fn hold_beyond_deadline(&self) -> Duration {
        Duration::from_millis(self.hold_beyond_deadline_ms)
    }
}

/// A participant that is down is tried for some minutes, since an order that waits costs its customer less than one
/// that is refused; the deadline ends it earlier.
const PATIENT: Retry = Retry::MUST;

/// The definition that new orders begin with.
pub fn definition(peers: &Peers, store: &Store, payment_grace: Duration) -> Definition {
    Definition::new::<Checkout>(KIND, 1)
        .step(reserve::Reserve { inventory: peers.inventory.clone() })
        .retry(PATIENT, Retry::MUST)
        .step(pay::Pay { payments: peers.payments.clone(), store: store.clone() })
        .retry(PATIENT, Retry::MUST)
        .pivot(confirm::Confirm { inventory: peers.inventory.clone() })
        .deadline(move |view| at_deadline(view, payment_grace))
        .side_rows(progress::OrderRows)
        .build()
}

/// An attempt known to be in process earns one grace; one that failed, or that nobody began, does not.
fn at_deadline(view: DeadlineView, payment_grace: Duration) -> AtDeadline {
    match (view.progress, view.extensions) {
        (Progress::Processing, 0) => AtDeadline::Extend(payment_grace),
        _ => AtDeadline::Turn,
    }
}
