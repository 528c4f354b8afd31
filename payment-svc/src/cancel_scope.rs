//! Cancelling a scope: the tombstone first, then every payment to its end without money.
//!
//! Once the tombstone is committed no charge of the scope is begun, and every payment of it carries the wish to give
//! back, so that whoever learns of its money later (an answer, a question, an event, the sweep) gives it back too.

use crate::{
    give_back::GiveBackError,
    ids::{PaymentId, Scope},
    payment::Event,
    payments::Payments,
    record::Payment,
    store::{SCOPE_BATCH, StoreError},
};

impl Payments {
    /// Leaves no money of `scope` behind, but that of the payment to `keep`, and refuses later charges of it. Answers its
    /// payments as they stand then.
    /// An error means: not yet; the wish is recorded if the database took it, and a repeat goes on.
    pub(crate) async fn cancel_scope(
        &self,
        scope: &Scope,
        keep: Option<&PaymentId>,
    ) -> Result<Vec<Payment>, GiveBackError> {
        // Ends: after the tombstone no payment is added, and each turn takes a full batch off those without the wish.
        while self.request_cancel(scope, keep).await? == SCOPE_BATCH {}

        let mut payments = self.store.list(scope).await?;
        let mut unfinished = None;
        for payment in &mut payments {
            if !payment.owes() {
                continue;
            }
            // One stuck payment must not keep the money of the others.
            match self.give_back(&payment.payment_id).await {
                Ok(done) => *payment = done,
                Err(error) => unfinished = Some(error),
            }
        }
        unfinished.map_or(Ok(payments), Err)
    }

    /// One transaction: the tombstone, and the wish on at most a batch of payments; answers how many.
    async fn request_cancel(&self, scope: &Scope, keep: Option<&PaymentId>) -> Result<i64, StoreError> {
        let mut tx = self.store.begin().await?;
        tx.cancel_scope(scope).await?;
        let payments = tx.lock_uncancelled(scope, keep).await?;
        let mut count = 0;
        for payment in payments {
            // Nothing forbids the wish in any state.
            if let Ok(after) = payment.standing.apply(Event::CancelRequested) {
                tx.save(&payment, &after, None).await?;
            }
            count += 1;
        }
        tx.commit().await?;
        Ok(count)
    }
}
