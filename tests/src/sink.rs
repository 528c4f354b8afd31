//! An OTLP collector for tests: a real gRPC TraceService that keeps what services export and rebuilds traces from it.

mod render;
mod span;
mod trace;

pub use span::{Attributes, Link, Span};
pub use trace::Trace;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::deadline::eventually;

/// Spans kept; a test that makes more is refused loudly instead of eating the machine.
const SPANS_MAX: usize = 500_000;

/// A running collector.
#[derive(Debug)]
pub struct Sink {
    endpoint: String,
    kept: Kept,
    server: JoinHandle<()>,
}

#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<Span>>>);

impl Sink {
    /// Starts it on a free port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let kept = Kept::default();
        let service = TraceServiceServer::new(kept.clone());
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move {
            // It ends only with the test; a sink that fails shows as spans that never come.
            let _ = serving.await;
        });
        Ok(Self { endpoint, kept, server })
    }

    /// What services are given as `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A trace as far as it has arrived.
    pub fn trace(&self, trace_id: &str) -> Trace {
        let spans = self.kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        Trace::new(trace_id, spans.iter().filter(|span| span.trace_id == trace_id).cloned())
    }

    /// Every span of one name, whatever its trace.
    pub fn named(&self, name: &str) -> Vec<Span> {
        let spans = self.kept.0.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().filter(|span| span.name == name).cloned().collect()
    }

    /// Waits until `condition` holds for a trace. The error shows the trace as it was then.
    pub async fn wait_for(
        &self,
        trace_id: &str,
        within: Duration,
        condition: impl Fn(&Trace) -> Result<()>,
    ) -> Result<Trace> {
        ensure!(trace_id.len() == 32, "{trace_id:?} is no trace id");
        eventually(&format!("trace {trace_id} is as expected"), within, async || {
            let trace = self.trace(trace_id);
            condition(&trace).map_err(|missing| missing.context(format!("\n{}", trace.render())))?;
            Ok(trace)
        })
        .await
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tonic::async_trait]
impl TraceService for Kept {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(span::received(request.into_inner()));
        if kept.len() > SPANS_MAX {
            return Err(Status::resource_exhausted("the sink of this test is full"));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
