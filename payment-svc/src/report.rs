//! The outbox relay: tells the owner of a payment what became of it, at least once, one payment's facts in order.
//!
//! Rows are claimed in the book, delivered side by side, and deleted once the owner has answered. An owner that does
//! not know the order is asked again like one that failed: its transaction may not be committed yet. Absent: deciding
//! what to tell (`Standing::report`).

use crate::{
    payment::Report,
    payments::Payments,
    store::{ReportRow, StoreError},
    trace::continue_trace,
    wire,
};
use proto::{
    orders::v1::{
        ReportPaymentRequest, order_service_client::OrderServiceClient, report_payment_request::Kind,
    },
    reason,
};
use runtime::client::Client;
use std::time::Duration;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};
use tracing::{Instrument, info_span};

/// Reports under way at once.
const IN_FLIGHT_MAX: usize = 64;
/// How long one delivery may take; well below the 10 s for which a claim hides its row.
const DELIVERY_LIMIT: Duration = Duration::from_secs(2);
/// Also the look for what other processes left behind.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// A report is in no hurry: waiting this long lets many share a statement.
const LINGER: Duration = Duration::from_millis(5);
const DELAY_FIRST_MS: u64 = 50;
const DELAY_MAX_MS: u64 = 3_000;
/// After this long an owner that still does not know its payment never will.
const GIVE_UP_AFTER: Duration = Duration::from_hours(24);

/// The relay.
pub(crate) struct Relay {
    payments: Payments,
    orders: OrderServiceClient<Client>,
}

/// What became of one delivery.
struct Delivery {
    row: ReportRow,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Delivered,
    /// The owner answered, and not with yes; another try may do.
    NotYet,
    /// Nobody answered.
    Unreachable,
    /// The owner says that this report can never be taken.
    Never,
}

impl Relay {
    /// Delivers the reports of `payments` to the order service behind `client`.
    pub(crate) fn new(payments: Payments, client: Client) -> Self {
        Self { payments, orders: OrderServiceClient::new(client) }
    }

    /// Runs until `stop`, then finishes what is under way.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut under_way = JoinSet::new();
        let mut done = Vec::new();
        let mut pause = Pause::default();
        loop {
            if let Err(error) = self.turn(&mut under_way, &mut done, &mut pause).await {
                // What was delivered and could not be recorded is delivered again when its claim has run out.
                tracing::warn!(%error, "reports wait for the database");
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.payments.wait_for_reports() => {}
                () = sleep(pause.left().unwrap_or(POLL_EVERY)) => {}
                Some(finished) = under_way.join_next() => done.extend(finished),
            }
            sleep(LINGER).await;
        }
        // Each is bounded by DELIVERY_LIMIT.
        done.extend(under_way.join_all().await);
        if let Err(error) = self.record(&done).await {
            tracing::warn!(%error, "delivered reports will be delivered again");
        }
    }

    /// Records what is finished, then takes as much as there is room for.
    async fn turn(
        &self,
        under_way: &mut JoinSet<Delivery>,
        done: &mut Vec<Delivery>,
        pause: &mut Pause,
    ) -> Result<(), StoreError> {
        while let Some(finished) = under_way.try_join_next() {
            done.extend(finished);
        }
        let finished = std::mem::take(done);
        pause.learn(&finished);
        self.record(&finished).await?;
        let room = IN_FLIGHT_MAX.saturating_sub(under_way.len());
        if room == 0 || pause.left().is_some() {
            return Ok(());
        }
        for row in self.payments.store().claim_reports(i64::try_from(room).unwrap_or(1)).await? {
            let span = info_span!("report payment", otel.kind = "producer", payment.id = %row.payment_id,
                order.id = %row.reference);
            continue_trace(&span, row.traceparent.as_deref());
            under_way.spawn(deliver(self.orders.clone(), row).instrument(span));
        }
        Ok(())
    }

    async fn record(&self, done: &[Delivery]) -> Result<(), StoreError> {
        let ids = |wanted: &dyn Fn(&Delivery) -> bool| -> Vec<i64> {
            done.iter().filter(|delivery| wanted(delivery)).map(|delivery| delivery.row.id).collect()
        };
        let store = self.payments.store();
        let delivered = ids(&|d| d.outcome == Outcome::Delivered);
        if !delivered.is_empty() {
            store.delivered(&delivered).await?;
        }
        let given_up = ids(&Delivery::is_hopeless);
        if !given_up.is_empty() {
            tracing::error!(count = given_up.len(), "reports were given up");
            store.abandon(&given_up).await?;
        }
        let waiting = |d: &Delivery| d.outcome != Outcome::Delivered && !d.is_hopeless();
        let postponed = ids(&waiting);
        if !postponed.is_empty() {
            let delays: Vec<i64> =
                done.iter().filter(|d| waiting(d)).map(|d| delay_ms(d.row.attempts)).collect();
            store.postpone(&postponed, &delays).await?;
        }
        Ok(())
    }
}

impl Delivery {
    fn is_hopeless(&self) -> bool {
        match self.outcome {
            Outcome::Delivered => false,
            Outcome::Never => true,
            Outcome::NotYet | Outcome::Unreachable => self.row.age > GIVE_UP_AFTER,
        }
    }
}

/// No deliveries while nobody answers, so that a dead owner is not stampeded by everything that waits for it.
#[derive(Default)]
struct Pause {
    until: Option<Instant>,
    length_ms: u64,
}

impl Pause {
    fn learn(&mut self, done: &[Delivery]) {
        let answered = done.iter().any(|delivery| delivery.outcome != Outcome::Unreachable);
        if answered {
            *self = Self::default();
        } else if !done.is_empty() {
            self.length_ms = (self.length_ms * 2).clamp(DELAY_FIRST_MS, DELAY_MAX_MS);
            self.until = Some(Instant::now() + Duration::from_millis(self.length_ms));
        }
    }

    fn left(&self) -> Option<Duration> {
        self.until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

async fn deliver(mut orders: OrderServiceClient<Client>, row: ReportRow) -> Delivery {
    let mut request = Request::new(ReportPaymentRequest {
        order_id: row.reference.to_string(),
        payment_id: row.payment_id.to_string(),
        kind: match row.report {
            Report::Captured => Kind::Captured,
            Report::Declined => Kind::Declined,
        }
        .into(),
        amount: Some(wire::money(row.amount)),
        provider_event_id: row.provider_event_id.clone(),
    });
    request.set_timeout(DELIVERY_LIMIT);
    let outcome = match orders.report_payment(request).await {
        Ok(_) => Outcome::Delivered,
        Err(status) => {
            let outcome = judge(&status);
            tracing::info!(payment.id = %row.payment_id, code = ?status.code(), message = status.message(),
                attempts = row.attempts, "a report was not taken");
            outcome
        }
    };
    Delivery { row, outcome }
}

/// Only our own reason makes a refusal; every other status may pass.
fn judge(status: &tonic::Status) -> Outcome {
    if let Some(found) = runtime::status::reason(status, reason::DOMAIN) {
        return if found.reason == reason::INVALID_FIELD { Outcome::Never } else { Outcome::NotYet };
    }
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => Outcome::Unreachable,
        _ => Outcome::NotYet,
    }
}

/// Doubles from 50 ms to 3 s, less up to a half, so that what failed together does not come back together.
fn delay_ms(attempts: i32) -> i64 {
    let doublings = attempts.clamp(1, 16).unsigned_abs() - 1;
    let full = (DELAY_FIRST_MS << doublings).min(DELAY_MAX_MS);
    let jittered = full - rand::random_range(0..=full / 2);
    i64::try_from(jittered).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Status;

    #[test]
    fn delays_double_and_stay_below_their_cap() {
        for attempts in [i32::MIN, 0, 1, 2, 7, 100, i32::MAX] {
            let delay = delay_ms(attempts);
            assert!((25..=3_000).contains(&delay), "{attempts}: {delay}");
        }
        assert!(delay_ms(1) <= 50 && delay_ms(20) >= 1_500);
    }

    #[test]
    fn only_our_own_reason_ends_a_report() {
        let ours = runtime::status::invalid_fields(reason::DOMAIN, reason::INVALID_FIELD, vec![]);
        assert!(judge(&ours) == Outcome::Never);
        assert!(judge(&Status::invalid_argument("a proxy")) == Outcome::NotYet);
        assert!(judge(&Status::not_found("not committed yet")) == Outcome::NotYet);
        assert!(judge(&Status::unavailable("connection refused")) == Outcome::Unreachable);
    }
}
