//! A gRPC server as every service runs it: health, reflection, traces, deadlines, and an end that is never hung.
//!
//! Stopping: health says `NOT_SERVING`, no connection is accepted any more, the open ones are told to go away, running
//! calls (and work they detached) get up to the drain deadline, and what is left then is cut.
//! Absent: TLS, authentication and load shedding.

mod connections;
mod health;
mod trace;

use crate::deadline::Deadline;
use connections::Connections;
use health::Health;
use http::{Request, Response};
use std::{convert::Infallible, fmt, pin::Pin, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{body::Body, server::NamedService, service::RoutesBuilder};
use tower::Service;
use trace::Traced;

const DRAIN_DEFAULT: Duration = Duration::from_secs(5);

type Check = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// Why a server could not run, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A descriptor set given for reflection cannot be read.
    #[error("the descriptor set for reflection is unusable: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The listener cannot be used.
    #[error("cannot listen: {0}")]
    Listen(#[from] std::io::Error),
}

/// A server to be. Give it its services, then [`Server::serve`].
pub struct Server {
    listener: TcpListener,
    routes: RoutesBuilder,
    names: Vec<&'static str>,
    descriptor_sets: Vec<&'static [u8]>,
    check: Option<Check>,
    drain: Duration,
}

impl Server {
    /// A server on a bound listener, which may be bound to port 0.
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            routes: RoutesBuilder::default(),
            names: Vec::new(),
            descriptor_sets: Vec::new(),
            check: None,
            drain: DRAIN_DEFAULT,
        }
    }

    /// Serves `service` too, and reports its health under its name.
    #[must_use]
    pub fn service<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.routes.add_service(service);
        self.names.push(S::NAME);
        self
    }

    /// Answers reflection (v1 and v1alpha) from this encoded `FileDescriptorSet`. Only the services served here, and
    /// health, are listed, whatever else the set describes.
    #[must_use]
    pub fn reflection(mut self, descriptor_set: &'static [u8]) -> Self {
        self.descriptor_sets.push(descriptor_set);
        self
    }

    /// Health is SERVING only while `check` says so. It is asked every second; one that takes longer than two counts
    /// as a no, and is waited for, not dropped.
    #[must_use]
    pub fn readiness<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        self.check = Some(Arc::new(move || Box::pin(check())));
        self
    }

    /// How long running calls may take to finish when the server stops. Default 5 s.
    #[must_use]
    pub fn drain(mut self, deadline: Duration) -> Self {
        self.drain = deadline;
        self
    }

    /// Serves until `shutdown` is cancelled, then drains and returns, at the latest shortly after the drain deadline.
    pub async fn serve(mut self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let (health, reporter) = Health::new(&self.names);
        self.routes.add_service(health);
        self.add_reflection()?;
        let work = TaskTracker::new();
        let stack = Traced::new(Deadline::new(self.routes.routes().prepare(), work.clone()));
        tracing::info!(address = %self.listener.local_addr()?, services = ?self.names, "serving");

        let connections = Connections::new(stack, work);
        tokio::select! {
            () = connections.accept(self.listener) => {}
            () = reporter.follow(self.check) => {}
            () = shutdown.cancelled() => {}
        }
        // The listener is closed by now.
        reporter.stop();
        connections.drain(self.drain).await;
        Ok(())
    }

    fn add_reflection(&mut self) -> Result<(), ServeError> {
        if self.descriptor_sets.is_empty() {
            return Ok(());
        }
        let builder = || {
            let mut builder = tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .with_service_name(health::NAME);
            for set in &self.descriptor_sets {
                builder = builder.register_encoded_file_descriptor_set(set);
            }
            for name in &self.names {
                builder = builder.with_service_name(*name);
            }
            builder
        };
        let (v1, v1alpha) = (builder().build_v1()?, builder().build_v1alpha()?);
        self.routes.add_service(v1).add_service(v1alpha);
        Ok(())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("listener", &self.listener)
            .field("services", &self.names)
            .finish_non_exhaustive()
    }
}
