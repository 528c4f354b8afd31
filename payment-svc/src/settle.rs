//! Applying what the provider says: the one entry for answers of calls, answers to questions, and events.
//!
//! The same word said three times changes the payment once and is told once. Absent: fetching events, and HTTP.

use crate::{
    ids::PaymentId,
    payment::{Event, State, Wish},
    payments::Payments,
    provider::{Fact, Verdict},
    record::{Payment, Telling},
    store::StoreError,
};

impl Payments {
    /// Records what the provider says of a payment, and gives its money back if its scope was cancelled before.
    /// `None`: the payment is not ours.
    ///
    /// The recording is what must succeed. If giving back does not, the payment stays open and the sweep goes on.
    pub(crate) async fn settle(&self, id: &PaymentId, fact: &Fact) -> Result<Option<Payment>, StoreError> {
        let Some(payment) = self.record(id, fact).await? else {
            return Ok(None);
        };
        if !payment.owes() {
            return Ok(Some(payment));
        }
        match self.give_back(id).await {
            Ok(payment) => Ok(Some(payment)),
            Err(error) => {
                tracing::info!(payment.id = %id, %error, "money of a cancelled scope is not given back yet");
                Ok(Some(payment))
            }
        }
    }

    /// Records what the provider says, under the payment's lock.
    pub(crate) async fn record(&self, id: &PaymentId, fact: &Fact) -> Result<Option<Payment>, StoreError> {
        let mut tx = self.store.begin().await?;
        let Some(before) = tx.lock(id).await? else {
            tx.rollback().await?;
            return Ok(None);
        };
        let after =
            match event_of(&fact.verdict).map_or(Ok(before.standing), |event| before.standing.apply(event)) {
                Ok(after) => after,
                Err(illegal) => {
                    // A late word, overtaken by a later one. What is known stands.
                    tracing::warn!(payment.id = %id, %illegal, "the provider contradicts what is known");
                    before.standing
                }
            };
        if after == before.standing && !before.provider_reference.is_empty() {
            tx.rollback().await?;
            return Ok(Some(before));
        }
        let saved = tx.save(&before, &after, Some(fact)).await?;
        tx.commit().await?;
        self.ring_if_told(&before, &saved);
        Ok(Some(saved))
    }

    /// The fast path for an answer about a payment just read in process: one statement if nothing else happened to the payment.
    pub(crate) async fn settle_read(
        &self,
        read: &Payment,
        fact: &Fact,
        telling: Telling,
    ) -> Result<Payment, StoreError> {
        if fact.verdict == Verdict::Processing && !read.provider_reference.is_empty() {
            // Nothing new: questions about a payment in process must be cheap.
            return Ok(read.clone());
        }
        if let Some(event) = event_of(&fact.verdict)
            && let Ok(after) = read.standing.apply(event)
            && after.wish == Wish::Keep
            && matches!(after.state, State::Captured | State::Declined)
            && let Some(saved) = self.store.record_first(read, &after, fact, telling).await?
        {
            if telling == Telling::Reported {
                self.ring_if_told(read, &saved);
            }
            return Ok(saved);
        }
        let settled = self.settle(&read.payment_id, fact).await?;
        Ok(settled.unwrap_or_else(|| read.clone()))
    }

    fn ring_if_told(&self, before: &Payment, after: &Payment) {
        if after.reference.is_some() && before.standing.report(&after.standing).is_some() {
            self.told.notify_one();
        }
    }
}

fn event_of(verdict: &Verdict) -> Option<Event> {
    match verdict {
        Verdict::Processing => None,
        Verdict::Captured => Some(Event::Captured),
        Verdict::Declined { .. } => Some(Event::Declined),
        Verdict::Cancelled => Some(Event::Cancelled),
    }
}
