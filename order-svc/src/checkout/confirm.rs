//! The pivot: sells what is held. A hold that lapsed is acquired once more, under a new id.

use proto::{
    inventory::v1::{ConfirmRequest, inventory_service_client::InventoryServiceClient},
    reason,
};
use saga::{Context, Outcome, Step, Undo};
use serde_json::json;

use super::{Checkout, INVENTORY, reserve::Reserve};
use crate::peers::{Answer, asking, call};

/// The step.
pub struct Confirm {
    pub(crate) inventory: InventoryServiceClient<runtime::client::Client>,
}

impl Step for Confirm {
    type Input = Checkout;
    type Output = ();
    const NAME: &'static str = "confirm";
    const PARTICIPANT: &'static str = INVENTORY;

    async fn run(&self, context: &Context<'_, Checkout>) -> Outcome<()> {
        let held = match context.output_of::<Reserve>() {
            Ok(Some(held)) => held,
            Ok(None) => {
                return Outcome::Park { reason: "it is to be confirmed before it is reserved".into() };
            }
            Err(unreadable) => return unreadable.into(),
        };
        let mut inventory = self.inventory.clone();
        match call(inventory.confirm(asking(ConfirmRequest { reservation_id: held.reservation_id }))).await {
            Answer::Ok(_) => Outcome::Done(()),
            Answer::Refused { reason, .. } => match reason.as_str() {
                reason::RESERVATION_EXPIRED => Outcome::Restart { at: Reserve::NAME, max: 1, reason },
                // Somebody released it by hand: the goods are gone, so the money goes back.
                reason::RESERVATION_RELEASED => Outcome::Abort { reason, detail: json!({}) },
                _ => Outcome::Park { reason: format!("inventory-svc refused a confirm with {reason}") },
            },
            Answer::Unknown(reason) => Outcome::Retry { reason },
        }
    }

    async fn undo(&self, _: &Context<'_, Checkout>) -> Undo {
        // The engine never undoes a pivot: a refused confirm has sold nothing.
        Undo::Done
    }
}
