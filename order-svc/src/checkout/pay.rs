//! Takes the payment, or waits for it. Undone by leaving no money of the scope behind.

use std::time::Duration;

use proto::{
    money, payment,
    payment::v1::{
        CancelPaymentRequest, ChargeRequest, ListPaymentsRequest, charge_request,
        payment_service_client::PaymentServiceClient,
    },
    reason,
};
use saga::{Context, Outcome, Progress, SagaId, Step, Undo};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Checkout, PAYMENT, PAYMENTS};
use crate::{
    order::{Money, Payment},
    peers::{Answer, asking, call},
    store::Store,
};

/// The step.
pub struct Pay {
    pub(crate) payments: PaymentServiceClient<runtime::client::Client>,
    pub(crate) store: Store,
}

/// What it gives.
#[derive(Debug, Serialize, Deserialize)]
pub struct Paid {
    /// The payment that counts for the order.
    pub payment_id: String,
}

/// Payload of the signal [`PAYMENT`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Reported {
    /// The payment that counts for the order.
    pub payment_id: String,
}

/// The scope of a checkout's payments.
pub fn scope(saga: SagaId) -> String {
    format!("{saga}.{}", Pay::NAME)
}

/// The checkout's own attempt. There is one: a declined order is refused, not asked again.
pub fn own_attempt(saga: SagaId) -> String {
    format!("{}.1", scope(saga))
}

impl Step for Pay {
    type Input = Checkout;
    type Output = Paid;
    const NAME: &'static str = "pay";
    const PARTICIPANT: &'static str = PAYMENTS;

    async fn run(&self, context: &Context<'_, Checkout>) -> Outcome<Paid> {
        match &context.input.payment {
            Payment::Now(token) => self.charge(context, token).await,
            Payment::Later => self.wait(context).await,
        }
    }

    async fn undo(&self, context: &Context<'_, Checkout>) -> Undo {
        let mut payments = self.payments.clone();
        let request = CancelPaymentRequest { scope: scope(context.saga), keep_payment_id: String::new() };
        match call(payments.cancel_payment(asking(request))).await.or_ask_again() {
            Ok(_) => Undo::Done,
            Err(reason) => Undo::Retry { reason },
        }
    }
}

impl Pay {
    /// Charges under one id however often it is asked: payment-svc answers with the present state of that payment.
    async fn charge(&self, context: &Context<'_, Checkout>, token: &str) -> Outcome<Paid> {
        let order = context.input;
        let payment_id = own_attempt(context.saga);
        let request = ChargeRequest {
            payment_id: payment_id.clone(),
            scope: scope(context.saga),
            reference: order.order_id.to_string(),
            amount: Some(money::v1::Money {
                currency: order.total.currency.0.clone(),
                minor_units: order.total.amount.0,
            }),
            payment_token: token.to_owned(),
            // What this step is answered it records itself; it repeats until it is answered.
            report: charge_request::Report::Unanswered.into(),
        };
        let mut payments = self.payments.clone();
        match call(payments.charge(asking(request))).await {
            Answer::Ok(payment) => match payment.state() {
                payment::v1::payment::State::Captured if pays(&payment, &order.total) => {
                    Outcome::Done(Paid { payment_id })
                }
                // Captured, and given back meanwhile, in whole or in part: it does not pay for the order.
                payment::v1::payment::State::Captured => Outcome::Abort {
                    reason: reason::PAYMENT_CANCELLED.into(),
                    detail: json!({ "payment_id": payment_id }),
                },
                payment::v1::payment::State::Processing => Outcome::Pending {
                    ask_again_after: ask_again_after(context),
                    progress: Progress::Processing,
                },
                state => Outcome::Park { reason: format!("a charge answered {state:?}") },
            },
            Answer::Refused { reason, metadata } => match reason.as_str() {
                // A token that payment-svc cannot read is the customer's, not ours: like a card that is declined.
                reason::PAYMENT_DECLINED | reason::PAYMENT_CANCELLED | reason::INVALID_FIELD => {
                    Outcome::Abort { reason, detail: json!(metadata) }
                }
                _ => Outcome::Park { reason: format!("payment-svc refused a charge with {reason}") },
            },
            Answer::Unknown(reason) => Outcome::Retry { reason },
        }
    }

    /// Waits for the report of a payment; asks payment-svc itself only at the deadline.
    async fn wait(&self, context: &Context<'_, Checkout>) -> Outcome<Paid> {
        match context.signals(PAYMENT) {
            Ok(reports) => {
                if let Some(Reported { payment_id }) = reports.into_iter().next() {
                    return self.settle(context, payment_id).await;
                }
            }
            Err(unreadable) => return unreadable.into(),
        }
        let until_deadline = context.deadline.and_then(|deadline| (deadline - context.now).to_std().ok());
        if !context.last_ask {
            let ask_again_after = until_deadline.unwrap_or(ASK_MAX).max(ASK_MIN);
            return Outcome::Pending { ask_again_after, progress: Progress::Idle };
        }
        let mut payments = self.payments.clone();
        let asked = asking(ListPaymentsRequest { scope: scope(context.saga) });
        let found = match call(payments.list_payments(asked)).await.or_ask_again() {
            Ok(found) => found.payments,
            Err(reason) => return Outcome::Retry { reason },
        };
        if let Some(payment) = found.iter().find(|payment| pays(payment, &context.input.total)) {
            // The order row is the referee between two payments; whichever it names counts.
            return match self.store.count_payment(context.input.order_id, &payment.payment_id).await {
                Ok(payment_id) => self.settle(context, payment_id).await,
                Err(error) => Outcome::Retry { reason: error.to_string() },
            };
        }
        let processing =
            found.iter().any(|payment| payment.state() == payment::v1::payment::State::Processing);
        let progress = if processing { Progress::Processing } else { Progress::Idle };
        Outcome::Pending { ask_again_after: ASK_WHILE_PROCESSING, progress }
    }

    /// One payment counts: all other money of the scope goes back, and later charges of it are refused. The one that
    /// counts may have been given back meanwhile; then the order is not paid.
    async fn settle(&self, context: &Context<'_, Checkout>, payment_id: String) -> Outcome<Paid> {
        let mut payments = self.payments.clone();
        let request =
            CancelPaymentRequest { scope: scope(context.saga), keep_payment_id: payment_id.clone() };
        match call(payments.cancel_payment(asking(request))).await.or_ask_again() {
            Ok(settled)
                if settled.payments.iter().any(|payment| {
                    payment.payment_id == payment_id && pays(payment, &context.input.total)
                }) =>
            {
                Outcome::Done(Paid { payment_id })
            }
            Ok(_) => Outcome::Abort {
                reason: reason::PAYMENT_CANCELLED.into(),
                detail: json!({ "payment_id": payment_id }),
            },
            Err(reason) => Outcome::Retry { reason },
        }
    }
}

/// Whether a payment keeps exactly this total.
fn pays(payment: &payment::v1::Payment, total: &Money) -> bool {
    let units = |money: &Option<money::v1::Money>| money.as_ref().map_or(0, |money| money.minor_units);
    let currency = payment.amount.as_ref().map(|amount| amount.currency.as_str());
    payment.state() == payment::v1::payment::State::Captured
        && currency == Some(total.currency.0.as_str())
        && units(&payment.captured) - units(&payment.refunded) == total.amount.0
}

/// Asks soon at first and less often later: half of the time that has passed, within limits. The report of the
/// payment wakes the saga earlier.
fn ask_again_after(context: &Context<'_, Checkout>) -> Duration {
    (context.age() / 2).clamp(ASK_MIN, ASK_MAX)
}

/// As soon as a provider may have answered.
const ASK_MIN: Duration = Duration::from_millis(100);
/// A report that was lost is made up for by then.
const ASK_MAX: Duration = Duration::from_mins(1);
/// After the deadline somebody waits for the end of a payment that is under way.
const ASK_WHILE_PROCESSING: Duration = Duration::from_secs(1);
