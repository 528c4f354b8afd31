//! A client made of bare HTTP/2: no timer of its own, no gRPC library. What it sees is what the server sent.

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use tokio::net::TcpStream;

pub(crate) struct Bare {
    requests: SendRequest<Full<Bytes>>,
    address: SocketAddr,
}

/// What came back: the headers, and the trailers if there were any.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Came {
    /// `grpc-status`, wherever it stood.
    pub(crate) fn status(&self) -> Option<i32> {
        let value = self.headers.get("grpc-status").or_else(|| self.trailers.as_ref()?.get("grpc-status"))?;
        value.to_str().ok()?.parse().ok()
    }
}

impl Bare {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let (requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        Self { requests, address }
    }

    /// Calls `path` with an empty message.
    pub(crate) async fn call(&mut self, path: &str, headers: &[(&'static str, &str)]) -> hyper::Result<Came> {
        let mut request = Request::post(format!("http://{}{path}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(&[0_u8; 5][..])).unwrap();
        let (head, body) = self.requests.send_request(request).await?.into_parts();
        let body = body.collect().await?;
        Ok(Came { headers: head.headers, trailers: body.trailers().cloned() })
    }
}
