//! The saga that gives an exceptional payment back: one step, tried until it succeeds or an operator looks.

use proto::payment::v1::{RefundRequest, payment_service_client::PaymentServiceClient};
use runtime::client::Client;
use saga::{Context, Definition, Outcome, Step, Undo};
use serde::{Deserialize, Serialize};

use crate::{
    checkout::PAYMENTS,
    order::OrderId,
    peers::{Answer, Peers, asking, call},
};

/// The saga's kind.
pub const KIND: &str = "refund_exceptional";

/// What it is started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Exceptional {
    /// The order it was reported for.
    pub order_id: OrderId,
    /// The payment to give back.
    pub payment_id: String,
}

/// The definition.
pub fn definition(peers: &Peers) -> Definition {
    Definition::new::<Exceptional>(KIND, 1).pivot(GiveBack { payments: peers.payments.clone() }).build()
}

/// The step.
struct GiveBack {
    payments: PaymentServiceClient<Client>,
}

impl Step for GiveBack {
    type Input = Exceptional;
    type Output = ();
    const NAME: &'static str = "refund";
    const PARTICIPANT: &'static str = PAYMENTS;

    /// Gives back all that is left, which may be nothing: another undo may have been here before.
    async fn run(&self, context: &Context<'_, Exceptional>) -> Outcome<()> {
        let payment_id = context.input.payment_id.clone();
        let request =
            RefundRequest { request_id: format!("exceptional.{}", context.saga), payment_id, amount: None };
        let mut payments = self.payments.clone();
        match call(payments.refund(asking(request))).await {
            Answer::Ok(_) => Outcome::Done(()),
            Answer::Refused { reason, .. } => {
                Outcome::Park { reason: format!("payment-svc refused the refund with {reason}") }
            }
            Answer::Unknown(reason) => Outcome::Retry { reason },
        }
    }

    async fn undo(&self, _: &Context<'_, Exceptional>) -> Undo {
        // The engine never undoes a pivot.
        Undo::Done
    }
}
