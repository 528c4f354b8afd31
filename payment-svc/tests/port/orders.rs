//! The peer that reports are delivered to: a real gRPC server that records what it is told.
//!
//! It stands in for the order service in tests of delivery only; what an order makes of a report is not simulated.

use proto::orders::v1::{
    self as pb, ReportPaymentRequest, ReportPaymentResponse,
    order_service_server::{OrderService, OrderServiceServer},
    report_payment_response::Disposition,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// One report as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) report: ReportPaymentRequest,
    pub(crate) traceparent: Option<String>,
    pub(crate) taken: bool,
}

/// The peer. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Orders {
    told: Arc<Mutex<Vec<Told>>>,
    /// How often an order is still unknown when it is reported to.
    unknown: Arc<Mutex<HashMap<String, u32>>>,
}

impl Orders {
    pub(crate) fn serve(&self, listener: TcpListener) -> tokio::task::JoinHandle<()> {
        let service = OrderServiceServer::new(self.clone());
        tokio::spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        })
    }

    pub(crate) fn not_found_at_first(&self, order: &str, times: u32) {
        self.unknown.lock().unwrap().insert(order.to_owned(), times);
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Vec<Told>> {
        self.told.lock().unwrap()
    }

    /// The reports that were taken for an order.
    pub(crate) fn taken(&self, order: &str) -> Vec<Told> {
        self.told().iter().filter(|told| told.taken && told.report.order_id == order).cloned().collect()
    }
}

#[tonic::async_trait]
impl OrderService for Orders {
    type WatchOrderStream = tokio_stream::Empty<Result<pb::Order, Status>>;

    async fn report_payment(
        &self,
        request: Request<ReportPaymentRequest>,
    ) -> Result<Response<ReportPaymentResponse>, Status> {
        let traceparent =
            request.metadata().get("traceparent").and_then(|v| v.to_str().ok()).map(ToOwned::to_owned);
        let report = request.into_inner();
        let unknown = {
            let mut unknown = self.unknown.lock().unwrap();
            let left = unknown.entry(report.order_id.clone()).or_default();
            let is_unknown = *left > 0;
            *left = left.saturating_sub(1);
            is_unknown
        };
        let mut told = self.told();
        let known = told.iter().any(|t| t.taken && t.report.provider_event_id == report.provider_event_id);
        told.push(Told { report, traceparent, taken: !unknown });
        if unknown {
            return Err(Status::not_found("no order has this id"));
        }
        let disposition = if known { Disposition::Duplicate } else { Disposition::Applied };
        Ok(Response::new(ReportPaymentResponse { disposition: disposition.into() }))
    }

    async fn create_order(&self, _: Request<pb::CreateOrderRequest>) -> Result<Response<pb::Order>, Status> {
        Err(Status::unimplemented("not a shop"))
    }
    async fn get_order(&self, _: Request<pb::GetOrderRequest>) -> Result<Response<pb::Order>, Status> {
        Err(Status::unimplemented("not a shop"))
    }
    async fn list_orders(
        &self,
        _: Request<pb::ListOrdersRequest>,
    ) -> Result<Response<pb::ListOrdersResponse>, Status> {
        Err(Status::unimplemented("not a shop"))
    }
    async fn cancel_order(&self, _: Request<pb::CancelOrderRequest>) -> Result<Response<pb::Order>, Status> {
        Err(Status::unimplemented("not a shop"))
    }
    async fn watch_order(
        &self,
        _: Request<pb::WatchOrderRequest>,
    ) -> Result<Response<Self::WatchOrderStream>, Status> {
        Err(Status::unimplemented("not a shop"))
    }
}
