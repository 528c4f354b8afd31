//! What a process tells about itself: JSON lines on stderr, and spans to an OTLP collector.
//!
//! A collector that is slow, broken or away never slows a request (spans wait in a bounded queue and are dropped when
//! it is full) and never holds up the exit (the last flush has a deadline).
//! Absent: metrics.

mod context;
mod export;
mod log_lines;

pub use context::{context_of, current_traceparent, span_context, trace_id_of};
pub(crate) use context::{extract, inject};

use crate::config::TelemetryArgs;
use export::WatchedExporter;
use log_lines::LogLines;
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider},
};
use std::time::Duration;
use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, Layer as _,
    filter::{FilterExt as _, filter_fn},
    layer::SubscriberExt as _,
};

/// Finished spans that may wait for the collector: about 16 MB. Beyond it spans are dropped, and the number dropped
/// is logged at the end.
const QUEUE_SPANS_MAX: usize = 16_384;
const BATCH_SPANS_MAX: usize = 512;
/// How long a finished span waits for company.
const BATCH_DELAY: Duration = Duration::from_millis(500);
/// How long one batch may take to be exported.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter's directives cannot be read.
    #[error("the log filter is invalid: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The collector's address cannot be used.
    #[error("the OTLP endpoint cannot be used: {0}")]
    Endpoint(#[from] opentelemetry_otlp::ExporterBuildError),
    /// Telemetry was already set up in this process.
    #[error("telemetry is already set up: {0}")]
    AlreadySetUp(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// A process's telemetry. Shut it down last, so that the last spans leave.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
}

/// Sets up logs and traces for the whole process. Call it once, first, inside the runtime.
///
/// Without a collector spans still exist: they have ids, and callers and callees are told them.
pub fn init(service_name: &'static str, args: &TelemetryArgs) -> Result<Telemetry, TelemetryError> {
    // The directives choose events. Spans pass whatever they say: a line carries the ids of the spans around it.
    let filter =
        EnvFilter::try_new(&args.log)?.or(filter_fn(is_span_from_info).with_max_level_hint(Level::INFO));
    let provider = tracer_provider(service_name, args)?;
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("holdfast"))
        // Source places, threads and busy times cost more per span than they tell.
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(is_ours).with_max_level_hint(Level::INFO));
    let lines = LogLines::new(service_name, std::io::stderr).with_filter(filter);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(spans).with(lines))?;
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    std::panic::set_hook(Box::new(log_panic));
    Ok(Telemetry { provider })
}

fn tracer_provider(
    service_name: &'static str,
    args: &TelemetryArgs,
) -> Result<SdkTracerProvider, TelemetryError> {
    let resource = Resource::builder()
        .with_service_name(service_name)
        .with_attribute(KeyValue::new("service.instance.id", uuid::Uuid::new_v4().to_string()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let ratio = Sampler::TraceIdRatioBased(args.trace_ratio);
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::ParentBased(Box::new(ratio)));
    let Some(endpoint) = args.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty()) else {
        return Ok(provider.build());
    };
    let exporter =
        SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_TIMEOUT).build()?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE_SPANS_MAX)
        .with_max_export_batch_size(BATCH_SPANS_MAX)
        .with_scheduled_delay(BATCH_DELAY)
        .build();
    let processor =
        BatchSpanProcessor::builder(WatchedExporter::new(exporter)).with_batch_config(batches).build();
    Ok(provider.with_span_processor(processor).build())
}

fn is_span_from_info(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && *metadata.level() <= Level::INFO
}

/// A panic is a line like every other, in the trace it happened in.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    tracing::error!(
        location = panic.location().map(tracing::field::display),
        backtrace = %std::backtrace::Backtrace::capture(),
        "panicked: {}",
        panic.payload_as_str().unwrap_or("(no message)"),
    );
}

/// Spans and their events from `info` up. The exporter's own transport speaks below that, and what the SDK logs about
/// itself must not become part of a trace.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO && !metadata.target().starts_with("opentelemetry")
}

impl Telemetry {
    /// Sends what is left, for no longer than `deadline`.
    pub async fn shutdown(self, deadline: Duration) {
        let provider = self.provider;
        // The SDK blocks its caller until the collector has answered or the deadline has passed.
        let flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(deadline));
        match tokio::time::timeout(deadline + Duration::from_millis(100), flush).await {
            Ok(Ok(Ok(()))) => {}
            // The SDK has said so already.
            Ok(Ok(Err(error))) => tracing::debug!(%error, "the last spans may not have been exported"),
            Ok(Err(error)) => tracing::warn!(%error, "flushing telemetry failed"),
            Err(_) => tracing::warn!("flushing telemetry took too long"),
        }
    }
}
