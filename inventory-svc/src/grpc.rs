//! The two services over one [`Inventory`], and the only place that builds a status.
//! Every call runs in its own task: a caller that hangs up cuts nothing half-way.

mod reservations;
mod stock;

use std::{sync::Arc, time::Duration};

use proto::{
    inventory::v1::{
        inventory_service_server::InventoryServiceServer, stock_service_server::StockServiceServer,
    },
    reason::{self, DOMAIN},
};
use runtime::status::{Violation, invalid_fields, refusal, retry_later};
use tonic::{Code, Status};

use crate::{
    inventory::{CallError, Inventory},
    reservation::{Denied, RefusalReason},
    sku::Sku,
    standing::NotReady,
    wire::Violations,
};

/// SKUs named in the metadata of a refusal: what fits in a response's headers. The reservation names them all.
const SKUS_NAMED_BYTES: usize = 3_000;

/// The gRPC face of stock.
#[derive(Debug, Clone)]
pub struct Api(Arc<Inventory>);

impl Api {
    /// Over an inventory.
    pub fn new(inventory: Arc<Inventory>) -> Self {
        Self(inventory)
    }

    /// `inventory.v1.InventoryService`.
    pub fn reservations(&self) -> InventoryServiceServer<Self> {
        InventoryServiceServer::new(self.clone())
    }

    /// `inventory.v1.StockService`.
    pub fn stock(&self) -> StockServiceServer<Self> {
        StockServiceServer::new(self.clone())
    }
}

fn invalid(violations: Violations) -> Status {
    invalid_fields(DOMAIN, reason::INVALID_FIELD, violations)
}

/// The status of a call that was not granted. `field` names the id in the request, `subject` is that id.
fn status(error: CallError, field: &str, subject: &str) -> Status {
    match error {
        CallError::Denied(Denied::Refused(why)) => refused(why.reason, &why.skus),
        CallError::Denied(denied) => denied_status(&denied, field, subject),
        CallError::ChangeRefused(why) => refused(why, &[]),
        CallError::TooMuch => invalid(vec![Violation {
            field: "quantity".to_owned(),
            description: "more than 10^12 units would have been received".to_owned(),
        }]),
        CallError::UnknownReservation => {
            let message = format!("no reservation {subject}");
            refusal(Code::NotFound, DOMAIN, reason::UNKNOWN_RESERVATION, message, [])
        }
        CallError::UnknownSku => {
            refusal(Code::NotFound, DOMAIN, reason::UNKNOWN_SKU, format!("{subject} was never received"), [])
        }
        CallError::NotReady(why) => {
            let message = format!("{why}; ask again with the same id");
            retry_later(Code::Unavailable, DOMAIN, reason::STOCK_NOT_READY, message, retry_after(&why))
        }
    }
}

fn denied_status(denied: &Denied, field: &str, subject: &str) -> Status {
    let (reason, message) = match denied {
        Denied::Reused => {
            let description = "was used before for another request".to_owned();
            let violation = Violation { field: field.to_owned(), description };
            return invalid_fields(DOMAIN, reason::REQUEST_ID_REUSED, vec![violation]);
        }
        Denied::Expired => (reason::RESERVATION_EXPIRED, "has expired"),
        Denied::Confirmed => (reason::RESERVATION_CONFIRMED, "is confirmed: its units are sold"),
        Denied::Released => (reason::RESERVATION_RELEASED, "was released"),
        Denied::Refused(why) => return refused(why.reason, &why.skus),
    };
    let metadata = [("reservation_id".to_owned(), subject.to_owned())];
    refusal(Code::FailedPrecondition, DOMAIN, reason, format!("reservation {subject} {message}"), metadata)
}

fn refused(why: RefusalReason, skus: &[Sku]) -> Status {
    let (code, reason, message) = match why {
        RefusalReason::InsufficientStock => {
            (Code::FailedPrecondition, reason::INSUFFICIENT_STOCK, "not enough stock")
        }
        RefusalReason::UnknownSku => (Code::NotFound, reason::UNKNOWN_SKU, "never received"),
    };
    let (mut named, mut left_out) = (String::new(), 0);
    for sku in skus {
        if named.len() + sku.as_str().len() >= SKUS_NAMED_BYTES {
            left_out += 1;
            continue;
        }
        if !named.is_empty() {
            named.push(',');
        }
        named.push_str(sku.as_str());
    }
    let mut metadata = Vec::new();
    if !named.is_empty() {
        metadata.push(("skus".to_owned(), named));
    }
    if left_out > 0 {
        metadata.push(("skus_left_out".to_owned(), left_out.to_string()));
    }
    refusal(code, DOMAIN, reason, message, metadata)
}

/// A fence heals within a moment; a store that is away takes longer.
const fn retry_after(why: &NotReady) -> Duration {
    match why {
        NotReady::Closed | NotReady::Fenced | NotReady::NotInLedger => Duration::from_millis(200),
        NotReady::Backlogged | NotReady::StoreAway => Duration::from_millis(500),
    }
}
