//! Putting stock on the shelves and bringing returns back, through StockService.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use proto::inventory::v1::{AdjustStockRequest, ReceiveStockRequest};

use super::call::patiently;
use super::stock_plan::Shelf;
use super::untidy::ShopReturn;
use crate::clients::Stock;

/// Fills every shelf, `in_flight` SKUs at a time. Gives the units received net per SKU.
pub async fn fill(
    stock: &Stock,
    run_id: &str,
    shelves: &BTreeMap<String, Shelf>,
    in_flight: usize,
) -> Result<BTreeMap<String, i64>> {
    let fills = shelves.iter().enumerate().map(|(index, (sku, shelf))| async move {
        fill_one(stock, &format!("{run_id}.stock.{index}"), sku, *shelf).await?;
        anyhow::Ok((sku.clone(), shelf.stocked))
    });
    stream::iter(fills).buffer_unordered(in_flight).try_collect().await
}

async fn fill_one(stock: &Stock, request_id: &str, sku: &str, shelf: Shelf) -> Result<()> {
    // Nothing left is not the same as never seen: the SKU is received and adjusted away again.
    let received = shelf.stocked.max(1);
    receive(stock, request_id, sku, received, "PURCHASE").await?;
    if shelf.stocked < received {
        let request = AdjustStockRequest {
            sku: sku.to_owned(),
            delta: shelf.stocked - received,
            request_id: format!("{request_id}.count"),
            reason: "COUNT".to_owned(),
        };
        let adjusted = patiently(request, async |request| stock.clone().adjust_stock(request).await).await;
        adjusted.with_context(|| format!("adjusting {sku}"))?;
    }
    Ok(())
}

/// Takes one return back: every SKU of it, one after the other.
pub async fn bring_back(stock: &Stock, run_id: &str, back: &ShopReturn) -> Result<()> {
    for (index, (sku, units)) in back.units.iter().enumerate() {
        let request_id = format!("{run_id}.{}.{index}", back.invoice);
        receive(stock, &request_id, sku, *units, "RETURN").await?;
    }
    Ok(())
}

async fn receive(stock: &Stock, request_id: &str, sku: &str, quantity: i64, reason: &str) -> Result<()> {
    let request = ReceiveStockRequest {
        sku: sku.to_owned(),
        quantity,
        request_id: request_id.to_owned(),
        reason: reason.to_owned(),
    };
    let received = patiently(request, async |request| stock.clone().receive_stock(request).await).await;
    received.with_context(|| format!("receiving {sku}"))?;
    Ok(())
}
