//! The outermost layer: one server span per call, in the caller's trace.
//!
//! Health and reflection make no spans; they are asked every second and tell nothing. A handler that panics answers
//! INTERNAL, where the transport would reset the stream without a word.
//! Absent: access logs.

use crate::{
    rpc_span::{CallSpan, TracedBody},
    telemetry::extract,
};
use futures::FutureExt as _;
use http::{Request, Response};
use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};
use tonic::{Status, body::Body};
use tower::Service;
use tracing::Instrument as _;
use tracing_opentelemetry::{OpenTelemetrySpanExt as _, SetParentError};

/// Puts each call into its span.
#[derive(Clone)]
pub(super) struct Traced<S> {
    inner: S,
}

impl<S> Traced<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S, B> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<TracedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().path();
        if path.starts_with("/grpc.health.") || path.starts_with("/grpc.reflection.") {
            let answer = self.inner.call(request);
            return Box::pin(async move { Ok(answer.await?.map(TracedBody::untraced)) });
        }
        let mut call = CallSpan::server(path);
        if let Some(parent) = extract(request.headers())
            && let Err(SetParentError::AlreadyStarted) = call.span().set_parent(parent)
        {
            // Can only be a mistake in this file: the span was entered before this line.
            tracing::error!("a server span was started before its parent was set");
        }
        let answer = call.span().in_scope(|| self.inner.call(request)).instrument(call.span().clone());
        Box::pin(async move {
            // Unwind safe: the handler's future is gone afterwards, whatever state it was in.
            let answer = match AssertUnwindSafe(answer).catch_unwind().await {
                Ok(answer) => answer?,
                Err(_) => Status::internal("the handler failed").into_http(),
            };
            call.record_from(answer.headers());
            Ok(answer.map(|body| TracedBody::new(body, call)))
        })
    }
}
