//! The reckoning: what the stores must say after what was sent. Every identity names what broke it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt};
use proto::inventory::v1::Stock;
use proto::orders::v1::{Order, order};
use proto::payment::v1::{ListPaymentsRequest, Payment, payment};

use super::call::patiently;
use super::journal::{self, Journal};
use super::run::{Outcome, Replay};
use super::stock_watch::{self, Counters};
use crate::clients::Clients;
use crate::deadline::eventually;

/// What follows an order's end (the release of its last hold, the refund of a late payment) may take this long.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);
/// Examples kept of one broken identity.
const EXAMPLES_MAX: usize = 10;

/// What the identities are computed from.
#[derive(Debug)]
pub struct Books<'a> {
    /// Stock before this run received any.
    pub before: &'a Counters,
    /// Units received by this run, net, per SKU.
    pub received: &'a BTreeMap<String, i64>,
    /// What became of every order.
    pub outcomes: &'a [Outcome],
}

/// One thing that must hold.
#[derive(Debug)]
pub struct Identity {
    /// What must hold.
    pub name: &'static str,
    /// How many things it was looked at for.
    pub checked: usize,
    /// How many broke it.
    pub broken: usize,
    /// Some of those, in words.
    pub examples: Vec<String>,
}

/// The money of the run, in pence.
#[derive(Debug, Default, Clone, Copy)]
pub struct Money {
    /// Totals of the confirmed orders.
    pub confirmed: i64,
    /// Ever captured for any order.
    pub captured: i64,
    /// Given back.
    pub refunded: i64,
}

/// Everything that was held against something.
#[derive(Debug)]
pub struct Reckoning {
    /// The identities, in the order of the report.
    pub identities: Vec<Identity>,
    /// The sums.
    pub money: Money,
    /// Orders against sagas; absent without a database URL.
    pub journal: Option<Journal>,
    /// SKUs known to the inventory.
    pub skus: usize,
}

impl Reckoning {
    /// Whether everything holds.
    pub fn holds(&self) -> bool {
        self.identities.iter().all(|identity| identity.broken == 0)
    }
}

impl Identity {
    fn of(name: &'static str, verdicts: impl IntoIterator<Item = Result<()>>) -> Self {
        let mut identity = Self { name, checked: 0, broken: 0, examples: Vec::new() };
        for verdict in verdicts {
            identity.checked += 1;
            if let Err(error) = verdict {
                identity.broken += 1;
                if identity.examples.len() < EXAMPLES_MAX {
                    identity.examples.push(format!("{error:#}"));
                }
            }
        }
        identity
    }
}

/// Reads what there is to read and holds it against the books.
pub async fn reckon(clients: &Clients, replay: &Replay, books: &Books<'_>) -> Result<Reckoning> {
    let mut identities = vec![
        Identity::of("every order was taken and has ended", books.outcomes.iter().map(taken)),
        Identity::of("an order ends as its payment allows", books.outcomes.iter().map(ends_as_paid)),
    ];
    let after = settled_stock(clients, books).await?;
    identities.push(Identity::of(
        "available + held + sold = received, per SKU",
        after.values().map(stock_watch::identity),
    ));
    let skus: Vec<&String> = books.received.keys().collect();
    let movements = movements(books);
    identities.push(Identity::of(
        "sold = units of confirmed orders, held = 0, received = what came in, per SKU of this run",
        skus.iter().map(|sku| moved(sku, books, &movements, &after)),
    ));
    let (money, verdicts) = money(clients, replay.in_flight, books.outcomes).await;
    identities.push(Identity::of("confirmed ⇔ exactly one payment of its total is kept", verdicts));
    identities.push(Identity::of("captured − refunded = confirmed totals", [sums(money)]));
    let journal = match &replay.database_url {
        None => None,
        Some(url) => {
            let read = journal::settled(url, &replay.run_id, books.outcomes.len()).await?;
            identities.push(Identity::of("every saga ended as its order did", read.verdicts()));
            Some(read)
        }
    };
    Ok(Reckoning { identities, money, journal, skus: after.len() })
}

fn taken(outcome: &Outcome) -> Result<()> {
    let invoice = &outcome.sent.invoice;
    match &outcome.order {
        Err(error) => anyhow::bail!("invoice {invoice}: {error}"),
        Ok(order) => {
            let pence: i64 = outcome.sent.lines.iter().map(|line| line.quantity * line.price_pence).sum();
            let total = order.total.clone().unwrap_or_default().minor_units;
            ensure!(total == pence, "invoice {invoice}: the total is {total}, its lines come to {pence}");
            Ok(())
        }
    }
}

fn ends_as_paid(outcome: &Outcome) -> Result<()> {
    let Ok(order) = &outcome.order else { return Ok(()) };
    let confirmed = order.state() == order::State::Confirmed;
    let declined = order.cancel_reason() == order::CancelReason::PaymentDeclined;
    ensure!(
        !confirmed || outcome.means.pays(),
        "{} is confirmed, but {}",
        order.order_id,
        outcome.means.label()
    );
    ensure!(
        !declined || !outcome.means.pays(),
        "{} was declined, but its payment is {}",
        order.order_id,
        outcome.means.label()
    );
    Ok(())
}

/// Stock once no order of this run holds any; as it is when that takes too long.
async fn settled_stock(clients: &Clients, books: &Books<'_>) -> Result<Counters> {
    let settled = eventually("no hold of this run is left", SETTLED_WITHIN, async || {
        let after = stock_watch::all(&clients.inventory).await?;
        for sku in books.received.keys() {
            let held = |counters: &Counters| counters.get(sku).map_or(0, |stock| stock.held);
            ensure!(held(&after) <= held(books.before), "{sku} is held");
        }
        Ok(after)
    });
    match settled.await {
        Ok(after) => Ok(after),
        Err(_) => stock_watch::all(&clients.inventory).await,
    }
}

/// Units of confirmed orders per SKU.
fn movements<'a>(books: &Books<'a>) -> BTreeMap<&'a str, i64> {
    let mut sold: BTreeMap<&str, i64> = BTreeMap::new();
    for outcome in books.outcomes.iter().filter(|outcome| is_confirmed(outcome)) {
        for line in &outcome.sent.lines {
            *sold.entry(&line.sku).or_default() += line.quantity;
        }
    }
    sold
}

fn is_confirmed(outcome: &Outcome) -> bool {
    outcome.order.as_ref().is_ok_and(|order| order.state() == order::State::Confirmed)
}

fn moved(sku: &str, books: &Books<'_>, sold: &BTreeMap<&str, i64>, after: &Counters) -> Result<()> {
    let nothing = Stock::default();
    let before = books.before.get(sku).unwrap_or(&nothing);
    let after = after.get(sku).unwrap_or(&nothing);
    let seen = (after.sold - before.sold, after.held - before.held, after.received - before.received);
    let expected =
        (sold.get(sku).copied().unwrap_or(0), 0, books.received.get(sku).copied().unwrap_or_default());
    ensure!(seen == expected, "{sku}: (sold, held, received) moved by {seen:?}, expected {expected:?}");
    Ok(())
}

async fn money(clients: &Clients, in_flight: usize, outcomes: &[Outcome]) -> (Money, Vec<Result<()>>) {
    let orders = outcomes.iter().filter_map(|outcome| outcome.order.as_ref().ok());
    let reading = orders.map(|order| async move {
        let payments = payments_when_right(clients, order).await;
        (order, payments)
    });
    let read: Vec<_> = stream::iter(reading).buffer_unordered(in_flight).collect().await;
    let mut money = Money::default();
    let mut verdicts = Vec::with_capacity(read.len());
    for (order, payments) in read {
        if order.state() == order::State::Confirmed {
            money.confirmed += order.total.as_ref().map_or(0, |total| total.minor_units);
        }
        verdicts.push(payments.and_then(|payments| {
            for payment in &payments {
                money.captured += minor(payment.captured.as_ref());
                money.refunded += minor(payment.refunded.as_ref());
            }
            kept_rightly(order, &payments)
        }));
    }
    (money, verdicts)
}

/// The payments of an order once they are as they must be; as they are when that takes too long.
async fn payments_when_right(clients: &Clients, order: &Order) -> Result<Vec<Payment>> {
    let mut last = Vec::new();
    let right = eventually("the money of an order is right", SETTLED_WITHIN, async || {
        let request = ListPaymentsRequest { scope: order.payment_scope.clone() };
        let listed =
            patiently(request, async |request| clients.payments.clone().list_payments(request).await);
        last = listed.await?.answer.payments;
        kept_rightly(order, &last)
    });
    let outcome = right.await;
    if last.is_empty() { outcome.map(|()| last) } else { Ok(last) }
}

/// Money follows goods, of one order: confirmed keeps exactly its total in one payment, anything else keeps nothing.
pub fn kept_rightly(order: &Order, payments: &[Payment]) -> Result<()> {
    let id = &order.order_id;
    let kept = |payment: &&Payment| minor(payment.captured.as_ref()) > minor(payment.refunded.as_ref());
    let keeping: Vec<&Payment> = payments.iter().filter(kept).collect();
    let open = payments.iter().filter(|payment| payment.state() == payment::State::Processing).count();
    ensure!(open == 0, "{id}: {open} payments are still in process");
    if order.state() != order::State::Confirmed {
        ensure!(keeping.is_empty(), "{id} is {:?} and keeps {} payments", order.state(), keeping.len());
        return Ok(());
    }
    let total = order.total.as_ref();
    ensure!(keeping.len() == 1, "{id} is confirmed and keeps {} payments", keeping.len());
    let payment = keeping[0];
    ensure!(
        payment.captured.as_ref() == total && minor(payment.refunded.as_ref()) == 0,
        "{id}: total {total:?}, captured {:?}, refunded {:?}",
        payment.captured,
        payment.refunded
    );
    Ok(())
}

fn sums(money: Money) -> Result<()> {
    let Money { confirmed, captured, refunded } = money;
    ensure!(
        captured - refunded == confirmed,
        "captured {captured} − refunded {refunded} ≠ {confirmed} pence"
    );
    Ok(())
}

fn minor(amount: Option<&proto::money::v1::Money>) -> i64 {
    amount.map_or(0, |amount| amount.minor_units)
}
