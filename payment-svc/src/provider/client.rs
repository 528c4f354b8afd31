//! How a provider is called: with a time limit, a span, and a bound on the calls in flight.
//!
//! A call runs in its own task. When the limit passes, the caller goes on with "unknown" and the call goes on too, as
//! it would at a remote provider; it is not cut off in the middle of what it does. Absent: retries.

use crate::ids::PaymentId;
use crate::provider::{Call, ChargeOrder, Fact, Failure, Provider, RefundOrder, RefundVerdict};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::timeout};
use tracing::{Instrument, Span, info_span};

/// Calls in flight, those whose callers gave up included. One more is not sent.
const CALLS_MAX: usize = 1_024;

/// A provider behind its limits. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ProviderClient {
    provider: Arc<dyn Provider>,
    limit: Duration,
    slots: Arc<Semaphore>,
}

impl ProviderClient {
    /// Calls `provider`, each call for at most `limit`.
    pub(crate) fn new(provider: Arc<dyn Provider>, limit: Duration) -> Self {
        Self { provider, limit, slots: Arc::new(Semaphore::new(CALLS_MAX)) }
    }

    /// See [`Provider::check_token`].
    pub(crate) fn check_token(&self, payment_token: &str) -> Result<(), &'static str> {
        self.provider.check_token(payment_token)
    }

    /// See [`Provider::charge`].
    pub(crate) async fn charge(&self, order: ChargeOrder) -> Result<Fact, Failure> {
        let span = call_span!("provider charge", order.key);
        self.call(span, self.provider.charge(order)).await
    }

    /// See [`Provider::query`].
    pub(crate) async fn query(&self, key: PaymentId) -> Result<Option<Fact>, Failure> {
        let span = call_span!("provider query", key);
        self.call(span, self.provider.query(key)).await
    }

    /// See [`Provider::cancel`].
    pub(crate) async fn cancel(&self, order: ChargeOrder) -> Result<Fact, Failure> {
        let span = call_span!("provider cancel", order.key);
        self.call(span, self.provider.cancel(order)).await
    }

    /// See [`Provider::refund`].
    pub(crate) async fn refund(&self, order: RefundOrder) -> Result<RefundVerdict, Failure> {
        let span = call_span!("provider refund", order.charge);
        self.call(span, self.provider.refund(order)).await
    }

    async fn call<T: std::fmt::Debug + Send + 'static>(
        &self,
        span: Span,
        call: Call<T>,
    ) -> Result<T, Failure> {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return Err(Failure::NotExecuted);
        };
        let running = tokio::spawn(
            async move {
                let _slot = slot;
                call.await
            }
            .instrument(span.clone()),
        );
        // A panic in an adapter says nothing about what the provider did.
        let answer = match timeout(self.limit, running).await {
            Ok(joined) => joined.unwrap_or(Err(Failure::Unknown)),
            Err(_elapsed) => Err(Failure::Unknown),
        };
        if let Err(failure) = &answer {
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", tracing::field::display(failure));
        }
        answer
    }
}

macro_rules! call_span {
    ($name:literal, $payment:expr) => {
        info_span!(
            $name,
            otel.kind = "client",
            otel.status_code = tracing::field::Empty,
            otel.status_description = tracing::field::Empty,
            payment.id = %$payment
        )
    };
}
use call_span;
