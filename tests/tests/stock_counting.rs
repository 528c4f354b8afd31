//! Cases C01 to C06 and C20: who gets how much. Each runs inventory-svc as a process, through its public API.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt};
use harness::invariants::hold_for_stock;
use harness::reasons::{Refusal, assert_refused};
use harness::requests::reserve;
use harness::stack::Stack;
use proto::inventory::v1::{Reservation, reservation};
use proto::reason;
use tonic::{Code, Response, Status};

const IN_FLIGHT: usize = 64;

/// `(held, refused for lack of stock)` of many answers; anything else is an error.
fn tally(answers: &[Result<Response<Reservation>, Status>]) -> Result<(usize, usize)> {
    let (mut held, mut short) = (0, 0);
    for answer in answers {
        match answer {
            Ok(reservation) => {
                ensure!(reservation.get_ref().state() == reservation::State::Held, "{reservation:?}");
                held += 1;
            }
            Err(status) => {
                ensure!(Refusal::of(status).reason == reason::INSUFFICIENT_STOCK, "{status:?}");
                short += 1;
            }
        }
    }
    Ok((held, short))
}

#[tokio::test]
async fn c01_one_unit_and_a_hundred_callers() -> Result<()> {
    let stack = Stack::stock().await?;
    stack.receive("LAST", 1).await?;
    let calls = (0..100).map(|caller| {
        let mut inventory = stack.clients.inventory.clone();
        async move { inventory.reserve(reserve(&format!("r{caller}"), &[("LAST", 1)])).await }
    });
    let answers = futures::future::join_all(calls).await;
    assert_eq!(tally(&answers)?, (1, 99));
    assert_eq!(stack.counters("LAST").await?, (0, 1, 0));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c02_the_last_unit_sells() -> Result<()> {
    let stack = Stack::stock().await?;
    stack.receive("A", 3).await?;
    let held = stack.clients.inventory.clone().reserve(reserve("r", &[("A", 3)])).await?.into_inner();
    assert_eq!(held.state(), reservation::State::Held);
    assert_eq!(stack.counters("A").await?, (0, 3, 0));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c03_lines_of_one_sku_count_together() -> Result<()> {
    let stack = Stack::stock().await?;
    stack.receive("A", 5).await?;
    let mut inventory = stack.clients.inventory.clone();
    let six = inventory.reserve(reserve("six", &[("A", 3), ("A", 3)])).await;
    assert_refused(six, Code::FailedPrecondition, reason::INSUFFICIENT_STOCK);
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    let five = inventory.reserve(reserve("five", &[("A", 2), ("A", 3)])).await?.into_inner();
    assert_eq!(five.lines.iter().map(|line| (&*line.sku, line.quantity)).collect::<Vec<_>>(), [("A", 5)]);
    assert_eq!(stack.counters("A").await?, (0, 5, 0));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c04_a_refused_order_is_never_seen_in_part() -> Result<()> {
    const REFUSALS: usize = 200;
    const READERS: usize = 4;
    let stack = Stack::stock().await?;
    stack.receive("A", 10).await?;
    stack.receive("B", 1).await?;
    let mut inventory = stack.clients.inventory.clone();
    inventory.reserve(reserve("takes-b", &[("B", 1)])).await?;
    let over = AtomicBool::new(false);
    let refusing = async {
        for attempt in 0..REFUSALS {
            let asked = reserve(&format!("r{attempt}"), &[("A", 2), ("B", 1)]);
            let refusal = assert_refused(
                inventory.reserve(asked).await,
                Code::FailedPrecondition,
                reason::INSUFFICIENT_STOCK,
            );
            assert_eq!(refusal.metadata.get("skus").map(String::as_str), Some("B"));
        }
        over.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let reading = futures::future::try_join_all((0..READERS).map(|_| async {
        let mut reads = 0_usize;
        while !over.load(Ordering::Relaxed) {
            assert_eq!(stack.counters("A").await?, (10, 0, 0));
            reads += 1;
        }
        anyhow::Ok(reads)
    }));
    let ((), reads) = tokio::try_join!(refusing, reading)?;
    assert!(reads.iter().sum::<usize>() > 0, "nobody read");
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c05_too_many_and_then_enough() -> Result<()> {
    let stack = Stack::stock().await?;
    stack.receive("A", 2).await?;
    let mut inventory = stack.clients.inventory.clone();
    let three = inventory.reserve(reserve("three", &[("A", 3)])).await;
    assert_refused(three, Code::FailedPrecondition, reason::INSUFFICIENT_STOCK);
    let two = inventory.reserve(reserve("two", &[("A", 2)])).await?.into_inner();
    assert_eq!(two.state(), reservation::State::Held);
    assert_eq!(stack.counters("A").await?, (0, 2, 0));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c06_opposite_orders_of_two_skus_do_not_deadlock() -> Result<()> {
    let stack = Stack::stock().await?;
    stack.receive("A", 1_000).await?;
    stack.receive("B", 1_000).await?;
    let calls = (0..2_000).map(|call| {
        let mut inventory = stack.clients.inventory.clone();
        let lines = if call % 2 == 0 { [("A", 1), ("B", 1)] } else { [("B", 1), ("A", 1)] };
        async move { inventory.reserve(reserve(&format!("r{call}"), &lines)).await }
    });
    let answers: Vec<_> = stream::iter(calls).buffer_unordered(IN_FLIGHT).collect().await;
    assert_eq!(tally(&answers)?, (1_000, 1_000));
    assert_eq!(stack.counters("A").await?, (0, 1_000, 0));
    assert_eq!(stack.counters("B").await?, (0, 1_000, 0));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c20a_a_sku_never_received_is_unknown() -> Result<()> {
    let stack = Stack::stock().await?;
    stack.receive("KNOWN", 1).await?;
    let asked = reserve("r", &[("KNOWN", 1), ("NEVER-1", 1), ("NEVER-2", 1)]);
    let answer = stack.clients.inventory.clone().reserve(asked).await;
    let refusal = assert_refused(answer, Code::NotFound, reason::UNKNOWN_SKU);
    assert_eq!(refusal.metadata.get("skus").map(String::as_str), Some("NEVER-1,NEVER-2"));
    assert_eq!(stack.counters("KNOWN").await?, (1, 0, 0));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c20b_a_sku_sold_out_is_short() -> Result<()> {
    let stack = Stack::stock().await?;
    stack.receive("A", 1).await?;
    let mut inventory = stack.clients.inventory.clone();
    inventory.reserve(reserve("first", &[("A", 1)])).await?;
    let answer = inventory.reserve(reserve("second", &[("A", 1)])).await;
    assert_refused(answer, Code::FailedPrecondition, reason::INSUFFICIENT_STOCK);
    hold_for_stock(&stack).await
}
