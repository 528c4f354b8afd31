//! `inventory.v1.StockService`.

use proto::inventory::v1::{
    AdjustStockRequest, ReceiveStockRequest, Stock, stock_service_server::StockService,
};
use runtime::detached;
use tonic::{Request, Response, Status, async_trait};

use super::{Api, invalid, status};
use crate::{inventory::CallError, reservation::RefusalReason, stock::ChangeStock, wire};

#[async_trait]
impl StockService for Api {
    async fn receive_stock(&self, request: Request<ReceiveStockRequest>) -> Result<Response<Stock>, Status> {
        self.change(wire::receive(request.get_ref()).map_err(invalid)?).await
    }

    async fn adjust_stock(&self, request: Request<AdjustStockRequest>) -> Result<Response<Stock>, Status> {
        self.change(wire::adjust(request.get_ref()).map_err(invalid)?).await
    }
}

impl Api {
    async fn change(&self, change: ChangeStock) -> Result<Response<Stock>, Status> {
        let (inventory, sku) = (self.0.clone(), change.sku.clone());
        let done = detached(async move { inventory.change_stock(&change).await }).await;
        let counters = done.map_err(|error| match error {
            CallError::ChangeRefused(RefusalReason::UnknownSku) => {
                status(CallError::UnknownSku, "sku", sku.as_str())
            }
            error => status(error, "request_id", sku.as_str()),
        })?;
        Ok(Response::new(wire::stock(&sku, &counters)))
    }
}
