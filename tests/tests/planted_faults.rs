//! The invariant checker against faults planted in each store: a checker that finds nothing must have looked.

use anyhow::{Result, ensure};
use harness::invariants::{check, hold};
use harness::requests::pay_now;
use harness::stack::Stack;
use proto::orders::v1::order::State;
use sqlx::{AssertSqlSafe, PgPool};

/// A stack at rest with one sold and one cancelled order.
async fn at_rest() -> Result<Stack> {
    let stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    for (request_id, token, end) in
        [("sold", "sim_approve", State::Confirmed), ("declined", "sim_decline", State::Cancelled)]
    {
        let request = pay_now(request_id, &[("A", 2)], token);
        let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
        ensure!(order.state() == end, "{request_id} is {:?}", order.state());
    }
    hold(&stack).await?;
    Ok(stack)
}

async fn plant(database: &PgPool, sql: &str) -> Result<()> {
    let planted = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(database).await?;
    ensure!(planted.rows_affected() == 1, "{} rows planted by {sql}", planted.rows_affected());
    Ok(())
}

async fn finds(stack: &Stack, rules: &[&str]) -> Result<()> {
    let found = check(stack).await?;
    for rule in rules {
        ensure!(found.iter().any(|violation| violation.rule == *rule), "{rule:?} is not among {found:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_unit_lost_in_the_gate_is_found() -> Result<()> {
    let stack = at_rest().await?;
    let mut gate = redis::Client::open(stack.stores.redis.url())?.get_multiplexed_async_connection().await?;
    let keys: Vec<String> = redis::cmd("KEYS").arg("hf:*:stock:A").query_async(&mut gate).await?;
    ensure!(keys.len() == 1, "stock keys {keys:?}");
    let _: i64 = redis::cmd("HINCRBY").arg(&keys[0]).arg("held").arg(1).query_async(&mut gate).await?;
    finds(&stack, &["the gate says what the movements add up to"]).await
}

#[tokio::test]
async fn a_unit_lost_in_the_ledger_is_found() -> Result<()> {
    let stack = at_rest().await?;
    plant(&stack.stores.inventory.pool()?, "UPDATE inventory.balances SET sold = sold - 1").await?;
    finds(&stack, &["the balances are what the movements add up to"]).await?;
    plant(&stack.stores.inventory.pool()?, "UPDATE inventory.movements SET prev = 'forged' WHERE seq = 3")
        .await?;
    finds(&stack, &["the chain of movements is unbroken"]).await
}

#[tokio::test]
async fn money_kept_for_nothing_is_found() -> Result<()> {
    let stack = at_rest().await?;
    let sql = "UPDATE payment_simulator.charges SET status = 'CAPTURED' WHERE token = 'sim_decline'";
    plant(&stack.stores.payment.pool()?, sql).await?;
    finds(&stack, &["our book says what the provider's says"]).await?;
    let sql = "UPDATE payment.payments SET state = 'CAPTURED', captured = amount, due_at = NULL,
               cancel_requested_at = NULL WHERE payment_token = 'sim_decline'";
    plant(&stack.stores.payment.pool()?, sql).await?;
    finds(
        &stack,
        &[
            "confirmed ⇔ exactly one payment of its total is kept",
            "no payment is kept beside those of confirmed orders",
        ],
    )
    .await
}

#[tokio::test]
async fn an_order_that_its_saga_does_not_know_is_found() -> Result<()> {
    let stack = at_rest().await?;
    let database = stack.stores.orders.pool()?;
    let sql =
        "UPDATE orders.orders SET state = 'CANCELLED', cancel_reason = 'CUSTOMER' WHERE request_id = 'sold'";
    plant(&database, sql).await?;
    finds(
        &stack,
        &[
            "a saga ends as its order does",
            "an order owns what it confirmed and holds nothing when it has ended",
            "confirmed ⇔ exactly one payment of its total is kept",
        ],
    )
    .await
}

#[tokio::test]
async fn a_saga_that_never_ended_is_found() -> Result<()> {
    let stack = at_rest().await?;
    let database = stack.stores.orders.pool()?;
    let sql = "
        WITH moved AS (DELETE FROM saga.finished WHERE status = 'UNDONE' RETURNING *)
        INSERT INTO saga.instances (id, kind, version, status, seq, epoch, attributes, started)
        SELECT id, kind, version, 'PARKED', seq, epoch, attributes, history->0 FROM moved";
    plant(&database, sql).await?;
    finds(&stack, &["every saga ends"]).await?;
    plant(
        &database,
        "UPDATE saga.finished SET history = (history::jsonb - 1)::json WHERE id = (SELECT id FROM saga.finished LIMIT 1)",
    )
    .await?;
    finds(&stack, &["the journal has no gaps"]).await
}
