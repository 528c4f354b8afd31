//! Case C53: order-svc killed at every record of the checkout that is waited for and at every call of it, and killed
//! again while it recovers. The moments are held by proxies on its way out, so its code knows nothing of them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::deadline::eventually;
use harness::invariants::hold;
use harness::proxy::{Held, Moment, Proxy};
use harness::requests::pay_now;
use harness::stack::{Plan, Stack, has_ended};
use proto::orders::v1::order::{CancelReason, State};
use proto::orders::v1::{CreateOrderRequest, ListOrdersRequest, Order};
use tonic::Status;

/// Start, lease and the steps in between, on a machine that does other things too.
const SOON: Duration = Duration::from_secs(15);
const RECEIVED: i64 = 1_000;

/// Something that order-svc says to somebody.
#[derive(Debug, Clone, Copy)]
enum Said {
    /// This event, to its journal.
    Record(&'static str),
    /// The n-th call of the checkout, to inventory-svc.
    Inventory(usize),
    /// The n-th call of the checkout, to payment-svc.
    Payment(usize),
}

impl Said {
    fn link(self, stack: &Stack) -> Result<&Proxy> {
        let links = stack.links()?;
        Ok(match self {
            Self::Record(_) => &links.database,
            Self::Inventory(_) => &links.inventory,
            Self::Payment(_) => &links.payment,
        })
    }

    fn holds(self) -> &'static [Held] {
        match self {
            Self::Record(_) => &Held::OF_A_RECORD,
            Self::Inventory(_) | Self::Payment(_) => &Held::OF_A_CALL,
        }
    }

    fn at(self, held: Held) -> Moment {
        match self {
            Self::Record(event) => Moment::Record { event, held },
            Self::Inventory(nth) | Self::Payment(nth) => Moment::Call { nth, held },
        }
    }

    /// The same while it recovers: what is on disk is neither said nor asked again, so a call is the first one.
    fn again(self, held: Held) -> Moment {
        match self {
            Self::Record(event) => Moment::Record { event, held },
            Self::Inventory(_) | Self::Payment(_) => Moment::Call { nth: 1, held },
        }
    }
}

/// A caller who waits for the order.
type Caller = tokio::task::JoinHandle<Result<Order, Status>>;

fn place(stack: &Stack, request: &CreateOrderRequest) -> Caller {
    let (mut orders, request) = (stack.clients.orders.clone(), request.clone());
    tokio::spawn(async move { orders.create_order(request).await.map(tonic::Response::into_inner) })
}

async fn placed(stack: &Stack, request_id: &str) -> Result<Vec<Order>> {
    let request = ListOrdersRequest { request_id: request_id.to_owned(), ..Default::default() };
    Ok(stack.clients.orders.clone().list_orders(request).await?.into_inner().orders)
}

/// Kills at the moment, kills again at the same moment of the recovery if it comes again, else once the order has
/// ended; then lets it recover in peace, and only then what was still under way arrive. Gives the order, and whether the
/// moment came again.
async fn kill_twice(
    stack: &mut Stack,
    said: Said,
    held: Held,
    request: &CreateOrderRequest,
) -> Result<(Order, bool)> {
    said.link(stack)?.arm(said.at(held));
    let caller = place(stack, request);
    said.link(stack)?.holds(SOON).await?;
    stack.order.kill();
    ensure!(caller.await?.is_err(), "the caller was answered before the moment came");

    said.link(stack)?.arm(said.again(held));
    stack.order.start().await?;
    let caller = place(stack, request);
    eventually("the moment comes again, or the order ends", SOON, async || {
        let orders = placed(stack, &request.request_id).await?;
        let ended = orders.iter().any(|order| has_ended(order.state()));
        ensure!(ended || said.link(stack)?.is_holding(), "{orders:?}");
        Ok(())
    })
    .await?;
    let came_again = said.link(stack)?.is_holding();
    stack.order.kill();
    // Whether it was answered depends on what came first.
    let _ = caller.await?;

    said.link(stack)?.disarm();
    stack.order.start().await?;
    let order = place(stack, request).await?.context("after both kills")?;
    let orders = placed(stack, &request.request_id).await?;
    ensure!(orders.len() == 1, "{} orders of one request", orders.len());
    said.link(stack)?.release().await?;
    Ok((order, came_again))
}

/// Every moment, each with an order of its own.
#[expect(clippy::print_stdout, reason = "the test runner shows it with a failure")]
async fn check(token: &str, end: (State, CancelReason), said: &[Said]) -> Result<()> {
    let mut stack = Plan::all().linked().start().await?;
    stack.receive("A", RECEIVED).await?;
    let moments = said.iter().flat_map(|said| said.holds().iter().map(move |held| (*said, *held)));
    let mut sold = 0;
    for (number, (said, held)) in moments.enumerate() {
        let request = pay_now(&format!("order-{number}"), &[("A", 2)], token);
        let begun = tokio::time::Instant::now();
        let killed = async {
            let (order, came_again) = kill_twice(&mut stack, said, held, &request).await?;
            ensure!((order.state(), order.cancel_reason()) == end, "it is {:?}", order.state());
            hold(&stack).await?;
            if order.state() == State::Confirmed {
                sold += 2;
            }
            let counters = stack.counters("A").await?;
            ensure!(counters == (RECEIVED - sold, 0, sold), "{counters:?}");
            anyhow::Ok(came_again)
        };
        let came_again = killed.await.with_context(|| format!("killed at {said:?}, {held:?} held"))?;
        let second = if came_again { "there again" } else { "at rest" };
        println!("killed at {said:?}, {held:?} held, then {second}: {:?}", begun.elapsed());
    }
    Ok(())
}

const CONFIRMED: (State, CancelReason) = (State::Confirmed, CancelReason::Unspecified);
const DECLINED: (State, CancelReason) = (State::Cancelled, CancelReason::PaymentDeclined);

#[tokio::test]
async fn c53a_killed_at_every_waited_record_of_a_confirmed_order() -> Result<()> {
    let records = ["started", "pivot_begun", "completed"].map(Said::Record);
    check("sim_approve", CONFIRMED, &records).await
}

#[tokio::test]
async fn c53b_killed_at_every_call_of_a_confirmed_order() -> Result<()> {
    let reserve_and_confirm = [Said::Inventory(1), Said::Inventory(2)];
    let charge = Said::Payment(1);
    check("sim_approve", CONFIRMED, &[reserve_and_confirm[0], charge, reserve_and_confirm[1]]).await
}

#[tokio::test]
async fn c53c_killed_at_every_waited_record_of_a_declined_order() -> Result<()> {
    check("sim_decline", DECLINED, &["turned", "undone"].map(Said::Record)).await
}

#[tokio::test]
async fn c53d_killed_at_every_call_of_a_declined_order() -> Result<()> {
    let charge_and_cancel = [Said::Payment(1), Said::Payment(2)];
    let release = Said::Inventory(2);
    check("sim_decline", DECLINED, &[charge_and_cancel[0], charge_and_cancel[1], release]).await
}
