//! OrderService: parses, runs the use case in a task of its own, and says what came of it. Statuses are built here
//! and in `grpc/sagas.rs`, and nowhere else in this crate.

pub mod sagas;

use std::{pin::Pin, time::Duration};

use futures::Stream;
use proto::{
    orders::v1::{self as api, order_service_server::OrderService},
    reason::{self, DOMAIN},
};
use runtime::{
    deadline::remaining,
    detached,
    status::{Violation, invalid_fields, refusal, retry_later},
    telemetry::current_traceparent,
};
use saga::Engine;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status};

use crate::{
    cancel_order::{CancelError, cancel_order},
    peers::Peers,
    place_order::{PlaceError, place_order},
    report_payment::{ReportError, report_payment},
    store::Store,
    watch_order, wire,
};

/// What the service needs to answer.
#[derive(Clone)]
pub struct OrderApi {
    /// Orders.
    pub store: Store,
    /// Their sagas.
    pub engine: Engine,
    /// The services that are asked.
    pub peers: Peers,
    /// How long an order waits for its payment if its request does not say.
    pub expire_after_default: Duration,
    /// How long holds outlive the deadline: payment grace and hold margin.
    pub hold_beyond_deadline: Duration,
    /// Cancelled when the service stops: then streams end by themselves.
    pub shutdown: CancellationToken,
}

/// Kept from a call's patience for the answer itself.
const ANSWER_MARGIN: Duration = Duration::from_millis(50);
/// After this long a refused call may be tried again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

#[tonic::async_trait]
impl OrderService for OrderApi {
    async fn create_order(
        &self,
        request: Request<api::CreateOrderRequest>,
    ) -> Result<Response<api::Order>, Status> {
        let placement = wire::placement(request.into_inner(), self.expire_after_default).map_err(bad)?;
        let (api, patience, traceparent) = (self.clone(), patience(), current_traceparent());
        let placed = detached(async move {
            place_order(&api.store, &api.engine, placement, api.hold_beyond_deadline, patience, traceparent)
                .await
        });
        match placed.await {
            Ok(order) => Ok(Response::new(wire::order(&order))),
            Err(PlaceError::RequestIdReused) => Err(refusal(
                Code::InvalidArgument,
                DOMAIN,
                reason::REQUEST_ID_REUSED,
                PlaceError::RequestIdReused.to_string(),
                [],
            )),
            Err(PlaceError::Overloaded) => Err(overloaded()),
            Err(PlaceError::Stopping) => {
                let message = "the service stops; nothing was begun";
                Err(retry_later(Code::Unavailable, DOMAIN, reason::STOPPING, message, RETRY_AFTER))
            }
            Err(error @ PlaceError::Unanswered) => {
                let code = Code::Unavailable;
                Err(retry_later(code, DOMAIN, reason::STORE_UNAVAILABLE, error.to_string(), RETRY_AFTER))
            }
            Err(PlaceError::Refused) => Err(Status::internal(PlaceError::Refused.to_string())),
            Err(PlaceError::Store(error)) => Err(store_failed(&error)),
            Err(PlaceError::Journal(error)) => Err(store_failed(&error)),
        }
    }

    async fn get_order(
        &self,
        request: Request<api::GetOrderRequest>,
    ) -> Result<Response<api::Order>, Status> {
        let order_id = wire::order_id(&request.into_inner().order_id).map_err(bad)?;
        let store = self.store.clone();
        match detached(async move { store.order(order_id).await }).await {
            Ok(Some(order)) => Ok(Response::new(wire::order(&order))),
            Ok(None) => Err(unknown_order()),
            Err(error) => Err(store_failed(&error)),
        }
    }

    async fn list_orders(
        &self,
        request: Request<api::ListOrdersRequest>,
    ) -> Result<Response<api::ListOrdersResponse>, Status> {
        let filter = wire::filter(request.into_inner()).map_err(bad)?;
        let store = self.store.clone();
        let listed =
            detached(async move { store.list(&filter).await.map(|found| wire::listed(&filter, &found)) });
        listed.await.map(Response::new).map_err(|error| store_failed(&error))
    }

    async fn cancel_order(
        &self,
        request: Request<api::CancelOrderRequest>,
    ) -> Result<Response<api::Order>, Status> {
        let (order_id, request_id, etag) = wire::cancellation(request.into_inner()).map_err(bad)?;
        let (api, patience) = (self.clone(), patience());
        let cancelled = detached(async move {
            cancel_order(&api.store, &api.engine, order_id, &request_id.0, etag, patience).await
        });
        match cancelled.await {
            Ok(order) => Ok(Response::new(wire::order(&order))),
            Err(CancelError::UnknownOrder) => Err(unknown_order()),
            Err(error @ (CancelError::TooLate(state) | CancelError::Parked(state))) => Err(refusal(
                Code::FailedPrecondition,
                DOMAIN,
                reason::ILLEGAL_TRANSITION,
                error.to_string(),
                [("state".to_owned(), state.as_str().to_owned())],
            )),
            Err(CancelError::Changed) => Err(refusal(
                Code::Aborted,
                DOMAIN,
                reason::ETAG_MISMATCH,
                CancelError::Changed.to_string(),
                [],
            )),
            Err(CancelError::Store(error)) => Err(store_failed(&error)),
            Err(CancelError::Journal(error)) => Err(store_failed(&error)),
        }
    }

    type WatchOrderStream = Pin<Box<dyn Stream<Item = Result<api::Order, Status>> + Send>>;

    async fn watch_order(
        &self,
        request: Request<api::WatchOrderRequest>,
    ) -> Result<Response<Self::WatchOrderStream>, Status> {
        let order_id = wire::order_id(&request.into_inner().order_id).map_err(bad)?;
        let changes = watch_order::watch_order(
            self.store.clone(),
            self.engine.clone(),
            order_id,
            self.shutdown.clone(),
        );
        let changes = futures::StreamExt::map(changes, |change| match change {
            Ok(order) => Ok(wire::order(&order)),
            Err(watch_order::WatchError::UnknownOrder) => Err(unknown_order()),
            Err(error @ watch_order::WatchError::Stopping) => {
                let message = error.to_string();
                Err(retry_later(Code::Unavailable, DOMAIN, reason::STOPPING, message, RETRY_AFTER))
            }
            Err(watch_order::WatchError::Store(error)) => Err(store_failed(&error)),
            Err(watch_order::WatchError::Journal(error)) => Err(store_failed(&error)),
        });
        Ok(Response::new(Box::pin(changes)))
    }

    async fn report_payment(
        &self,
        request: Request<api::ReportPaymentRequest>,
    ) -> Result<Response<api::ReportPaymentResponse>, Status> {
        let report = wire::report(request.into_inner()).map_err(bad)?;
        let api = self.clone();
        match detached(async move { report_payment(&api.store, &api.engine, &api.peers, &report).await })
            .await
        {
            Ok(disposition) => Ok(Response::new(wire::disposition(disposition))),
            Err(ReportError::UnknownOrder) => Err(unknown_order()),
            Err(ReportError::NotSo(description)) => {
                Err(bad(vec![Violation { field: "payment_id".into(), description: description.into() }]))
            }
            Err(error @ ReportError::CannotAsk(_)) => {
                tracing::warn!(%error, "a report waits");
                let message = "payment-svc cannot be asked; report again";
                Err(retry_later(
                    Code::Unavailable,
                    DOMAIN,
                    reason::PROVIDER_UNAVAILABLE,
                    message,
                    RETRY_AFTER,
                ))
            }
            Err(ReportError::Overloaded) => Err(overloaded()),
            Err(ReportError::Store(error)) => Err(store_failed(&error)),
            Err(ReportError::Journal(error)) => Err(store_failed(&error)),
        }
    }
}

/// How long the use case may wait: what the call has left, less the time to answer.
fn patience() -> Duration {
    remaining().unwrap_or_default().saturating_sub(ANSWER_MARGIN)
}

fn bad(violations: Vec<Violation>) -> Status {
    invalid_fields(DOMAIN, reason::INVALID_FIELD, violations)
}

fn unknown_order() -> Status {
    refusal(Code::NotFound, DOMAIN, reason::UNKNOWN_ORDER, "there is no such order", [])
}

fn overloaded() -> Status {
    let message = "too much is under way; nothing was begun";
    retry_later(Code::ResourceExhausted, DOMAIN, reason::OVERLOADED, message, RETRY_AFTER)
}

/// What the store says stays in the log: it may name tables and addresses.
fn store_failed(error: &(dyn std::error::Error + 'static)) -> Status {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    tracing::error!(%error, cause, "a call failed at the store");
    let message = "the order store is not available; ask again with the same request id";
    retry_later(Code::Unavailable, DOMAIN, reason::STORE_UNAVAILABLE, message, RETRY_AFTER)
}
