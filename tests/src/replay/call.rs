//! One call of a patient client: with a deadline, and repeated under the same request id until an answer comes.

use std::time::{Duration, Instant};

use rand::Rng;
use tonic::{Code, Request, Response, Status};

use crate::requests::within;

/// How long one try may take: longer than any ending that comes at once, shorter than a person waits.
const TRY_PATIENCE: Duration = Duration::from_secs(10);
/// How long all tries together may take: a service that is restarted is back long before.
const CALL_PATIENCE: Duration = Duration::from_secs(90);
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// An answer and what it took.
#[derive(Debug, Clone)]
pub struct Answered<T> {
    /// The answer.
    pub answer: T,
    /// Tries after the first.
    pub repeats: u32,
    /// From the first try to the answer.
    pub took: Duration,
}

/// Calls until there is an answer or a refusal that a repeat cannot change. `request` must carry its request id, so
/// that a repeat of a call that did happen is answered with the recorded outcome.
pub async fn patiently<Q: Clone, A>(
    request: Q,
    mut call: impl AsyncFnMut(Request<Q>) -> Result<Response<A>, Status>,
) -> Result<Answered<A>, Status> {
    let started = Instant::now();
    let mut repeats = 0;
    let mut backoff = BACKOFF_FIRST;
    loop {
        let status = match call(within(TRY_PATIENCE, request.clone())).await {
            Ok(response) => {
                return Ok(Answered { answer: response.into_inner(), repeats, took: started.elapsed() });
            }
            Err(status) => status,
        };
        if !may_have_happened(&status) || started.elapsed() >= CALL_PATIENCE {
            return Err(status);
        }
        tokio::time::sleep(backoff.mul_f64(rand::rng().random_range(0.5..1.0))).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
        repeats += 1;
    }
}

/// Codes that say nothing final about the call. INTERNAL is among them because tonic gives it to connections that
/// break in the middle of an answer; RESOURCE_EXHAUSTED because load that was shed may pass.
fn may_have_happened(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Aborted
            | Code::Internal
            | Code::ResourceExhausted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_outcome_is_asked_again_and_a_refusal_is_not() {
        let mut answers =
            vec![Ok(Response::new(7)), Err(Status::unavailable("x")), Err(Status::unknown("x"))];
        let answered = patiently((), async |_| answers.pop().unwrap()).await.unwrap();
        assert_eq!((answered.answer, answered.repeats), (7, 2));
        let mut tries = 0;
        let refused = patiently((), async |_| {
            tries += 1;
            Err::<Response<()>, Status>(Status::failed_precondition("x"))
        });
        assert_eq!(refused.await.unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(tries, 1);
    }
}
