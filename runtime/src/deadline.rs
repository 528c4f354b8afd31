//! The patience of a call: read from `grpc-timeout`, enforced as `DEADLINE_EXCEEDED`, and readable by the handler.
//!
//! The transport's own timeout is not used: it answers CANCELLED, which clients read as "the caller went away".
//! The limit covers a handler up to its response headers. A streaming body that follows is not limited here; it ends
//! when the client, the handler or the server's stop ends it.
//! Absent: what the handler does with its patience, and the margin it keeps for its own answer.

use crate::call::Call;
use http::{HeaderMap, Request, Response};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tonic::{Status, body::Body};
use tower::Service;

/// The patience of a caller that states none.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(30);
/// The most patience a call is granted, whatever its caller states.
pub const PATIENCE_MAX: Duration = Duration::from_mins(5);

const GRPC_TIMEOUT: &str = "grpc-timeout";
/// The protocol allows eight digits; more is not a timeout.
const GRPC_TIMEOUT_DIGITS_MAX: usize = 8;

/// What is left of the current call's patience; zero when it is over, `None` outside a call.
pub fn remaining() -> Option<Duration> {
    Call::current_end().map(|ends_at| ends_at.saturating_duration_since(Instant::now()))
}

/// The patience a request states, if it states a readable one.
pub(crate) fn stated(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let unit = value.char_indices().next_back()?;
    let (digits, unit) = (&value[..unit.0], unit.1);
    if digits.is_empty()
        || digits.len() > GRPC_TIMEOUT_DIGITS_MAX
        || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_hours(amount)),
        'M' => Some(Duration::from_mins(amount)),
        'S' => Some(Duration::from_secs(amount)),
        'm' => Some(Duration::from_millis(amount)),
        'u' => Some(Duration::from_micros(amount)),
        'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

/// The patience a request is granted.
pub(crate) fn granted(headers: &HeaderMap) -> Duration {
    stated(headers).unwrap_or(PATIENCE_DEFAULT).min(PATIENCE_MAX)
}

/// Ends calls whose patience is over. When it does, the handler is dropped: see [`crate::detached()`].
#[derive(Clone)]
pub(crate) struct Deadline<S> {
    inner: S,
    work: TaskTracker,
}

impl<S> Deadline<S> {
    pub(crate) fn new(inner: S, work: TaskTracker) -> Self {
        Self { inner, work }
    }
}

impl<S, B> Service<Request<B>> for Deadline<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let patience = granted(request.headers());
        let ends_at = Instant::now() + patience;
        let answer = Call { ends_at, work: self.work.clone() }.scope(self.inner.call(request));
        Box::pin(async move {
            match tokio::time::timeout_at(ends_at, answer).await {
                Ok(answer) => answer,
                Err(_) => Ok(Status::deadline_exceeded(format!(
                    "the call's patience of {} ms is over",
                    patience.as_millis()
                ))
                .into_http()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(timeout: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(GRPC_TIMEOUT), timeout.parse().unwrap())])
    }

    #[test]
    fn a_timeout_is_read_in_every_unit() {
        for (text, wanted) in [
            ("1H", Duration::from_hours(1)),
            ("2M", Duration::from_mins(2)),
            ("3S", Duration::from_secs(3)),
            ("250m", Duration::from_millis(250)),
            ("7u", Duration::from_micros(7)),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("0m", Duration::ZERO),
        ] {
            assert_eq!(stated(&headers(text)), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_timeout_counts_as_none_stated() {
        for text in ["", "S", "5", "5s", "-1S", "+1S", "123456789S", "1 S", "1.5S", "9é"] {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(GRPC_TIMEOUT),
                http::HeaderValue::from_bytes(text.as_bytes()).unwrap(),
            )]);
            assert_eq!(stated(&headers), None, "{text}");
            assert_eq!(granted(&headers), PATIENCE_DEFAULT, "{text}");
        }
    }

    #[test]
    fn patience_is_capped() {
        assert_eq!(granted(&headers("99999999H")), PATIENCE_MAX);
        assert_eq!(granted(&headers("2S")), Duration::from_secs(2));
    }
}
