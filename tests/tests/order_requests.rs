//! Cases C31 to C33, and C19 for orders: the same request again, the same id otherwise, requests that cannot be
//! meant, and a request that failed inside.

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::deadline::eventually;
use harness::invariants::hold;
use harness::reasons::{assert_refused, refused};
use harness::replay::call::patiently;
use harness::requests::{pay_later, pay_now, within};
use harness::stack::{Plan, Stack};
use harness::stores::Database;
use proto::orders::v1::order::State;
use proto::orders::v1::{CreateOrderRequest, ListOrdersRequest, Order};
use proto::payment::v1::{ListPaymentsRequest, payment};
use proto::reason;
use sqlx::AssertSqlSafe;
use tonic::Code;

const SOON: Duration = Duration::from_secs(10);

async fn placed_as(stack: &Stack, request_id: &str) -> Result<Vec<Order>> {
    let request = ListOrdersRequest { request_id: request_id.to_owned(), ..Default::default() };
    Ok(stack.clients.orders.clone().list_orders(request).await?.into_inner().orders)
}

async fn known_as(stack: &Stack, request_id: &str) -> Result<Order> {
    eventually("the order is known", SOON, async || {
        let mut orders = placed_as(stack, request_id).await?;
        ensure!(orders.len() == 1, "{} orders", orders.len());
        Ok(orders.remove(0))
    })
    .await
}

async fn fifty_callers(request: CreateOrderRequest, state: State) -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 100).await?;
    let calls = (0..50).map(|_| {
        let (mut orders, request) = (stack.clients.orders.clone(), request.clone());
        async move { orders.create_order(request).await }
    });
    let answers = futures::future::try_join_all(calls).await?;
    let first = answers[0].get_ref();
    assert_eq!(first.state(), state);
    for answer in &answers {
        assert_eq!(answer.get_ref(), first);
    }
    assert_eq!(placed_as(&stack, &request.request_id).await?.len(), 1);
    stack.ended(&first.order_id, SOON).await?;
    hold(&stack).await
}

#[tokio::test]
async fn c31a_fifty_callers_place_one_paid_order() -> Result<()> {
    fifty_callers(pay_now("same", &[("A", 2)], "sim_approve"), State::Confirmed).await
}

#[tokio::test]
async fn c31b_fifty_callers_place_one_order_that_waits() -> Result<()> {
    fifty_callers(pay_later("same", &[("A", 2)], Duration::from_secs(3)), State::AwaitingPayment).await
}

#[tokio::test]
async fn c31c_fifty_callers_are_refused_alike() -> Result<()> {
    fifty_callers(pay_now("same", &[("A", 101)], "sim_approve"), State::Cancelled).await
}

#[tokio::test]
async fn c32_an_id_with_another_body_is_refused_before_and_after_the_end() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 10).await?;
    let mut orders = stack.clients.orders.clone();
    let first = async {
        let request = pay_now("same", &[("A", 1)], "sim_approve_after_1000");
        anyhow::Ok(stack.clients.orders.clone().create_order(request).await?.into_inner())
    };
    let others = [
        pay_now("same", &[("A", 2)], "sim_approve_after_1000"),
        pay_now("same", &[("A", 1)], "sim_approve"),
        pay_later("same", &[("A", 1)], Duration::from_secs(60)),
    ];
    let meanwhile = async {
        let running = known_as(&stack, "same").await?;
        ensure!(running.state() != State::Confirmed, "the first has ended already");
        for other in others.clone() {
            let answer = orders.create_order(other).await;
            assert_refused(answer, Code::InvalidArgument, reason::REQUEST_ID_REUSED);
        }
        Ok(())
    };
    let (ended, ()) = tokio::try_join!(first, meanwhile)?;
    assert_eq!(ended.state(), State::Confirmed);
    for other in others {
        let answer = orders.create_order(other).await;
        assert_refused(answer, Code::InvalidArgument, reason::REQUEST_ID_REUSED);
    }
    assert_eq!(stack.counters("A").await?, (9, 0, 1));
    hold(&stack).await
}

/// Takes a database away from everybody: no new connection, and none of the old ones.
async fn take_away(stack: &Stack, database: &Database) -> Result<()> {
    let mut admin = stack.stores.admin().await?;
    let sql = format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false", database.name);
    sqlx::query(AssertSqlSafe(sql)).execute(&mut admin).await?;
    eventually("nobody is connected", SOON, async || {
        let ended = sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1")
            .bind(&database.name)
            .fetch_all(&mut admin)
            .await?;
        ensure!(ended.is_empty(), "{} were", ended.len());
        Ok(())
    })
    .await
}

async fn give_back(stack: &Stack, database: &Database) -> Result<()> {
    let sql = format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS true", database.name);
    sqlx::query(AssertSqlSafe(sql)).execute(&mut stack.stores.admin().await?).await?;
    Ok(())
}

#[tokio::test]
async fn c33a_a_request_that_found_no_database_is_executed_when_repeated() -> Result<()> {
    let stack = Plan::all().own_databases().start().await?;
    stack.receive("A", 10).await?;
    let request = pay_now("again", &[("A", 1)], "sim_approve");
    take_away(&stack, &stack.stores.orders).await?;
    let answer =
        stack.clients.orders.clone().create_order(within(Duration::from_secs(2), request.clone())).await;
    let refusal = refused(answer);
    assert!(matches!(refusal.code, Code::Unavailable | Code::DeadlineExceeded), "{refusal:?}");
    assert_eq!(stack.counters("A").await?, (10, 0, 0));
    give_back(&stack, &stack.stores.orders).await?;
    let repeated =
        patiently(request, async |request| stack.clients.orders.clone().create_order(request).await);
    assert_eq!(repeated.await?.answer.state(), State::Confirmed);
    assert_eq!(stack.counters("A").await?, (9, 0, 1));
    hold(&stack).await
}

#[tokio::test]
async fn c33b_a_request_that_lost_its_database_midway_is_finished_when_repeated() -> Result<()> {
    let stack = Plan::all().own_databases().start().await?;
    stack.receive("A", 10).await?;
    let request = pay_now("again", &[("A", 1)], "sim_approve_after_500");
    let first = async {
        // Whatever this call is answered: it is the repeat that counts.
        let _ =
            stack.clients.orders.clone().create_order(within(Duration::from_secs(3), request.clone())).await;
        anyhow::Ok(())
    };
    let meanwhile = async {
        let order = known_as(&stack, "again").await?;
        let scope = ListPaymentsRequest { scope: order.payment_scope };
        let in_state = async |state: payment::State| {
            let listed = stack.clients.payments.clone().list_payments(scope.clone()).await?.into_inner();
            let states: Vec<_> = listed.payments.iter().map(proto::payment::v1::Payment::state).collect();
            ensure!(states == [state], "{states:?}");
            Ok(())
        };
        eventually("payment is under way", SOON, async || in_state(payment::State::Processing).await).await?;
        take_away(&stack, &stack.stores.orders).await?;
        eventually("the provider was paid", SOON, async || in_state(payment::State::Captured).await).await?;
        give_back(&stack, &stack.stores.orders).await
    };
    tokio::try_join!(first, meanwhile)?;
    let repeated =
        patiently(request.clone(), async |request| stack.clients.orders.clone().create_order(request).await);
    let order = repeated.await?.answer;
    assert_eq!(stack.ended(&order.order_id, SOON).await?.state(), State::Confirmed);
    assert_eq!(stack.counters("A").await?, (9, 0, 1));
    hold(&stack).await
}

#[tokio::test]
async fn c19l_an_order_that_cannot_be_meant_names_every_violation() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    let valid = pay_now("valid", &[("A", 1)], "sim_approve");
    let priced = |currency: &str, minor_units| {
        let mut request = valid.clone();
        let price = proto::money::v1::Money { currency: currency.to_owned(), minor_units };
        request.lines[0].unit_price = Some(price);
        request
    };
    let table: Vec<(CreateOrderRequest, &[&str])> = vec![
        (CreateOrderRequest::default(), &["request_id", "lines", "payment"]),
        (
            pay_now("r", &[("A", 10), ("A", 0), ("", 1), ("{}", -5)], "t"),
            &["lines[1].quantity", "lines[2].sku", "lines[3].sku", "lines[3].quantity"],
        ),
        (pay_now("r", &vec![("A", 1); 1_501], "t"), &["lines"]),
        (pay_now("r", &[("A", 1)], ""), &["pay_now.payment_token"]),
        (pay_later("r", &[("A", 1)], Duration::from_millis(999)), &["expire_after"]),
        (CreateOrderRequest { customer_id: "no spaces".to_owned(), ..valid.clone() }, &["customer_id"]),
        (priced("pounds", 1), &["lines[0].unit_price.currency"]),
        (priced("GBP", -1), &["lines[0].unit_price.minor_units"]),
    ];
    for (request, fields) in table {
        let answer = stack.clients.orders.clone().create_order(request).await;
        let refusal = assert_refused(answer, Code::InvalidArgument, reason::INVALID_FIELD);
        assert_eq!(refusal.fields, fields);
    }
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    let known = stack.clients.orders.clone().list_orders(ListOrdersRequest::default()).await?.into_inner();
    assert_eq!(known.orders, []);
    hold(&stack).await
}
