//! Clients of the public API over plain tonic channels: no code of ours between the test and the wire.

use std::time::Duration;

use anyhow::Result;
use proto::inventory::v1::inventory_service_client::InventoryServiceClient;
use proto::inventory::v1::stock_service_client::StockServiceClient;
use proto::orders::v1::order_service_client::OrderServiceClient;
use proto::orders::v1::saga_service_client::SagaServiceClient;
use proto::payment::v1::payment_service_client::PaymentServiceClient;
use tonic::transport::{Channel, Endpoint};

/// Client of orders.v1.OrderService.
pub type Orders = OrderServiceClient<Channel>;
/// Client of orders.v1.SagaService.
pub type Sagas = SagaServiceClient<Channel>;
/// Client of inventory.v1.InventoryService.
pub type Inventory = InventoryServiceClient<Channel>;
/// Client of inventory.v1.StockService.
pub type Stock = StockServiceClient<Channel>;
/// Client of payment.v1.PaymentService.
pub type Payments = PaymentServiceClient<Channel>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A channel that connects at the first call and again after the server was gone.
pub fn channel(url: &str) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(url.to_owned())?;
    Ok(endpoint.tcp_nodelay(true).connect_timeout(CONNECT_TIMEOUT).connect_lazy())
}

/// The services of a running system.
#[derive(Debug, Clone)]
pub struct Clients {
    /// orders.v1.OrderService.
    pub orders: Orders,
    /// orders.v1.SagaService.
    pub sagas: Sagas,
    /// inventory.v1.InventoryService.
    pub inventory: Inventory,
    /// inventory.v1.StockService.
    pub stock: Stock,
    /// payment.v1.PaymentService.
    pub payments: Payments,
}

impl Clients {
    /// Clients for three addresses (`http://host:port`). Connects at the first call.
    pub fn connect(orders_url: &str, inventory_url: &str, payment_url: &str) -> Result<Self> {
        let (orders, inventory) = (channel(orders_url)?, channel(inventory_url)?);
        Ok(Self {
            orders: Orders::new(orders.clone()),
            sagas: Sagas::new(orders),
            inventory: Inventory::new(inventory.clone()),
            stock: Stock::new(inventory),
            payments: Payments::new(channel(payment_url)?),
        })
    }
}
