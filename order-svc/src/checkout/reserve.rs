//! Holds the order's lines, all or none; undone by releasing every id a round of it may have used.

use std::time::Duration;

use proto::{
    inventory::v1::{
        Line, ReleaseRequest, ReserveRequest, inventory_service_client::InventoryServiceClient, reservation,
    },
    reason,
};
use saga::{Context, Outcome, SagaId, Step, Undo};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Checkout, INVENTORY};
use crate::order::{LINE_QUANTITY_MAX, Quantity, Sku};
use crate::peers::{Answer, asking, call};

/// The step.
pub struct Reserve {
    pub(crate) inventory: InventoryServiceClient<runtime::client::Client>,
}

/// What it gives.
#[derive(Debug, Serialize, Deserialize)]
pub struct Held {
    /// The reservation that holds the lines.
    pub reservation_id: String,
}

/// The reservation of one round of the step.
pub fn reservation_id(saga: SagaId, round: u32) -> String {
    format!("{saga}.{}.{round}", Reserve::NAME)
}

impl Step for Reserve {
    type Input = Checkout;
    type Output = Held;
    const NAME: &'static str = "reserve";
    const PARTICIPANT: &'static str = INVENTORY;

    async fn run(&self, context: &Context<'_, Checkout>) -> Outcome<Held> {
        let order = context.input;
        let until_deadline =
            context.deadline.and_then(|deadline| (deadline - context.now).to_std().ok()).unwrap_or_default();
        let reservation_id = reservation_id(context.saga, context.round);
        let request = ReserveRequest {
            reservation_id: reservation_id.clone(),
            lines: order.units.iter().flat_map(|(sku, quantity)| lines_of(sku, *quantity)).collect(),
            hold_for: Some(whole_ms(until_deadline + order.hold_beyond_deadline())),
            customer_id: order.customer_id.clone(),
        };
        let mut inventory = self.inventory.clone();
        match call(inventory.reserve(asking(request))).await {
            // A round's hold that was sold already can only be ours, by a confirm whose answer was lost.
            Answer::Ok(hold)
                if matches!(hold.state(), reservation::State::Held | reservation::State::Confirmed) =>
            {
                Outcome::Done(Held { reservation_id })
            }
            Answer::Ok(hold) => Outcome::Park { reason: format!("a reserve answered {:?}", hold.state()) },
            Answer::Refused { reason, metadata } => match reason.as_str() {
                reason::INSUFFICIENT_STOCK | reason::LIMIT_EXCEEDED | reason::UNKNOWN_SKU => Outcome::Abort {
                    reason,
                    detail: json!({ "skus": metadata.get("skus").map(String::as_str).unwrap_or_default() }),
                },
                // The hold of this round ended while its answer was lost.
                reason::RESERVATION_EXPIRED | reason::RESERVATION_RELEASED => {
                    Outcome::Abort { reason: reason::RESERVATION_EXPIRED.into(), detail: json!({}) }
                }
                // Our own id with other lines: a bug that no undo mends.
                reason::REQUEST_ID_REUSED => {
                    Outcome::Park { reason: format!("inventory-svc refused a reserve with {reason}") }
                }
                _ => Outcome::Abort { reason, detail: json!({}) },
            },
            Answer::Unknown(reason) => Outcome::Retry { reason },
        }
    }

    async fn undo(&self, context: &Context<'_, Checkout>) -> Undo {
        for round in 1..=context.round {
            let request = ReleaseRequest { reservation_id: reservation_id(context.saga, round) };
            let mut inventory = self.inventory.clone();
            if let Err(reason) = call(inventory.release(asking(request))).await.or_ask_again() {
                return Undo::Retry { reason };
            }
        }
        Undo::Done
    }
}

/// Lines of an order that were merged may be more than one line may hold.
fn lines_of(sku: &Sku, quantity: Quantity) -> impl Iterator<Item = Line> {
    let full = usize::try_from(quantity.0 / LINE_QUANTITY_MAX).unwrap_or_default();
    let rest = quantity.0 % LINE_QUANTITY_MAX;
    let units = std::iter::repeat_n(LINE_QUANTITY_MAX, full).chain((rest > 0).then_some(rest));
    units.map(|quantity| Line { sku: sku.0.clone(), quantity })
}

fn whole_ms(duration: Duration) -> prost_types::Duration {
    let ms = i64::try_from(duration.as_millis()).expect("holds are at most a few hundred days long");
    prost_types::Duration {
        seconds: ms / 1_000,
        nanos: i32::try_from(ms % 1_000).expect("below one thousand") * 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_units_are_sent_in_lines_that_may_be_sent() {
        let quantities = |quantity| -> Vec<i64> {
            lines_of(&Sku("A".into()), Quantity(quantity)).map(|line| line.quantity).collect()
        };
        assert_eq!(quantities(1), [1]);
        assert_eq!(quantities(1_000_000), [1_000_000]);
        assert_eq!(quantities(2_000_001), [1_000_000, 1_000_000, 1]);
    }
}
