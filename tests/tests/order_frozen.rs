//! Case C52: order-svc frozen past its lease while something it said is under way. Another process takes the order over
//! and ends it; then what was under way arrives, and the frozen one goes on. Nothing it says or writes may count.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::clients::Clients;
use harness::deadline::eventually;
use harness::invariants::hold;
use harness::proxy::{Held, Moment, Proxy};
use harness::requests::pay_now;
use harness::service::{Part, Service};
use harness::stack::{Plan, Stack, has_ended};
use proto::orders::v1::order::{CancelReason, State};
use proto::orders::v1::{CancelOrderRequest, ListOrdersRequest, Order};
use proto::payment::v1::{ListPaymentsRequest, Payment};

const SOON: Duration = Duration::from_secs(15);
const LEASE_MS: &str = "1500";
const HEARTBEAT_MS: &str = "300";
/// Lease, the scan that finds it out, and the rest of the order; for a lock that a frozen session holds, the two seconds
/// after which the database ends the journal writer's idle transaction.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(25);
const RECEIVED: i64 = 1_000;

/// What the frozen process has under way.
#[derive(Debug, Clone, Copy)]
enum Said {
    /// A record of its journal.
    Record(&'static str, Held),
    /// The n-th call to inventory-svc.
    Inventory(usize, Held),
    /// The n-th call to payment-svc.
    Payment(usize, Held),
}

impl Said {
    fn link(self, stack: &Stack) -> Result<&Proxy> {
        let links = stack.links()?;
        Ok(match self {
            Self::Record(..) => &links.database,
            Self::Inventory(..) => &links.inventory,
            Self::Payment(..) => &links.payment,
        })
    }

    fn moment(self) -> Moment {
        match self {
            Self::Record(event, held) => Moment::Record { event, held },
            Self::Inventory(nth, held) | Self::Payment(nth, held) => Moment::Call { nth, held },
        }
    }
}

/// What may not change any more once the order has ended.
#[derive(Debug, PartialEq)]
struct Standing {
    order: Order,
    counters: (i64, i64, i64),
    payments: Vec<Payment>,
    /// Status, seq, epoch, and length of the saga's journal.
    saga: (String, i64, i64, i64),
    /// Movements of stock.
    movements: i64,
}

const SAGA: &str = "
    -- where a saga stands
    SELECT s.status, s.seq, s.epoch, (SELECT count(*) FROM saga.event_list e WHERE e.saga_id = s.id)
    FROM saga.sagas s WHERE s.id = $1::uuid";

async fn standing(stack: &Stack, clients: &Clients, request_id: &str) -> Result<Standing> {
    let request = ListOrdersRequest { request_id: request_id.to_owned(), ..Default::default() };
    let mut orders = clients.orders.clone().list_orders(request).await?.into_inner().orders;
    ensure!(orders.len() == 1, "{} orders", orders.len());
    let order = orders.remove(0);
    let scope = ListPaymentsRequest { scope: order.payment_scope.clone() };
    let payments = clients.payments.clone().list_payments(scope).await?.into_inner().payments;
    let saga = sqlx::query_as(SAGA).bind(&order.saga_id).fetch_one(&stack.stores.orders.pool()?).await?;
    let movements = sqlx::query_scalar("SELECT count(*) FROM inventory.movements")
        .fetch_one(&stack.stores.inventory.pool()?)
        .await?;
    Ok(Standing { counters: stack.counters("A").await?, order, payments, saga, movements })
}

/// Asks the second process to cancel the order.
async fn cancel(clients: &Clients, request_id: &str) -> Result<()> {
    let request = ListOrdersRequest { request_id: request_id.to_owned(), ..Default::default() };
    let orders = clients.orders.clone().list_orders(request).await?.into_inner().orders;
    let order_id = orders.first().context("the order is placed")?.order_id.clone();
    let request = CancelOrderRequest { order_id, request_id: "cancel".to_owned(), etag: String::new() };
    clients.orders.clone().cancel_order(request).await?;
    Ok(())
}

/// Two processes of order-svc; the first one says everything through proxies.
struct Pair {
    stack: Stack,
    second: Service,
    /// What the second one is asked with.
    clients: Clients,
}

impl Pair {
    async fn start() -> Result<Self> {
        let plan = Plan::all().linked().traced();
        let plan = plan.env(Part::Order, "HOLDFAST_LEASE_MS", LEASE_MS);
        let stack = plan.env(Part::Order, "HOLDFAST_HEARTBEAT_MS", HEARTBEAT_MS).start().await?;
        stack.receive("A", RECEIVED).await?;
        let mut second = stack.another(Part::Order)?;
        second.start().await?;
        let clients = Clients::connect(&second.url(), &stack.inventory.url(), &stack.payment.url())?;
        Ok(Self { stack, second, clients })
    }

    /// Freezes the first process at the moment, until the second one has ended the order; then lets what was held
    /// arrive, and the first one go on.
    async fn outlive(&self, name: &str, said: Said, token: &str, cancelled: bool) -> Result<Standing> {
        let Self { stack, clients, .. } = self;
        said.link(stack)?.arm(said.moment());
        let (mut orders, request) = (stack.clients.orders.clone(), pay_now(name, &[("A", 2)], token));
        let caller = tokio::spawn(async move { orders.create_order(request).await });
        said.link(stack)?.holds(SOON).await?;
        stack.order.freeze()?;
        if cancelled {
            cancel(clients, name).await?;
        }
        let ended = eventually("the second process ends the order", TAKEN_OVER_WITHIN, async || {
            let standing = standing(stack, clients, name).await?;
            ensure!(has_ended(standing.order.state()), "it is {:?}", standing.order.state());
            ensure!(matches!(&*standing.saga.0, "COMPLETED" | "UNDONE"), "its saga is {}", standing.saga.0);
            Ok(standing)
        })
        .await?;
        said.link(stack)?.release().await?;
        let late = standing(stack, clients, name).await?;
        ensure!(late == ended, "what arrived late counted: {late:?} instead of {ended:?}");
        stack.order.thaw()?;
        let told = caller.await?.context("the frozen process forgot its caller")?.into_inner();
        ensure!(told == ended.order, "the frozen process told its caller {told:?}, not {:?}", ended.order);
        let trace_id = &ended.order.trace_id;
        stack.sink()?.wait_for(trace_id, SOON, harness::sink::Trace::resumed).await?;
        hold(stack).await?;
        let thawed = standing(stack, clients, name).await?;
        ensure!(thawed == ended, "what it did afterwards counted: {thawed:?} instead of {ended:?}");
        Ok(ended)
    }

    /// It is a worker like any other again.
    async fn ends(mut self) -> Result<()> {
        let request = pay_now("afterwards", &[("A", 2)], "sim_approve");
        let order = self.stack.clients.orders.clone().create_order(request).await?.into_inner();
        ensure!(order.state() == State::Confirmed, "{:?}", order.state());
        hold(&self.stack).await?;
        self.second.stop().await?;
        self.stack.order.stop().await
    }
}

/// Each with an order of its own.
#[expect(clippy::print_stdout, reason = "the test runner shows it with a failure")]
async fn check(token: &str, end: (State, CancelReason), said: &[Said]) -> Result<()> {
    let pair = Pair::start().await?;
    let cancelled = end.1 == CancelReason::Customer;
    for (number, said) in said.iter().enumerate() {
        let begun = tokio::time::Instant::now();
        let outlived = pair.outlive(&format!("order-{number}"), *said, token, cancelled).await;
        let standing = outlived.with_context(|| format!("frozen at {said:?}"))?;
        let order = &standing.order;
        ensure!((order.state(), order.cancel_reason()) == end, "frozen at {said:?}: {order:?}");
        println!("frozen at {said:?}: epoch {}, {:?}", standing.saga.2, begun.elapsed());
    }
    pair.ends().await
}

const CONFIRMED: (State, CancelReason) = (State::Confirmed, CancelReason::Unspecified);
const DECLINED: (State, CancelReason) = (State::Cancelled, CancelReason::PaymentDeclined);
const CANCELLED: (State, CancelReason) = (State::Cancelled, CancelReason::Customer);

#[tokio::test]
async fn c52a_late_records_of_a_confirmed_order() -> Result<()> {
    let records = [
        Said::Record("pivot_begun", Held::Request),
        Said::Record("pivot_begun", Held::Answer),
        Said::Record("completed", Held::Request),
    ];
    check("sim_approve", CONFIRMED, &records).await
}

#[tokio::test]
async fn c52b_late_records_of_a_declined_order() -> Result<()> {
    let records = [
        Said::Record("turned", Held::Request),
        Said::Record("turned", Held::Answer),
        Said::Record("undone", Held::Request),
    ];
    check("sim_decline", DECLINED, &records).await
}

#[tokio::test]
async fn c52c_a_commit_that_locks_the_order_while_its_session_is_frozen() -> Result<()> {
    check("sim_approve", CONFIRMED, &[Said::Record("pivot_begun", Held::Commit)]).await
}

#[tokio::test]
async fn c52d_late_calls_of_a_confirmed_order() -> Result<()> {
    let calls = [
        Said::Inventory(1, Held::Request),
        Said::Payment(1, Held::Request),
        Said::Payment(1, Held::Answer),
        Said::Inventory(2, Held::Request),
        Said::Inventory(2, Held::Answer),
    ];
    check("sim_approve", CONFIRMED, &calls).await
}

#[tokio::test]
async fn c52e_late_calls_of_a_declined_order() -> Result<()> {
    let calls = [Said::Payment(2, Held::Request), Said::Inventory(2, Held::Request)];
    check("sim_decline", DECLINED, &calls).await
}

#[tokio::test]
async fn c52f_originals_that_arrive_after_their_undo() -> Result<()> {
    let calls = [
        Said::Inventory(1, Held::Request),
        Said::Inventory(1, Held::Answer),
        Said::Payment(1, Held::Request),
        Said::Payment(1, Held::Answer),
    ];
    check("sim_approve", CANCELLED, &calls).await
}
