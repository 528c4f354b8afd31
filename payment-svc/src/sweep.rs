//! The background sweep: looks after open payments that nobody asks about any more.
//!
//! It heals what a crash left between a call to the provider and the record of its answer. Each payment is looked at
//! after 1 s, 2 s, 4 s … up to every five minutes. Absent: sending charges again; only a caller does that.

use crate::{payment::Wish, payments::Payments, record::Payment, store::StoreError, trace::continue_trace};
use std::time::Duration;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

/// Payments looked at side by side.
const BATCH: usize = 32;
const EVERY: Duration = Duration::from_secs(1);

/// Runs until `stop`.
pub(crate) async fn run(payments: Payments, stop: CancellationToken) {
    loop {
        let taken = match turn(&payments).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(%error, "the sweep waits for the database");
                0
            }
        };
        // A full batch means that there is more.
        let rest = if taken == BATCH { Duration::ZERO } else { EVERY };
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(rest) => {}
        }
    }
}

async fn turn(payments: &Payments) -> Result<usize, StoreError> {
    let open = payments.store().claim_open(i64::try_from(BATCH).unwrap_or(1)).await?;
    let taken = open.len();
    let mut looks = JoinSet::new();
    for payment in open {
        let span = info_span!("look after payment", payment.id = %payment.payment_id);
        continue_trace(&span, payment.traceparent.as_deref());
        looks.spawn(look_after(payments.clone(), payment).instrument(span));
    }
    looks.join_all().await;
    Ok(taken)
}

/// What fails here is due again, later.
async fn look_after(payments: Payments, payment: Payment) {
    let id = payment.payment_id.clone();
    let result = if payment.standing.wish == Wish::GiveBack {
        payments.give_back(&id).await.map(drop)
    } else if payment.is_processing() {
        payments.ask(payment).await.map(drop).map_err(Into::into)
    } else {
        payments.finish_open_refund(&id).await
    };
    if let Err(error) = result {
        tracing::info!(payment.id = %id, %error, "a payment stays open");
    }
}
