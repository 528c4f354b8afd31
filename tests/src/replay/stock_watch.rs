//! Reading every SKU's counters through ListStock.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use proto::inventory::v1::{ListStockRequest, Stock};

use super::call::patiently;
use crate::clients::Inventory;

const PAGE_SIZE: i32 = 1_000;
/// Ten million SKUs: a shop with more than that is a page token that leads in a circle.
const PAGES_MAX: usize = 10_000;

/// Counters per SKU.
pub type Counters = BTreeMap<String, Stock>;

/// All SKUs there are.
pub async fn all(inventory: &Inventory) -> Result<Counters> {
    let mut counters = Counters::new();
    let mut page_token = String::new();
    for _ in 0..PAGES_MAX {
        let request = ListStockRequest { page_size: PAGE_SIZE, page_token };
        let listed =
            patiently(request, async |request| inventory.clone().list_stock(request).await).await?.answer;
        for stock in listed.stock {
            let sku = stock.sku.clone();
            ensure!(counters.insert(sku.clone(), stock).is_none(), "{sku} is listed twice");
        }
        page_token = listed.next_page_token;
        if page_token.is_empty() {
            return Ok(counters);
        }
    }
    anyhow::bail!("ListStock does not end after {PAGES_MAX} pages")
}

/// What is wrong with the counters of one SKU by themselves.
pub fn identity(stock: &Stock) -> Result<()> {
    let Stock { sku, available, held, sold, received, .. } = stock;
    ensure!(
        *available >= 0 && *held >= 0 && *sold >= 0 && available + held + sold == *received,
        "{sku}: available {available} + held {held} + sold {sold} ≠ received {received}"
    );
    Ok(())
}
