//! The services that order-svc asks, and what their answers mean. Unknown is never failure: only a status that
//! carries our `ErrorInfo` under a code for refusals says that nothing happened.

use std::{collections::HashMap, time::Duration};

use proto::{
    inventory::v1::inventory_service_client::InventoryServiceClient,
    payment::v1::payment_service_client::PaymentServiceClient, reason,
};
use runtime::client::{Client, ConnectError, connect};
use tonic::{Code, Request, Response, Status};

/// Clients of the other services. Cheap to clone.
#[derive(Clone)]
pub struct Peers {
    /// inventory-svc.
    pub inventory: InventoryServiceClient<Client>,
    /// payment-svc.
    pub payments: PaymentServiceClient<Client>,
}

impl Peers {
    /// Connects lazily: the services may come up later.
    pub fn connect(inventory_url: &str, payment_url: &str) -> Result<Self, ConnectError> {
        Ok(Self {
            inventory: InventoryServiceClient::new(connect(inventory_url)?),
            payments: PaymentServiceClient::new(connect(payment_url)?),
        })
    }
}

/// What a call came to.
#[derive(Debug)]
pub enum Answer<T> {
    /// It happened.
    Ok(T),
    /// It did not happen and will not: a participant's decision.
    Refused {
        /// Stable reason.
        reason: String,
        /// What it is about.
        metadata: HashMap<String, String>,
    },
    /// It may have happened: ask again under the same id.
    Unknown(String),
}

impl<T> Answer<T> {
    /// For calls that no participant refuses in a way that matters: what it gave, or why to ask again.
    pub fn or_ask_again(self) -> Result<T, String> {
        match self {
            Self::Ok(given) => Ok(given),
            Self::Refused { reason, .. } | Self::Unknown(reason) => Err(reason),
        }
    }
}

/// How long a participant may take. Below the engine's attempt timeout, so that the participant's own end of the
/// call is what is reported.
const PATIENCE: Duration = Duration::from_millis(1_900);

/// A request that tells the participant how long its caller waits.
pub fn asking<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    request
}

/// Makes a call and reads its answer.
pub async fn call<T>(answer: impl Future<Output = Result<Response<T>, Status>>) -> Answer<T> {
    let status = match answer.await {
        Ok(response) => return Answer::Ok(response.into_inner()),
        Err(status) => status,
    };
    let refuses = matches!(status.code(), Code::FailedPrecondition | Code::NotFound | Code::InvalidArgument);
    match runtime::status::reason(&status, reason::DOMAIN).filter(|_| refuses) {
        Some(refusal) => Answer::Refused { reason: refusal.reason, metadata: refusal.metadata },
        None => Answer::Unknown(format!("{:?}: {}", status.code(), status.message())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn of(status: Status) -> Answer<()> {
        call(async { Err(status) }).await
    }

    fn refusal(code: Code) -> Status {
        runtime::status::refusal(code, reason::DOMAIN, reason::INSUFFICIENT_STOCK, "no", [])
    }

    #[tokio::test]
    async fn only_our_reason_under_a_refusing_code_is_a_refusal() {
        for code in [Code::FailedPrecondition, Code::NotFound, Code::InvalidArgument] {
            assert!(matches!(of(refusal(code)).await, Answer::Refused { .. }), "{code:?}");
            // A proxy's answer under the same code says nothing about the participant.
            assert!(matches!(of(Status::new(code, "no")).await, Answer::Unknown(_)), "{code:?}");
        }
        for code in [
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::Cancelled,
            Code::Unknown,
            Code::Internal,
            Code::Aborted,
            Code::ResourceExhausted,
            Code::Unimplemented,
        ] {
            assert!(matches!(of(refusal(code)).await, Answer::Unknown(_)), "{code:?}");
        }
    }
}
