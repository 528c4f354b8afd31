//! The way to a peer: one lazily connected channel, a client span per call, and the caller's trace and patience sent
//! along.
//!
//! Absent: retries and load balancing. A call that failed may have been carried out; only the saga engine knows what
//! to do about that.

use crate::{
    deadline::granted,
    rpc_span::{CallSpan, TracedBody},
    telemetry::inject,
};
use http::{Request, Response};
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tonic::{
    Status, TimeoutExpired,
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::Service;
use tracing::Instrument as _;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A peer that vanished without closing its connection is noticed after interval + timeout.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Rich errors travel in headers; the default of 16 KiB counts each header at its full, uncompressed size.
const HEADER_BYTES_MAX: u32 = 64 * 1024;

/// Why a peer's address cannot be used. Whether the peer is there shows only with the first call.
#[derive(Debug, thiserror::Error)]
#[error("{url:?} is not the address of a peer, such as http://127.0.0.1:7001")]
pub struct ConnectError {
    url: String,
    #[source]
    source: Option<tonic::transport::Error>,
}

/// A cheap-to-clone connection to one peer, usable as the transport of any generated client.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    peer: Arc<Peer>,
}

struct Peer {
    host: String,
    port: u16,
}

/// A client of the peer at `url` (`http://host:port`). Connects with the first call, and again after a loss; a peer
/// that is down costs its callers UNAVAILABLE, not this function. Call it inside the runtime.
pub fn connect(url: &str) -> Result<Client, ConnectError> {
    let refused = |source| ConnectError { url: url.to_owned(), source };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|source| refused(Some(source)))?;
    let uri = endpoint.uri();
    // Without a scheme the transport would fail each call; better to fail the start.
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else { return Err(refused(None)) };
    let port = match (uri.port_u16(), scheme) {
        (Some(port), "http" | "https") => port,
        (None, "http") => 80,
        (None, "https") => 443,
        _ => return Err(refused(None)),
    };
    let peer = Arc::new(Peer { host: host.to_owned(), port });
    let channel = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .connect_lazy();
    Ok(Client { channel, peer })
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}:{})", self.peer.host, self.peer.port)
    }
}

impl Service<Request<Body>> for Client {
    type Response = Response<TracedBody>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.channel.poll_ready(cx).map_err(|error| Status::from_error(error.into()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut call = CallSpan::client(request.uri().path(), &self.peer.host, self.peer.port);
        inject(call.span(), request.headers_mut());
        // The patience the request states (tonic's `set_timeout`), kept on this side too: a peer that does not answer
        // at all would not keep it for us. Only up to the headers; a stream may go on.
        let patience = granted(request.headers());
        let response = self.channel.call(request).instrument(call.span().clone());
        Box::pin(async move {
            let status = match tokio::time::timeout(patience, response).await {
                Ok(Ok(response)) => {
                    call.record_from(response.headers());
                    return Ok(response.map(|body| TracedBody::new(body, call)));
                }
                Ok(Err(error)) if !is_timeout(&error) => Status::from_error(error.into()),
                Ok(Err(_)) | Err(_) => Status::deadline_exceeded(format!(
                    "no answer within the call's patience of {} ms",
                    patience.as_millis()
                )),
            };
            call.record(status.code(), status.message());
            Err(status)
        })
    }
}

/// The transport has a timer of its own for the same header, and calls its expiry CANCELLED.
fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .any(<dyn std::error::Error>::is::<TimeoutExpired>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_checked_at_once() {
        for url in
            ["http://127.0.0.1:7001", "http://inventory:7001/", "http://inventory", "http://[::1]:7001"]
        {
            assert!(connect(url).is_ok(), "{url}");
        }
        for url in ["", "inventory:7001", "127.0.0.1:7001", "/tmp/socket", "ftp://inventory", "http://"] {
            assert!(connect(url).is_err(), "{url}");
        }
    }
}
