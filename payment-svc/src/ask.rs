//! Reading payments; one in process is asked for at the provider first.

use crate::{
    ids::{PaymentId, Scope},
    payments::Payments,
    record::{Payment, Telling},
    store::StoreError,
};

impl Payments {
    /// Reads a payment. If it is in process and the provider answers, its answer is recorded first; if it does not,
    /// the payment is in process still.
    pub(crate) async fn get(&self, id: &PaymentId) -> Result<Option<Payment>, StoreError> {
        match self.store.find(id).await? {
            Some(payment) if payment.is_processing() => Ok(Some(self.ask(payment).await?)),
            other => Ok(other),
        }
    }

    /// The payments of a scope, oldest first.
    pub(crate) async fn list(&self, scope: &Scope) -> Result<Vec<Payment>, StoreError> {
        self.store.list(scope).await
    }

    /// Asks the provider about a payment in process.
    pub(crate) async fn ask(&self, payment: Payment) -> Result<Payment, StoreError> {
        match self.provider.query(payment.payment_id.clone()).await {
            Ok(Some(fact)) => self.settle_read(&payment, &fact, Telling::Reported).await,
            Ok(None) | Err(_) => Ok(payment),
        }
    }
}
