//! Cases C08 to C12, C14 and C17: the same call again, calls out of order, and ids used twice.

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::deadline::eventually;
use harness::invariants::hold_for_stock;
use harness::reasons::{Refusal, assert_refused};
use harness::requests::{receive, reserve, reserve_for, within};
use harness::stack::Stack;
use proto::inventory::v1::reservation::State;
use proto::inventory::v1::{ConfirmRequest, GetReservationRequest, ReleaseRequest, Reservation};
use proto::reason;
use tonic::Code;

fn release(id: &str) -> ReleaseRequest {
    ReleaseRequest { reservation_id: id.to_owned() }
}

fn confirm(id: &str) -> ConfirmRequest {
    ConfirmRequest { reservation_id: id.to_owned() }
}

async fn reservation(stack: &Stack, id: &str) -> Result<Reservation> {
    let request = GetReservationRequest { reservation_id: id.to_owned() };
    Ok(stack.clients.inventory.clone().get_reservation(request).await?.into_inner())
}

#[tokio::test]
async fn c08_a_lost_answer_is_found_again() -> Result<()> {
    // Patience from nothing to a few milliseconds: the answer is lost before, while or after the hold is made.
    const STEPS: u64 = 40;
    const STEP: Duration = Duration::from_micros(250);
    let stack = Stack::stock().await?;
    let mut inventory = stack.clients.inventory.clone();
    let mut lost = 0;
    for step in 0..STEPS {
        let sku = format!("S{step}");
        stack.receive(&sku, 1).await?;
        let asked = reserve(&format!("r{step}"), &[(&sku, 1)]);
        let impatient =
            tokio::time::timeout(STEP * u32::try_from(step)?, inventory.reserve(asked.clone())).await;
        lost += usize::from(impatient.is_err());
        let again = inventory.reserve(asked).await?.into_inner();
        assert_eq!(again.state(), State::Held, "step {step}");
        assert_eq!(stack.counters(&sku).await?, (0, 1, 0), "step {step}");
    }
    assert!(lost > 0, "no answer was lost");
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c09_a_refusal_is_remembered() -> Result<()> {
    let stack = Stack::stock().await?;
    let mut inventory = stack.clients.inventory.clone();
    stack.receive("A", 1).await?;
    inventory.reserve(reserve("takes-it", &[("A", 1)])).await?;
    let asked = reserve("r", &[("A", 1)]);
    let first = assert_refused(
        inventory.reserve(asked.clone()).await,
        Code::FailedPrecondition,
        reason::INSUFFICIENT_STOCK,
    );
    stack.clients.stock.clone().receive_stock(receive("refill", "A", 5)).await?;
    let second =
        assert_refused(inventory.reserve(asked).await, Code::FailedPrecondition, reason::INSUFFICIENT_STOCK);
    assert_eq!(first, second);
    assert_eq!(reservation(&stack, "r").await?.state(), State::Refused);
    assert_eq!(inventory.reserve(reserve("other", &[("A", 1)])).await?.into_inner().state(), State::Held);
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c10_a_release_that_comes_first_wins() -> Result<()> {
    let stack = Stack::stock().await?;
    let mut inventory = stack.clients.inventory.clone();
    stack.receive("A", 1).await?;
    inventory.release(release("r")).await?;
    let late = inventory.reserve(reserve("r", &[("A", 1)])).await;
    assert_refused(late, Code::FailedPrecondition, reason::RESERVATION_RELEASED);
    assert_eq!(stack.counters("A").await?, (1, 0, 0));
    assert_eq!(reservation(&stack, "r").await?.state(), State::Released);
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c11_two_releases_of_an_unknown_id_leave_one_tombstone() -> Result<()> {
    let stack = Stack::stock().await?;
    let (mut one, mut two) = (stack.clients.inventory.clone(), stack.clients.inventory.clone());
    let (one, two) = tokio::try_join!(one.release(release("r")), two.release(release("r")))?;
    assert_eq!(one.into_inner(), two.into_inner());
    let tombstones: i64 =
        sqlx::query_scalar("SELECT count(*) FROM inventory.movements WHERE reservation_id = 'r'")
            .fetch_one(&stack.stores.inventory.pool()?)
            .await?;
    assert_eq!(tombstones, 1);
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c12_released_twice_and_expired_too_returns_units_once() -> Result<()> {
    let stack = Stack::stock().await?;
    let mut inventory = stack.clients.inventory.clone();
    stack.receive("A", 10).await?;
    let hold = Duration::from_secs(1);
    inventory.reserve(reserve_for("r1", &[("A", 5)], hold)).await?;
    inventory.reserve(reserve("r2", &[("A", 5)])).await?;
    inventory.release(release("r1")).await?;
    inventory.release(release("r1")).await?;
    // This hold lapses after r1 would have: when it is gone, so is every chance of r1 to expire.
    inventory.reserve(reserve_for("later", &[("A", 1)], hold)).await?;
    eventually("the later hold lapses", Duration::from_secs(10), async || {
        let state = reservation(&stack, "later").await?.state();
        ensure!(state == State::Expired, "it is {state:?}");
        Ok(())
    })
    .await?;
    assert_eq!(stack.counters("A").await?, (5, 5, 0));
    assert_eq!(reservation(&stack, "r1").await?.state(), State::Released);
    assert_eq!(reservation(&stack, "r2").await?.state(), State::Held);
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c14a_what_is_sold_cannot_be_released() -> Result<()> {
    let stack = Stack::stock().await?;
    let mut inventory = stack.clients.inventory.clone();
    stack.receive("A", 5).await?;
    inventory.reserve(reserve("r", &[("A", 2)])).await?;
    inventory.confirm(confirm("r")).await?;
    let late = inventory.release(release("r")).await;
    assert_refused(late, Code::FailedPrecondition, reason::RESERVATION_CONFIRMED);
    assert_eq!(inventory.confirm(confirm("r")).await?.into_inner().state(), State::Confirmed);
    assert_eq!(stack.counters("A").await?, (3, 0, 2));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c14b_what_is_given_back_cannot_be_sold() -> Result<()> {
    let stack = Stack::stock().await?;
    let mut inventory = stack.clients.inventory.clone();
    stack.receive("A", 5).await?;
    inventory.reserve(reserve("s", &[("A", 2)])).await?;
    inventory.release(release("s")).await?;
    let late = inventory.confirm(confirm("s")).await;
    assert_refused(late, Code::FailedPrecondition, reason::RESERVATION_RELEASED);
    assert_eq!(inventory.release(release("s")).await?.into_inner().state(), State::Released);
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c17a_an_id_with_other_lines_is_refused() -> Result<()> {
    let stack = Stack::stock().await?;
    let mut inventory = stack.clients.inventory.clone();
    stack.receive("A", 5).await?;
    stack.receive("B", 5).await?;
    inventory.reserve(reserve("r", &[("A", 1)])).await?;
    for other in [reserve("r", &[("A", 2)]), reserve("r", &[("B", 1)]), reserve("r", &[("A", 1), ("B", 1)])] {
        let answer = inventory.reserve(other).await;
        assert_refused(answer, Code::InvalidArgument, reason::REQUEST_ID_REUSED);
    }
    assert_eq!(stack.counters("A").await?, (4, 1, 0));
    assert_eq!(stack.counters("B").await?, (5, 0, 0));
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c17b_an_id_with_the_same_lines_otherwise_written_is_a_repeat() -> Result<()> {
    let stack = Stack::stock().await?;
    let mut inventory = stack.clients.inventory.clone();
    stack.receive("A", 5).await?;
    stack.receive("B", 5).await?;
    let first = inventory.reserve(reserve("r", &[("A", 2), ("B", 1)])).await?.into_inner();
    let again = inventory.reserve(reserve("r", &[("B", 1), ("A", 1), ("A", 1)])).await?.into_inner();
    assert_eq!(first, again);
    hold_for_stock(&stack).await
}

#[tokio::test]
async fn c17c_a_receipt_id_with_another_quantity_is_refused() -> Result<()> {
    let stack = Stack::stock().await?;
    let mut warehouse = stack.clients.stock.clone();
    warehouse.receive_stock(receive("delivery", "A", 5)).await?;
    let other = warehouse.receive_stock(within(Duration::from_secs(5), receive("delivery", "A", 6))).await;
    let refusal = other.as_ref().err().map(Refusal::of);
    assert_eq!(
        refusal.map(|refusal| refusal.reason).as_deref(),
        Some(reason::REQUEST_ID_REUSED),
        "{other:?}"
    );
    warehouse.receive_stock(receive("delivery", "A", 5)).await?;
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    hold_for_stock(&stack).await
}
