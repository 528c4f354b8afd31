//! One span per RPC, for both ends: its name, its attributes and how it learns the call's outcome.
//!
//! Attributes follow OpenTelemetry's semantic conventions for gRPC. The outcome of a gRPC call stands in the response
//! headers (when there is no body) or in the trailers after the body, so the body is watched to its end.
//! Absent: metrics, and message events inside a stream.

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use tonic::{Code, Status, body::Body};
use tracing::{Span, field::Empty};

/// Which end of the call a span stands for. It decides what counts as an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Server,
    Client,
}

/// The span of one call, open until its outcome is known.
pub(crate) struct CallSpan {
    span: Span,
    side: Side,
    recorded: bool,
}

impl CallSpan {
    /// A span without local parent: the caller sets the remote one before it enters the span.
    pub(crate) fn server(path: &str) -> Self {
        let (name, service, method) = parts(path);
        let span = tracing::info_span!(
            parent: None,
            "rpc.server",
            otel.name = name,
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = method,
            rpc.grpc.status_code = Empty,
            otel.status_code = Empty,
            otel.status_description = Empty,
        );
        Self { span, side: Side::Server, recorded: false }
    }

    /// A child of the current span.
    pub(crate) fn client(path: &str, host: &str, port: u16) -> Self {
        let (name, service, method) = parts(path);
        let span = tracing::info_span!(
            "rpc.client",
            otel.name = name,
            otel.kind = "client",
            rpc.system = "grpc",
            rpc.service = service,
            rpc.method = method,
            server.address = host,
            // As i64: the OpenTelemetry layer turns unsigned numbers into text.
            server.port = i64::from(port),
            rpc.grpc.status_code = Empty,
            otel.status_code = Empty,
            otel.status_description = Empty,
        );
        Self { span, side: Side::Client, recorded: false }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Takes the outcome from headers or trailers, if it stands there.
    pub(crate) fn record_from(&mut self, headers: &HeaderMap) {
        if let Some(status) = Status::from_header_map(headers) {
            self.record(status.code(), status.message());
        }
    }

    pub(crate) fn record(&mut self, code: Code, message: &str) {
        if std::mem::replace(&mut self.recorded, true) {
            return;
        }
        self.span.record("rpc.grpc.status_code", code as i32);
        let failed = match self.side {
            Side::Client => code != Code::Ok,
            Side::Server => is_server_fault(code),
        };
        if failed {
            self.span.record("otel.status_description", message);
            self.span.record("otel.status_code", "ERROR");
        }
    }
}

/// Nobody saw an outcome: the other end went away, or this end stopped waiting. That is a cancelled call, not a fault.
impl Drop for CallSpan {
    fn drop(&mut self) {
        if !self.recorded {
            self.span.record("rpc.grpc.status_code", Code::Cancelled as i32);
        }
    }
}

/// The codes that make a server span an error: a caller's mistake or a refusal is no fault of the server's.
/// Source: OpenTelemetry semantic conventions, gRPC, server span status.
fn is_server_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// `/package.Service/Method` → name, service, method.
fn parts(path: &str) -> (&str, &str, &str) {
    let name = path.strip_prefix('/').unwrap_or(path);
    let (service, method) = name.rsplit_once('/').unwrap_or((name, ""));
    (name, service, method)
}

/// A response body that keeps its call's span open until the outcome has passed by.
pub struct TracedBody {
    inner: Body,
    call: Option<CallSpan>,
}

impl TracedBody {
    pub(crate) fn new(inner: Body, call: CallSpan) -> Self {
        // Without a body there is nothing left to wait for, and nobody will poll for it.
        let call = (!inner.is_end_stream()).then_some(call);
        Self { inner, call }
    }

    /// A body without a call to watch.
    pub(crate) fn untraced(inner: Body) -> Self {
        Self { inner, call: None }
    }
}

impl HttpBody for TracedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let polled = match &this.call {
            Some(call) => call.span().in_scope(|| Pin::new(&mut this.inner).poll_frame(cx)),
            None => Pin::new(&mut this.inner).poll_frame(cx),
        };
        if let Poll::Ready(frame) = &polled
            && let Some(call) = &mut this.call
        {
            match frame {
                Some(Ok(frame)) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        call.record_from(trailers);
                        this.call = None;
                    }
                }
                Some(Err(status)) => {
                    call.record(status.code(), status.message());
                    this.call = None;
                }
                None => {
                    call.record(Code::Unknown, "the response ended without a status");
                    this.call = None;
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_gives_name_service_and_method() {
        assert_eq!(
            parts("/orders.v1.OrderService/CreateOrder"),
            ("orders.v1.OrderService/CreateOrder", "orders.v1.OrderService", "CreateOrder")
        );
        assert_eq!(parts("/odd"), ("odd", "odd", ""));
        assert_eq!(parts(""), ("", "", ""));
    }

    #[test]
    fn only_the_servers_own_faults_are_its_errors() {
        let faults: Vec<i32> = (0..=16).filter(|code| is_server_fault(Code::from_i32(*code))).collect();
        assert_eq!(faults, [2, 4, 12, 13, 14, 15]);
    }
}
