//! Brings the simulated provider's events in, by the entry that webhooks use: `Payments::settle`.
//!
//! An event is acknowledged once it is settled; until then it comes again. Absent: webhooks over HTTP.

use crate::{
    payments::Payments,
    provider::{
        Failure,
        simulator::{ProviderEvent, Simulator},
    },
    trace::continue_trace,
};
use std::time::Duration;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

/// Also the look for what other processes' charges brought.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Runs until `stop`.
pub(crate) async fn run(simulator: Simulator, payments: Payments, stop: CancellationToken) {
    loop {
        let next_in = match turn(&simulator, &payments).await {
            Ok(next_in) => next_in.min(POLL_EVERY),
            Err(failure) => {
                tracing::warn!(%failure, "events wait for the provider");
                POLL_EVERY
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = simulator.wait_for_work() => {}
            () = sleep(next_in) => {}
        }
    }
}

/// Settles what is due; answers when to look again.
async fn turn(simulator: &Simulator, payments: &Payments) -> Result<Duration, Failure> {
    let tick = simulator.tick().await?;
    let mut settling = JoinSet::new();
    let brought = !tick.events.is_empty();
    for event in tick.events {
        settling.spawn(settle(payments.clone(), event));
    }
    let settled: Vec<String> = settling.join_all().await.into_iter().flatten().collect();
    if !settled.is_empty() {
        simulator.acknowledge(&settled).await?;
    }
    // What came due while these were settled, or did not fit into the batch, must not wait.
    Ok(if brought { Duration::ZERO } else { tick.next_in.unwrap_or(POLL_EVERY) })
}

/// Answers the event's id if it need not come again.
async fn settle(payments: Payments, event: ProviderEvent) -> Option<String> {
    let id = &event.payment_id;
    let traceparent = match payments.store().find(id).await {
        Ok(found) => found.and_then(|payment| payment.traceparent),
        Err(error) => {
            tracing::warn!(payment.id = %id, %error, "an event waits for the database");
            return None;
        }
    };
    let span = info_span!("settle payment", otel.kind = "consumer", payment.id = %id);
    continue_trace(&span, traceparent.as_deref());
    match payments.settle(id, &event.fact).instrument(span).await {
        Ok(Some(_)) => {}
        Ok(None) => tracing::warn!(payment.id = %id, "the provider reports a payment that is not ours"),
        Err(error) => {
            tracing::warn!(payment.id = %id, %error, "an event waits for the database");
            return None;
        }
    }
    Some(event.event_id)
}
