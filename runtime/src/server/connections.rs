//! Accepting, serving and draining connections.
//!
//! The transport crate's own accept loop is not used: it cannot cut a call, so one silent connection or endless stream
//! would hold up the stop for ever, and it wraps every call in a timer that answers CANCELLED.
//! Absent: TLS and HTTP/1.

use super::trace::Traced;
use crate::deadline::Deadline;
use http::Request;
use hyper::{body::Incoming, server::conn::http2};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{service::Routes, transport::server::TcpConnectInfo};
use tower::ServiceExt as _;

/// Connections served at once; more wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 1_024;
/// Calls at once on one connection; a client keeps more to itself.
const STREAMS_MAX: u32 = 4_096;
/// Calls of one connection that may be taken back before they are looked at. The default of 20 closes the connection,
/// and fails its other calls, when a client with short deadlines meets a busy moment.
const RESETS_MAX: usize = 512;
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// How long a new connection may stay silent.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer without running calls may take to acknowledge that we go away.
const FAREWELL_PATIENCE: Duration = Duration::from_millis(500);
/// How long cut tasks may take to be gone.
const CUT_PATIENCE: Duration = Duration::from_secs(1);
/// The pause after a failed accept. Out of file descriptors is the usual cause, and passes only with time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

type Stack = Traced<Deadline<Routes>>;

/// All connections of one server, and the calls on them.
pub(super) struct Connections {
    stack: Stack,
    slots: Arc<Semaphore>,
    /// Tasks that serve a connection.
    open: TaskTracker,
    calls: Calls,
    /// Work that calls detached.
    work: TaskTracker,
    /// Tells connections to take no more calls.
    stopping: CancellationToken,
}

/// Runs one task per call, in sight of the drain. It is the executor of the HTTP/2 connections.
#[derive(Clone)]
struct Calls {
    running: TaskTracker,
    cut: CancellationToken,
}

impl<F> hyper::rt::Executor<F> for Calls
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, call: F) {
        self.running.spawn(self.cut.clone().run_until_cancelled_owned(call));
    }
}

/// A server that is dropped instead of drained leaves nothing running behind.
impl Drop for Connections {
    fn drop(&mut self) {
        self.calls.cut.cancel();
    }
}

impl Connections {
    pub(super) fn new(stack: Stack, work: TaskTracker) -> Self {
        Self {
            stack,
            slots: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            open: TaskTracker::new(),
            calls: Calls { running: TaskTracker::new(), cut: CancellationToken::new() },
            work,
            stopping: CancellationToken::new(),
        }
    }

    /// Accepts connections until dropped, which closes the listener.
    pub(super) async fn accept(&self, listener: TcpListener) {
        loop {
            let slot = Arc::clone(&self.slots).acquire_owned().await;
            match listener.accept().await {
                Ok((socket, peer)) => {
                    let connection = self.connection(socket, peer);
                    let cut = self.calls.cut.clone();
                    self.open.spawn(async move {
                        let _slot = slot;
                        cut.run_until_cancelled(connection).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn connection(&self, socket: TcpStream, peer: SocketAddr) -> impl Future<Output = ()> + Send + 'static {
        let (stack, calls, stopping) = (self.stack.clone(), self.calls.clone(), self.stopping.clone());
        async move {
            // Without it a small answer can wait 40 ms for the peer's delayed acknowledgement.
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%error, "a connection was lost before it began");
                return;
            }
            let greeted = async { matches!(timeout(GREETING_PATIENCE, socket.readable()).await, Ok(Ok(()))) };
            if !stopping.run_until_cancelled(greeted).await.unwrap_or(false) {
                return;
            }
            let info = TcpConnectInfo { local_addr: socket.local_addr().ok(), remote_addr: Some(peer) };
            let stack = stack.map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(info.clone());
                request
            });
            let mut connection = pin!(
                http2::Builder::new(calls)
                    .timer(TokioTimer::new())
                    .keep_alive_interval(KEEPALIVE_INTERVAL)
                    .keep_alive_timeout(KEEPALIVE_TIMEOUT)
                    .max_concurrent_streams(STREAMS_MAX)
                    .max_pending_accept_reset_streams(RESETS_MAX)
                    .max_header_list_size(HEADER_BYTES_MAX)
                    .serve_connection(TokioIo::new(socket), TowerToHyperService::new(stack))
            );
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stopping.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, %peer, "a connection ended badly");
            }
        }
    }

    /// Lets running calls and their detached work finish until `deadline` from now, then cuts what is left.
    pub(super) async fn drain(self, deadline: Duration) {
        let ends_at = Instant::now() + deadline;
        let (calls, running) = (&self.calls, &self.calls.running);
        self.stopping.cancel();
        for tracker in [&self.open, running, &self.work] {
            tracker.close();
        }
        let drained = timeout_at(ends_at, async {
            running.wait().await;
            self.work.wait().await;
            // A peer that is stopped itself never says goodbye; it must not cost the whole deadline. Calls that it
            // sent while our farewell was on its way are still answered.
            let _ = timeout(FAREWELL_PATIENCE, self.open.wait()).await;
            running.wait().await;
            self.work.wait().await;
        });
        if drained.await.is_err() {
            tracing::warn!(
                calls = running.len(),
                detached = self.work.len(),
                "the drain deadline passed, cutting what is left"
            );
        }
        calls.cut.cancel();
        let _ = timeout(CUT_PATIENCE, async {
            self.open.wait().await;
            running.wait().await;
        })
        .await;
    }
}
