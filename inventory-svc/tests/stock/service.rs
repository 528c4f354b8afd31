//! The service in this process, on a free port, with a generated client.

use std::time::{Duration, Instant};

use clap::Parser as _;
use inventory_svc::config::Config;
use proto::{
    inventory::v1::{
        self as api, inventory_service_client::InventoryServiceClient,
        stock_service_client::StockServiceClient,
    },
    reason::DOMAIN,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::stores::Stores;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Service {
    pub(crate) reservations: InventoryServiceClient<runtime::client::Client>,
    pub(crate) stock: StockServiceClient<runtime::client::Client>,
    stop: CancellationToken,
    served: JoinHandle<Result<(), inventory_svc::ServeError>>,
}

impl Service {
    pub(crate) async fn start(stores: &Stores) -> Self {
        Self::start_with(stores, &[]).await
    }

    pub(crate) async fn start_with(stores: &Stores, flags: &[&str]) -> Self {
        let (database, redis) = (stores.database_url(), stores.redis_url());
        let mut arguments = vec!["inventory-svc", "--database-url", &database, "--redis-url", &redis];
        arguments.extend(flags);
        let config = Config::parse_from(arguments);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let served = tokio::spawn(inventory_svc::serve(config, listener, stop.clone()));
        let client = runtime::client::connect(&url).unwrap();
        let reservations = InventoryServiceClient::new(client.clone());
        let service = Self { reservations, stock: StockServiceClient::new(client), stop, served };
        service.until_ready().await;
        service
    }

    /// Waits until stock can be read.
    pub(crate) async fn until_ready(&self) {
        let give_up = Instant::now() + PATIENCE;
        while let Err(status) = self.get("no such SKU").await {
            if status.code() == Code::NotFound {
                return;
            }
            assert!(Instant::now() < give_up, "the service did not become ready: {status:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.served.await.unwrap().unwrap();
    }

    /// Ends the service as a crash would: nothing is drained.
    pub(crate) async fn abort(self) {
        self.served.abort();
        drop(self.served.await);
    }

    pub(crate) async fn reserve(&self, id: &str, lines: &[(&str, i64)]) -> Result<api::Reservation, Status> {
        self.reserve_for(id, lines, Duration::from_secs(60)).await
    }

    pub(crate) async fn reserve_for(
        &self,
        id: &str,
        lines: &[(&str, i64)],
        hold_for: Duration,
    ) -> Result<api::Reservation, Status> {
        let line = |&(sku, quantity): &(&str, i64)| api::Line { sku: sku.to_owned(), quantity };
        let request = api::ReserveRequest {
            reservation_id: id.to_owned(),
            lines: lines.iter().map(line).collect(),
            hold_for: Some(hold_for.try_into().unwrap()),
            customer_id: String::new(),
        };
        self.reservations.clone().reserve(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn confirm(&self, id: &str) -> Result<api::Reservation, Status> {
        let request = api::ConfirmRequest { reservation_id: id.to_owned() };
        self.reservations.clone().confirm(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn release(&self, id: &str) -> Result<api::Reservation, Status> {
        let request = api::ReleaseRequest { reservation_id: id.to_owned() };
        self.reservations.clone().release(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn reservation(&self, id: &str) -> Result<api::Reservation, Status> {
        let request = api::GetReservationRequest { reservation_id: id.to_owned() };
        self.reservations.clone().get_reservation(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn get(&self, sku: &str) -> Result<api::Stock, Status> {
        let request = api::GetStockRequest { sku: sku.to_owned() };
        self.reservations.clone().get_stock(request).await.map(tonic::Response::into_inner)
    }

    /// available, held, sold and received of a SKU.
    pub(crate) async fn counters(&self, sku: &str) -> [i64; 4] {
        let stock = self.get(sku).await.unwrap();
        assert_eq!(stock.available + stock.held + stock.sold, stock.received, "{sku}");
        [stock.available, stock.held, stock.sold, stock.received]
    }

    pub(crate) async fn receive(
        &self,
        request_id: &str,
        sku: &str,
        quantity: i64,
    ) -> Result<api::Stock, Status> {
        let request = api::ReceiveStockRequest {
            sku: sku.to_owned(),
            quantity,
            request_id: request_id.to_owned(),
            reason: "PURCHASE".to_owned(),
        };
        self.stock.clone().receive_stock(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn adjust(&self, request_id: &str, sku: &str, delta: i64) -> Result<api::Stock, Status> {
        let request = api::AdjustStockRequest {
            sku: sku.to_owned(),
            delta,
            request_id: request_id.to_owned(),
            reason: "COUNT".to_owned(),
        };
        self.stock.clone().adjust_stock(request).await.map(tonic::Response::into_inner)
    }
}

/// Code, reason, and the SKUs it names.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String, String) {
    let status = answer.unwrap_err();
    let reason =
        runtime::status::reason(&status, DOMAIN).unwrap_or_else(|| panic!("no reason in {status:?}"));
    let skus = reason.metadata.get("skus").cloned().unwrap_or_default();
    (status.code(), reason.reason, skus)
}

/// The reason alone.
pub(crate) fn reason<T: std::fmt::Debug>(answer: Result<T, Status>) -> String {
    refusal(answer).1
}
