//! `inventory.v1.InventoryService`.

use proto::inventory::v1::{
    ConfirmRequest, GetReservationRequest, GetStockRequest, ListStockRequest, ListStockResponse,
    ReleaseRequest, Reservation, ReserveRequest, Stock, inventory_service_server::InventoryService,
};
use runtime::detached;
use tonic::{Request, Response, Status, async_trait};

use super::{Api, invalid, status};
use crate::wire;

const ID: &str = "reservation_id";

#[async_trait]
impl InventoryService for Api {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<Reservation>, Status> {
        let order = wire::reserve(request.get_ref()).map_err(invalid)?;
        let (inventory, id) = (self.0.clone(), order.id.clone());
        let done = detached(async move { inventory.reserve(order).await }).await;
        let record = done.map_err(|error| status(error, ID, id.as_str()))?;
        Ok(Response::new(wire::reservation(&id, &record)))
    }

    async fn confirm(&self, request: Request<ConfirmRequest>) -> Result<Response<Reservation>, Status> {
        let id = wire::reservation_id(&request.get_ref().reservation_id).map_err(invalid)?;
        let (inventory, asked) = (self.0.clone(), id.clone());
        let done = detached(async move { inventory.confirm(&asked).await }).await;
        let record = done.map_err(|error| status(error, ID, id.as_str()))?;
        Ok(Response::new(wire::reservation(&id, &record)))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<Reservation>, Status> {
        let id = wire::reservation_id(&request.get_ref().reservation_id).map_err(invalid)?;
        let (inventory, asked) = (self.0.clone(), id.clone());
        let done = detached(async move { inventory.release(&asked).await }).await;
        let record = done.map_err(|error| status(error, ID, id.as_str()))?;
        Ok(Response::new(wire::reservation(&id, &record)))
    }

    async fn get_reservation(
        &self,
        request: Request<GetReservationRequest>,
    ) -> Result<Response<Reservation>, Status> {
        let id = wire::reservation_id(&request.get_ref().reservation_id).map_err(invalid)?;
        let (inventory, asked) = (self.0.clone(), id.clone());
        let done = detached(async move { inventory.reservation(&asked).await }).await;
        let record = done.map_err(|error| status(error, ID, id.as_str()))?;
        Ok(Response::new(wire::reservation(&id, &record)))
    }

    async fn get_stock(&self, request: Request<GetStockRequest>) -> Result<Response<Stock>, Status> {
        let sku = wire::sku(&request.get_ref().sku).map_err(invalid)?;
        let (inventory, asked) = (self.0.clone(), sku.clone());
        let done = detached(async move { inventory.stock(&asked).await }).await;
        let counters = done.map_err(|error| status(error, "sku", sku.as_str()))?;
        Ok(Response::new(wire::stock(&sku, &counters)))
    }

    async fn list_stock(
        &self,
        request: Request<ListStockRequest>,
    ) -> Result<Response<ListStockResponse>, Status> {
        let page = wire::page(request.get_ref()).map_err(invalid)?;
        let inventory = self.0.clone();
        // One more than the page holds says whether there is a next one.
        let size = page.size;
        let done = detached(async move { inventory.stock_after(page.after.as_ref(), size + 1).await }).await;
        let mut balances = done.map_err(|error| status(error, "", ""))?;
        let fits = usize::try_from(size).unwrap_or(usize::MAX);
        let more = balances.len() > fits;
        balances.truncate(fits);
        let last = balances.last().filter(|_| more);
        let next_page_token = last.map_or_else(String::new, |last| wire::page_token(&last.sku));
        let stock = balances.iter().map(|balance| wire::stock(&balance.sku, &balance.counters)).collect();
        Ok(Response::new(ListStockResponse { stock, next_page_token }))
    }
}
