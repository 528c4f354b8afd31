//! The gRPC face of the port: parses, runs the use case in its own task, and names what went wrong.
//!
//! A caller who hangs up stops nothing: what was begun at the provider must be written down. Absent: rules.

use crate::{
    charge::ChargeError,
    give_back::GiveBackError,
    payment::{State, Wish},
    payments::Payments,
    record::Payment,
    refund::RefundError,
    store::StoreError,
    wire,
};
use proto::{
    payment::v1::{self as pb, payment_service_server::PaymentService},
    reason,
};
use runtime::{
    detached,
    status::{Violation, invalid_fields, refusal, retry_later},
};
use std::time::Duration;
use tonic::{Code, Request, Response, Status};

/// What callers are asked to wait before they ask again.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The service.
#[derive(Clone)]
pub(crate) struct Grpc {
    payments: Payments,
}

impl Grpc {
    /// Serves `payments`.
    pub(crate) fn new(payments: Payments) -> Self {
        Self { payments }
    }
}

#[tonic::async_trait]
impl PaymentService for Grpc {
    async fn charge(&self, request: Request<pb::ChargeRequest>) -> Result<Response<pb::Payment>, Status> {
        let payments = self.payments.clone();
        let check_token = |token: &str| payments.provider().check_token(token);
        let charge = wire::charge(request.into_inner(), check_token).map_err(invalid)?;
        let payment = detached(async move { payments.charge(&charge).await }).await.map_err(charge_status)?;
        charged(&payment)
    }

    async fn get_payment(
        &self,
        request: Request<pb::GetPaymentRequest>,
    ) -> Result<Response<pb::Payment>, Status> {
        let id = wire::payment_id(&request.get_ref().payment_id).map_err(invalid)?;
        let payments = self.payments.clone();
        let found = detached(async move { payments.get(&id).await }).await.map_err(|e| store_status(&e))?;
        Ok(Response::new(wire::payment(&found.ok_or_else(unknown_payment)?)))
    }

    async fn list_payments(
        &self,
        request: Request<pb::ListPaymentsRequest>,
    ) -> Result<Response<pb::ListPaymentsResponse>, Status> {
        let scope = wire::scope(&request.get_ref().scope).map_err(invalid)?;
        let payments = self.payments.clone();
        let listed =
            detached(async move { payments.list(&scope).await }).await.map_err(|e| store_status(&e))?;
        Ok(Response::new(pb::ListPaymentsResponse { payments: listed.iter().map(wire::payment).collect() }))
    }

    async fn cancel_payment(
        &self,
        request: Request<pb::CancelPaymentRequest>,
    ) -> Result<Response<pb::CancelPaymentResponse>, Status> {
        let (scope, keep) = wire::cancel(request.get_ref()).map_err(invalid)?;
        let payments = self.payments.clone();
        let ended = detached(async move { payments.cancel_scope(&scope, keep.as_ref()).await })
            .await
            .map_err(|e| give_back_status(&e))?;
        Ok(Response::new(pb::CancelPaymentResponse { payments: ended.iter().map(wire::payment).collect() }))
    }

    async fn refund(&self, request: Request<pb::RefundRequest>) -> Result<Response<pb::Payment>, Status> {
        let refund = wire::refund(request.get_ref()).map_err(invalid)?;
        let payments = self.payments.clone();
        let payment = detached(async move { payments.refund(&refund).await }).await.map_err(refund_status)?;
        Ok(Response::new(wire::payment(&payment)))
    }
}

/// The answer to a charge: where the payment stands, if it may still be or become money of the caller's.
fn charged(payment: &Payment) -> Result<Response<pb::Payment>, Status> {
    if payment.standing.state == State::Declined {
        let metadata = [
            ("payment_id".to_owned(), payment.payment_id.to_string()),
            ("decline_reason".to_owned(), payment.decline_reason.clone()),
        ];
        return Err(refuse(
            Code::FailedPrecondition,
            reason::PAYMENT_DECLINED,
            "the provider declined",
            metadata,
        ));
    }
    if payment.standing.wish == Wish::GiveBack || payment.standing.state == State::Cancelled {
        let metadata = [("payment_id".to_owned(), payment.payment_id.to_string())];
        return Err(refuse(
            Code::FailedPrecondition,
            reason::PAYMENT_CANCELLED,
            "the payment is cancelled",
            metadata,
        ));
    }
    Ok(Response::new(wire::payment(payment)))
}

fn charge_status(error: ChargeError) -> Status {
    match error {
        ChargeError::Reused => reused("payment_id"),
        ChargeError::ScopeCancelled => {
            refuse(Code::FailedPrecondition, reason::PAYMENT_CANCELLED, "the scope is cancelled", [])
        }
        ChargeError::ProviderUnavailable => provider_unavailable(),
        ChargeError::Store(error) => store_status(&error),
    }
}

fn refund_status(error: RefundError) -> Status {
    match error {
        RefundError::UnknownPayment => unknown_payment(),
        RefundError::Reused => reused("request_id"),
        RefundError::OtherCurrency { expected } => invalid(vec![Violation {
            field: "amount.currency".to_owned(),
            description: format!("the payment is in {expected}"),
        }]),
        RefundError::Exceeds(why) => {
            refuse(Code::FailedPrecondition, reason::REFUND_EXCEEDS_CAPTURED, &why, [])
        }
        RefundError::ProviderUnavailable => provider_unavailable(),
        RefundError::Store(error) => store_status(&error),
    }
}

fn give_back_status(error: &GiveBackError) -> Status {
    match error {
        GiveBackError::ProviderUnavailable | GiveBackError::Refused(_) => provider_unavailable(),
        GiveBackError::Store(error) => store_status(error),
    }
}

/// What the database says stays in the log.
fn store_status(error: &StoreError) -> Status {
    tracing::error!(%error, source = ?std::error::Error::source(error), "the book failed");
    let text = "the store failed; ask again with the same id";
    retry_later(Code::Unavailable, reason::DOMAIN, reason::STORE_UNAVAILABLE, text, RETRY_AFTER)
}

fn provider_unavailable() -> Status {
    let text = "the provider did not answer; ask again with the same id";
    retry_later(Code::Unavailable, reason::DOMAIN, reason::PROVIDER_UNAVAILABLE, text, RETRY_AFTER)
}

fn unknown_payment() -> Status {
    refuse(Code::NotFound, reason::UNKNOWN_PAYMENT, "no payment has this id", [])
}

fn reused(field: &str) -> Status {
    let text = format!("{field} was used with another content");
    refuse(Code::InvalidArgument, reason::REQUEST_ID_REUSED, &text, [])
}

fn invalid(violations: wire::Violations) -> Status {
    invalid_fields(reason::DOMAIN, reason::INVALID_FIELD, violations)
}

fn refuse(
    code: Code,
    reason: &str,
    message: &str,
    metadata: impl IntoIterator<Item = (String, String)>,
) -> Status {
    refusal(code, reason::DOMAIN, reason, message, metadata)
}
