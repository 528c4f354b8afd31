//! Sending the day: stock first, then every invoice in time order with many in flight, then waiting for the last
//! order to rest.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt};
use proto::orders::v1::{CreateOrderRequest, GetOrderRequest, Order, OrderLine};
use tokio::sync::watch;

use super::call::{Answered, patiently};
use super::payment_plan::Means;
use super::stock_plan::{Shelf, Shortage, shelves};
use super::stock_watch;
use super::untidy::{self, ShopFile, ShopOrder, ShopReturn};
use super::{identities, stocking};
use crate::clients::Clients;
use crate::deadline::eventually;
use crate::requests::{gbp, lasting};
use crate::stack::has_ended;

/// Every order rests within this after the last one was answered: far more than the longest deadline of the plan and
/// a restarted service's takeover.
const REST_WITHIN: Duration = Duration::from_secs(60);

/// What to replay, and where.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The shop's file.
    pub file: PathBuf,
    /// How short the short SKUs are.
    pub shortage: Shortage,
    /// Calls in flight.
    pub in_flight: usize,
    /// Begins every request id, so that a second run on the same stores is a second day.
    pub run_id: String,
    /// The orders database, to hold the journal against the orders; absent: not looked at.
    pub database_url: Option<String>,
}

/// One order as sent and as it ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What was sent.
    pub sent: ShopOrder,
    /// How it was to be paid.
    pub means: Means,
    /// How it ended. `Err`: why it was never taken or did not end.
    pub order: Result<Order, String>,
    /// Tries after the first.
    pub repeats: u32,
    /// From the first try of CreateOrder to its answer.
    pub took: Duration,
}

/// Everything there is to report.
#[derive(Debug)]
pub struct Day {
    /// What the file came to.
    pub file: ShopFile,
    /// What was put on the shelves.
    pub shelves: BTreeMap<String, Shelf>,
    /// How each order ended.
    pub outcomes: Vec<Outcome>,
    /// From the first order sent to the last at rest.
    pub replaying: Duration,
    /// From the last order answered to the last at rest.
    pub resting: Duration,
    /// What was held against what.
    pub reckoning: identities::Reckoning,
}

/// Replays a file. `answered` counts the orders that have their first answer, for whoever watches.
pub async fn replay(clients: &Clients, replay: &Replay, answered: &watch::Sender<usize>) -> Result<Day> {
    let file = untidy::read_file(&replay.file)?;
    ensure!(replay.in_flight > 0, "nothing can be in flight");
    let shelves = shelves(&file.orders, replay.shortage);
    let before = stock_watch::all(&clients.inventory).await.context("reading the stock before")?;
    let mut received = stocking::fill(&clients.stock, &replay.run_id, &shelves, replay.in_flight).await?;
    let started = Instant::now();
    let mut outcomes = send(clients, replay, &file, answered).await?;
    let sent = Instant::now();
    rest(clients, replay.in_flight, &mut outcomes).await;
    let (replaying, resting) = (started.elapsed(), sent.elapsed());
    for back in &file.returns {
        for (sku, units) in &back.units {
            *received.entry(sku.clone()).or_default() += units;
        }
    }
    let books = identities::Books { before: &before, received: &received, outcomes: &outcomes };
    let reckoning = identities::reckon(clients, replay, &books).await?;
    Ok(Day { file, shelves, outcomes, replaying, resting, reckoning })
}

/// One thing that happens in the shop.
enum Event<'a> {
    Order(&'a ShopOrder),
    Return(&'a ShopReturn),
}

async fn send(
    clients: &Clients,
    replay: &Replay,
    file: &ShopFile,
    answered: &watch::Sender<usize>,
) -> Result<Vec<Outcome>> {
    let mut events: Vec<(&str, &str, Event<'_>)> = Vec::new();
    events.extend(file.orders.iter().map(|order| (&*order.at, &*order.invoice, Event::Order(order))));
    events.extend(file.returns.iter().map(|back| (&*back.at, &*back.invoice, Event::Return(back))));
    events.sort_by_key(|(at, invoice, _)| (*at, *invoice));
    let sending = events.iter().map(|(_, _, event)| async move {
        match event {
            Event::Order(order) => {
                let outcome = place(clients, &replay.run_id, order).await;
                answered.send_modify(|count| *count += 1);
                Ok(Some(outcome))
            }
            Event::Return(back) => {
                stocking::bring_back(&clients.stock, &replay.run_id, back).await.map(|()| None)
            }
        }
    });
    let done: Vec<Result<Option<Outcome>>> =
        stream::iter(sending).buffer_unordered(replay.in_flight).collect().await;
    done.into_iter().filter_map(Result::transpose).collect()
}

async fn place(clients: &Clients, run_id: &str, sent: &ShopOrder) -> Outcome {
    let means = Means::of(sent.number);
    let request = request(run_id, sent, means);
    let placed = patiently(request, async |request| clients.orders.clone().create_order(request).await).await;
    let (order, repeats, took) = match placed {
        Ok(Answered { answer, repeats, took }) => (Ok(answer), repeats, took),
        Err(status) => (Err(format!("{:?}: {}", status.code(), status.message())), 0, Duration::ZERO),
    };
    Outcome { sent: sent.clone(), means, order, repeats, took }
}

fn request(run_id: &str, sent: &ShopOrder, means: Means) -> CreateOrderRequest {
    let (payment, expire_after) = means.payment();
    let lines = sent.lines.iter().map(|line| OrderLine {
        sku: line.sku.clone(),
        quantity: line.quantity,
        unit_price: Some(gbp(line.price_pence)),
    });
    CreateOrderRequest {
        request_id: format!("{run_id}.{}", sent.invoice),
        customer_id: sent.customer.clone().unwrap_or_default(),
        lines: lines.collect(),
        payment: Some(payment),
        expire_after: expire_after.map(lasting),
    }
}

/// Reads every order until it has ended: what is reported is what the service says afterwards, not what it answered
/// to the caller who placed it.
async fn rest(clients: &Clients, in_flight: usize, outcomes: &mut [Outcome]) {
    let deadline = Instant::now() + REST_WITHIN;
    let reading = outcomes.iter_mut().map(|outcome| async move {
        if let Ok(order) = &outcome.order {
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = ended(clients, &order.order_id, left).await;
            outcome.order = ended.map_err(|error| format!("{error:#}"));
        }
    });
    stream::iter(reading).buffer_unordered(in_flight).collect::<()>().await;
}

async fn ended(clients: &Clients, order_id: &str, within: Duration) -> Result<Order> {
    let request = GetOrderRequest { order_id: order_id.to_owned() };
    eventually(&format!("order {order_id} rests"), within, async || {
        let read =
            patiently(request.clone(), async |request| clients.orders.clone().get_order(request).await);
        let order = read.await?.answer;
        ensure!(has_ended(order.state()), "it is {:?}", order.state());
        Ok(order)
    })
    .await
}
