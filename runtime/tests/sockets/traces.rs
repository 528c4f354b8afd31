//! Spans: one per call and end, in one trace, with the outcome.

use crate::{
    bare::Bare,
    probe::{Probe, Served, answer, ask, listen, patient, plain, until},
};
use futures::StreamExt as _;
use opentelemetry::{
    Value,
    trace::{SpanKind, Status as SpanStatus, TracerProvider as _},
};
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, InMemorySpanExporterBuilder, SdkTracerProvider, SpanData,
};
use runtime::{detached, telemetry};
use std::{sync::OnceLock, time::Duration};
use tonic::{Code, Status};
use tracing::Instrument as _;
use tracing_subscriber::{Layer as _, filter::LevelFilter, layer::SubscriberExt as _};

/// The spans of all tests; each looks for its own trace.
fn spans() -> &'static InMemorySpanExporter {
    static SPANS: OnceLock<InMemorySpanExporter> = OnceLock::new();
    SPANS.get_or_init(|| {
        let exporter = InMemorySpanExporterBuilder::new().build();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(LevelFilter::INFO));
        tracing::subscriber::set_global_default(subscriber).unwrap();
        exporter
    })
}

/// Runs `work` under a new root span and returns that trace's finished spans, the first-ended first, once there are
/// `count` beside the root.
async fn traced(count: usize, work: impl Future<Output = ()>) -> Vec<SpanData> {
    spans();
    let root = tracing::info_span!(parent: None, "root");
    let trace_id = root.in_scope(|| {
        let traceparent = telemetry::current_traceparent().unwrap();
        telemetry::trace_id_of(&traceparent).unwrap().to_owned()
    });
    work.instrument(root).await;
    let of_trace = || {
        let mut all = spans().get_finished_spans().unwrap();
        all.retain(|span| span.span_context.trace_id().to_string() == trace_id);
        all
    };
    until("all spans have ended", async || of_trace().len() > count).await;
    let found = of_trace();
    assert_eq!(found.len(), count + 1, "{found:#?}");
    found
}

fn attribute(span: &SpanData, key: &str) -> Option<Value> {
    span.attributes.iter().find(|found| found.key.as_str() == key).map(|found| found.value.clone())
}

fn code(span: &SpanData) -> Code {
    match attribute(span, "rpc.grpc.status_code") {
        Some(Value::I64(code)) => Code::from_i32(i32::try_from(code).unwrap()),
        other => panic!("{other:?} in {span:#?}"),
    }
}

fn of_kind<'a>(spans: &'a [SpanData], kind: &SpanKind) -> &'a SpanData {
    let mut found = spans.iter().filter(|span| span.span_kind == *kind);
    let span = found.next().unwrap_or_else(|| panic!("no {kind:?} in {spans:#?}"));
    assert!(found.next().is_none(), "more than one {kind:?} in {spans:#?}");
    span
}

#[tokio::test]
async fn a_trace_crosses_client_server_client() {
    spans();
    let back = Served::probe(Probe::ask(|_| async { Ok(answer(2)) })).await;
    let to_back = back.client();
    let front = Served::probe(Probe::ask(move |_| {
        let to_back = to_back.clone();
        // The outgoing call is made by work that left the handler's task.
        async move { detached(async move { ask(&to_back, plain()).await }).await }
    }))
    .await;
    let found = traced(4, async {
        ask(&front.client(), plain()).await.unwrap();
    })
    .await;
    // Ended innermost first: server of back, client to back, server of front, client to front, root.
    let mut chain: Vec<&SpanData> = vec![found.last().unwrap()];
    while let Some(child) = {
        let parent = chain.last().unwrap().span_context.span_id();
        found.iter().find(|span| span.parent_span_id == parent)
    } {
        chain.push(child);
    }
    let kinds: Vec<_> = chain.iter().map(|span| span.span_kind.clone()).collect();
    let wanted = [SpanKind::Internal, SpanKind::Client, SpanKind::Server, SpanKind::Client, SpanKind::Server];
    assert_eq!(kinds, wanted, "{found:#?}");
    for span in &chain[1..] {
        assert_eq!(span.name, "probe.v1.Probe/Ask");
        assert_eq!(attribute(span, "rpc.system"), Some("grpc".into()));
        assert_eq!(attribute(span, "rpc.service"), Some("probe.v1.Probe".into()));
        assert_eq!(attribute(span, "rpc.method"), Some("Ask".into()));
        assert_eq!(code(span), Code::Ok);
        assert_eq!(span.status, SpanStatus::Unset);
        assert_eq!(span.parent_span_is_remote, span.span_kind == SpanKind::Server);
    }
    assert_eq!(attribute(chain[1], "server.port"), Some(i64::from(front.address.port()).into()));
}

#[tokio::test]
async fn a_refusal_is_an_error_for_the_client_only() {
    spans();
    for (refused, servers_fault) in [
        (Status::failed_precondition("no stock"), false),
        (Status::not_found("no such order"), false),
        (Status::internal("broken"), true),
        (Status::unavailable("store away"), true),
    ] {
        let wanted = refused.code();
        let served = Served::probe(Probe::ask(move |_| std::future::ready(Err(refused.clone())))).await;
        let found = traced(2, async { drop(ask(&served.client(), plain()).await.unwrap_err()) }).await;
        let (answering, asking) = (of_kind(&found, &SpanKind::Server), of_kind(&found, &SpanKind::Client));
        assert_eq!((code(answering), code(asking)), (wanted, wanted));
        assert!(matches!(asking.status, SpanStatus::Error { .. }), "{asking:#?}");
        assert_eq!(matches!(answering.status, SpanStatus::Error { .. }), servers_fault, "{answering:#?}");
    }
}

#[tokio::test]
async fn a_stream_s_span_ends_with_its_body_and_knows_the_trailers() {
    spans();
    let served = Served::probe(Probe::listen(|_| {
        let items = futures::stream::iter([Ok(answer(1)), Ok(answer(2)), Err(Status::data_loss("torn"))]);
        items.then(|item| async move {
            tokio::time::sleep(Duration::from_millis(40)).await;
            item
        })
    }))
    .await;
    let found = traced(2, async {
        let mut answers = listen(&served.client(), plain()).await.unwrap();
        while let Ok(Some(_)) = answers.message().await {}
    })
    .await;
    for span in [of_kind(&found, &SpanKind::Server), of_kind(&found, &SpanKind::Client)] {
        assert_eq!(code(span), Code::DataLoss);
        assert!(matches!(span.status, SpanStatus::Error { .. }));
        let lasted = span.end_time.duration_since(span.start_time).unwrap();
        assert!(lasted >= Duration::from_millis(100), "{lasted:?}");
    }
}

#[tokio::test]
async fn a_stream_s_body_runs_inside_the_server_s_span() {
    spans();
    let served = Served::probe(Probe::listen(|_| {
        futures::stream::once(async {
            tracing::info_span!("inside").in_scope(|| ());
            Ok(answer(1))
        })
    }))
    .await;
    let found = traced(3, async {
        let mut answers = listen(&served.client(), plain()).await.unwrap();
        while let Ok(Some(_)) = answers.message().await {}
    })
    .await;
    let inside = found.iter().find(|span| span.name == "inside").unwrap();
    assert_eq!(inside.parent_span_id, of_kind(&found, &SpanKind::Server).span_context.span_id());
}

#[tokio::test]
async fn a_call_given_up_is_cancelled_and_one_too_slow_is_late() {
    spans();
    let served = Served::probe(Probe::ask(|_| std::future::pending())).await;
    let found = traced(2, async {
        let call = ask(&served.client(), plain()).await;
        drop(call);
    });
    let found = tokio::time::timeout(Duration::from_millis(200), found).await;
    assert!(found.is_err(), "the call hangs, and is dropped with its trace");

    let found = traced(2, async {
        let client = served.client();
        let call = ask(&client, plain());
        let _ = tokio::time::timeout(Duration::from_millis(100), call).await;
    })
    .await;
    for span in [of_kind(&found, &SpanKind::Server), of_kind(&found, &SpanKind::Client)] {
        assert_eq!(code(span), Code::Cancelled);
        assert_eq!(span.status, SpanStatus::Unset);
    }

    let found = traced(2, async {
        drop(ask(&served.client(), patient(Duration::from_millis(50))).await.unwrap_err());
    })
    .await;
    assert_eq!(code(of_kind(&found, &SpanKind::Client)), Code::DeadlineExceeded);
    // The server's own timer, or the client's word that it gave up: whichever came first.
    let callee = code(of_kind(&found, &SpanKind::Server));
    assert!(matches!(callee, Code::DeadlineExceeded | Code::Cancelled), "{callee:?}");
}

#[tokio::test]
async fn a_foreign_caller_s_trace_is_joined_and_health_makes_no_spans() {
    spans();
    let served = Served::probe(Probe::ask(|_| async { Ok(answer(1)) })).await;
    let mut bare = Bare::connect(served.address).await;
    let trace = |last: char| format!("00-0af7651916cd43dd8448eb211c80319{last}-b7ad6b7169203331-01");
    for path in
        ["/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/X", "/probe.v1.Probe/Ask"]
    {
        bare.call(path, &[("traceparent", &trace('1'))]).await.unwrap();
    }
    // Not sampled by its caller: no span here, but the id goes on.
    bare.call("/probe.v1.Probe/Ask", &[("traceparent", &trace('2').replace("-01", "-00"))]).await.unwrap();
    bare.call("/probe.v1.Probe/Ask", &[("traceparent", &trace('3'))]).await.unwrap();
    let of_trace = |last: char| {
        let id = telemetry::span_context(&trace(last)).unwrap().trace_id();
        let mut all = spans().get_finished_spans().unwrap();
        all.retain(|span| span.span_context.trace_id() == id);
        all
    };
    until("the last call's span has ended", async || !of_trace('3').is_empty()).await;
    let [span] = &of_trace('1')[..] else { panic!("{:#?}", of_trace('1')) };
    assert_eq!(span.name, "probe.v1.Probe/Ask");
    assert_eq!(span.parent_span_id.to_string(), "b7ad6b7169203331");
    assert!(span.parent_span_is_remote);
    assert_eq!(of_trace('2'), []);
}
