//! Case C19: requests that cannot be meant. Every violation is named at once, and nothing happens.

use anyhow::Result;
use harness::invariants::hold_for_stock;
use harness::reasons::assert_refused;
use harness::requests::{receive, reserve};
use harness::stack::Stack;
use proto::inventory::v1::{AdjustStockRequest, ReserveRequest};
use proto::reason;
use tonic::Code;

/// Reserves what cannot be reserved; exactly these fields are named, and the stock is as before.
async fn names(request: ReserveRequest, fields: &[&str]) -> Result<()> {
    let stack = Stack::stock().await?;
    stack.receive("A", 5).await?;
    let answer = stack.clients.inventory.clone().reserve(request).await;
    let refusal = assert_refused(answer, Code::InvalidArgument, reason::INVALID_FIELD);
    assert_eq!(refusal.fields, fields);
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c19a_quantity_zero() -> Result<()> {
    names(reserve("r", &[("A", 0)]), &["lines[0].quantity"]).await
}

#[tokio::test]
async fn c19b_quantity_below_zero() -> Result<()> {
    names(reserve("r", &[("A", 1), ("A", -5)]), &["lines[1].quantity"]).await
}

#[tokio::test]
async fn c19c_quantity_above_a_million() -> Result<()> {
    names(reserve("r", &[("A", 1_000_001)]), &["lines[0].quantity"]).await
}

#[tokio::test]
async fn c19d_no_lines() -> Result<()> {
    names(reserve("r", &[]), &["lines"]).await
}

#[tokio::test]
async fn c19e_more_lines_than_1500_counted_before_merging() -> Result<()> {
    names(reserve("r", &vec![("A", 1); 1_501]), &["lines"]).await
}

#[tokio::test]
async fn c19f_empty_sku() -> Result<()> {
    names(reserve("r", &[("", 1)]), &["lines[0].sku"]).await
}

#[tokio::test]
async fn c19g_sku_of_300_characters() -> Result<()> {
    names(reserve("r", &[(&"A".repeat(300), 1)]), &["lines[0].sku"]).await
}

#[tokio::test]
async fn c19h_control_characters_in_a_sku() -> Result<()> {
    names(
        reserve("r", &[("A\n", 1), ("A\0B", 1), ("\u{7f}", 1)]),
        &["lines[0].sku", "lines[1].sku", "lines[2].sku"],
    )
    .await
}

#[tokio::test]
async fn c19i_braces_in_a_sku() -> Result<()> {
    names(reserve("r", &[("{p1}", 1), ("A{}", 1)]), &["lines[0].sku", "lines[1].sku"]).await
}

#[tokio::test]
async fn c19j_every_violation_at_once() -> Result<()> {
    let request = reserve("spaces are not allowed", &[("A", 0), ("{}", 1), ("", -1)]);
    let fields = ["reservation_id", "lines[0].quantity", "lines[1].sku", "lines[2].sku", "lines[2].quantity"];
    names(request, &fields).await
}

#[tokio::test]
async fn c19k_receipts_and_corrections_of_nothing() -> Result<()> {
    let stack = Stack::stock().await?;
    let mut warehouse = stack.clients.stock.clone();
    let answer = warehouse.receive_stock(receive("", "", 0)).await;
    let refusal = assert_refused(answer, Code::InvalidArgument, reason::INVALID_FIELD);
    assert_eq!(refusal.fields, ["quantity", "sku", "request_id"]);
    let answer = warehouse.adjust_stock(AdjustStockRequest::default()).await;
    let refusal = assert_refused(answer, Code::InvalidArgument, reason::INVALID_FIELD);
    assert_eq!(refusal.fields, ["delta", "sku", "request_id", "reason"]);
    hold_for_stock(&stack).await
}
