//! Telemetry as a process sets it up, against a collector: spans arrive, and name their process.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test may fail where it stands")]

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
};
use runtime::{config::TelemetryArgs, server::Server, telemetry};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_reach_the_collector() {
    let collector = Collector::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::new(listener).service(TraceServiceServer::new(collector.clone()));
    tokio::spawn(server.serve(CancellationToken::default()));

    let args = TelemetryArgs { otlp_endpoint: Some(endpoint), trace_ratio: 1.0, log: "info".to_owned() };
    let process = telemetry::init("probe-svc", &args).unwrap();
    assert!(telemetry::init("probe-svc", &args).is_err(), "once per process");

    let traceparent =
        tracing::info_span!("work", order.id = "o-1").in_scope(telemetry::current_traceparent).unwrap();
    tracing::debug_span!("below").in_scope(|| assert_eq!(telemetry::current_traceparent(), None));
    process.shutdown(Duration::from_secs(5)).await;

    let requests = collector.0.lock().unwrap();
    let resources: Vec<_> = requests.iter().flat_map(|request| &request.resource_spans).collect();
    let spans: Vec<_> = resources
        .iter()
        .flat_map(|resource| &resource.scope_spans)
        .flat_map(|scope| &scope.spans)
        .filter(|span| span.name != "opentelemetry.proto.collector.trace.v1.TraceService/Export")
        .collect();
    let [span] = spans.as_slice() else { panic!("{spans:#?}") };
    assert_eq!(span.name, "work");
    let wanted = telemetry::span_context(&traceparent).unwrap();
    assert_eq!(span.trace_id, wanted.trace_id().to_bytes());
    assert_eq!(span.span_id, wanted.span_id().to_bytes());
    let attributes = &resources[0].resource.as_ref().unwrap().attributes;
    let attribute = |key: &str| {
        let found = attributes.iter().find(|found| found.key == key)?;
        match found.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => Some(text.clone()),
            _ => None,
        }
    };
    assert_eq!(attribute("service.name").as_deref(), Some("probe-svc"));
    assert!(attribute("service.instance.id").is_some_and(|id| id.len() == 36));
}
