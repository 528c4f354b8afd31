//! The report: what was sent, what was left out and why, how it ended, whether everything adds up, and where to look.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use proto::orders::v1::order::State;

use super::identities::{Identity, Reckoning};
use super::payment_plan::Means;
use super::run::{Day, Outcome};
use super::untidy::LeftOut;

/// The whole report; its last line is the one for machines.
pub fn render(day: &Day, jaeger_url: Option<&str>) -> String {
    let mut text = String::new();
    file(&mut text, day);
    endings(&mut text, day);
    speed(&mut text, day);
    reckoning(&mut text, &day.reckoning);
    traces(&mut text, day, jaeger_url);
    last_line(&mut text, day);
    text
}

fn file(text: &mut String, day: &Day) {
    let file = &day.file;
    let largest = file.orders.iter().map(|order| order.lines.len()).max().unwrap_or(0);
    let guests = file.orders.iter().filter(|order| order.customer.is_none()).count();
    let back: i64 = file.returns.iter().flat_map(|back| back.units.values()).sum();
    let short: Vec<_> = day.shelves.values().filter(|shelf| shelf.stocked < shelf.demand).collect();
    let sold_out = short.iter().filter(|shelf| shelf.stocked == 0).count();
    let _ = writeln!(text, "The file: {} rows", file.rows);
    row(
        text,
        "orders",
        file.orders.len(),
        &format!("{} lines, the largest {largest}; {guests} by guests", file.lines()),
    );
    row(text, "returns", file.returns.len(), &format!("{back} units back to stock"));
    let merged =
        format!("into an earlier line of their SKU, {} at another price", file.merged_at_other_price);
    row(text, "rows merged", file.merged, &merged);
    row(text, "rows left out", file.refused_rows(), "never sent:");
    for (why, count) in &file.left_out {
        let _ = writeln!(text, "    {count:>9}  {}", reason(*why));
    }
    let shelves = format!("{} short of what will be asked for, {sold_out} of them sold out", short.len());
    row(text, "SKUs stocked", day.shelves.len(), &shelves);
}

fn row(text: &mut String, what: &str, count: usize, more: &str) {
    let _ = writeln!(text, "  {what:<14} {count:>8}  {more}");
}

fn reason(why: LeftOut) -> &'static str {
    match why {
        LeftOut::RefusedInvoice => "invoices beginning with A: adjustments of the books",
        LeftOut::FeeCode => "fee codes: postage, vouchers, charges, corrections",
        LeftOut::Quantity => "no quantity",
        LeftOut::Price => "no price",
        LeftOut::Unreadable => "unreadable",
    }
}

/// A kind of ending, as the report and the list of traces name it.
fn ending(outcome: &Outcome) -> String {
    match &outcome.order {
        Err(_) => "NOT TAKEN OR NOT ENDED".to_owned(),
        Ok(order) if order.state() == State::Cancelled => {
            format!("CANCELLED {}", bare(order.cancel_reason().as_str_name(), "CANCEL_REASON_"))
        }
        Ok(order) => bare(order.state().as_str_name(), "STATE_"),
    }
}

fn bare(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_owned()
}

fn endings(text: &mut String, day: &Day) {
    let mut counts: BTreeMap<(String, Means), usize> = BTreeMap::new();
    for outcome in &day.outcomes {
        *counts.entry((ending(outcome), outcome.means)).or_default() += 1;
    }
    let _ = writeln!(text, "\nHow the orders ended");
    for ((ending, means), count) in &counts {
        let _ = writeln!(text, "  {count:>8}  {ending:<32} payment {}", means.label());
    }
    let repeats: u32 = day.outcomes.iter().map(|outcome| outcome.repeats).sum();
    let repeated = day.outcomes.iter().filter(|outcome| outcome.repeats > 0).count();
    let _ = writeln!(text, "  {repeated} orders were asked for again by request id, {repeats} times in all");
}

fn speed(text: &mut String, day: &Day) {
    let _ = writeln!(
        text,
        "\nSpeed: {} orders in {:.2} s = {:.1} orders/s; the last one rested {:.2} s after the last answer",
        day.outcomes.len(),
        day.replaying.as_secs_f64(),
        per_second(day),
        day.resting.as_secs_f64()
    );
    // The bounds of the histogram are constants it accepts: 1 µs to 10 minutes at three digits.
    if let Ok(mut took) = Histogram::<u64>::new_with_bounds(1, 600_000_000, 3) {
        for outcome in &day.outcomes {
            took.saturating_record(u64::try_from(outcome.took.as_micros()).unwrap_or(u64::MAX));
        }
        let ms = |quantile| Duration::from_micros(took.value_at_quantile(quantile)).as_secs_f64() * 1_000.0;
        let (p50, p99, worst) = (ms(0.5), ms(0.99), ms(1.0));
        let _ = writeln!(text, "  CreateOrder p50 {p50:.1} ms, p99 {p99:.1} ms, slowest {worst:.1} ms");
    }
}

fn reckoning(text: &mut String, reckoning: &Reckoning) {
    let money = reckoning.money;
    let _ = writeln!(text, "\nDoes it add up? ({} SKUs known)", reckoning.skus);
    for identity in &reckoning.identities {
        one_identity(text, identity);
    }
    let _ = writeln!(
        text,
        "  captured {} − refunded {} = kept {}; confirmed orders come to {}",
        pounds(money.captured),
        pounds(money.refunded),
        pounds(money.captured - money.refunded),
        pounds(money.confirmed)
    );
    match &reckoning.journal {
        None => _ = writeln!(text, "  journal: not looked at, no database URL given"),
        Some(journal) => {
            for (order, saga, count) in &journal.pairs {
                let _ = writeln!(text, "  journal: {count:>8} orders {order}, their sagas {saga}");
            }
        }
    }
}

fn one_identity(text: &mut String, identity: &Identity) {
    let verdict = if identity.broken == 0 { "ok    " } else { "BROKEN" };
    let _ = writeln!(text, "  {verdict} {:>8} × {}", identity.checked, identity.name);
    if identity.broken > 0 {
        let _ = writeln!(text, "         {} broken, for example:", identity.broken);
    }
    for example in &identity.examples {
        let _ = writeln!(text, "           {example}");
    }
}

fn pounds(pence: i64) -> String {
    let sign = if pence < 0 { "-" } else { "" };
    format!("{sign}£{}.{:02}", pence.abs() / 100, pence.abs() % 100)
}

fn traces(text: &mut String, day: &Day, jaeger_url: Option<&str>) {
    let mut shown: BTreeMap<(String, Means), &Outcome> = BTreeMap::new();
    for outcome in &day.outcomes {
        shown.entry((ending(outcome), outcome.means)).or_insert(outcome);
    }
    let _ = writeln!(text, "\nOne of each kind");
    for ((ending, means), outcome) in shown {
        let Ok(order) = &outcome.order else { continue };
        let trace = match (order.trace_id.as_str(), jaeger_url) {
            ("", _) => "no trace".to_owned(),
            (trace_id, None) => format!("trace {trace_id}"),
            (trace_id, Some(jaeger)) => format!("{}/trace/{trace_id}", jaeger.trim_end_matches('/')),
        };
        let kind = format!("{ending}, payment {}", means.label());
        let _ = writeln!(text, "  {kind:<62} order {}  {trace}", order.order_id);
    }
}

fn last_line(text: &mut String, day: &Day) {
    let ended = |state| {
        let orders = day.outcomes.iter().filter_map(|outcome| outcome.order.as_ref().ok());
        orders.filter(|order| order.state() == state).count()
    };
    let (confirmed, cancelled) = (ended(State::Confirmed), ended(State::Cancelled));
    let identities = if day.reckoning.holds() { "ok" } else { "FAILED" };
    let _ = writeln!(
        text,
        "\nday orders={} confirmed={confirmed} cancelled={cancelled} refused_rows={} identities={identities} \
         seconds={:.2} per_s={:.1}",
        confirmed + cancelled,
        day.file.refused_rows(),
        day.replaying.as_secs_f64(),
        per_second(day)
    );
}

#[expect(clippy::cast_precision_loss, reason = "a count of orders, shown with one digit after the point")]
fn per_second(day: &Day) -> f64 {
    day.outcomes.len() as f64 / day.replaying.as_secs_f64().max(f64::EPSILON)
}
