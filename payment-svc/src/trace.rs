//! Work that goes on after its call, in the trace of the charge that began it.

use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Hangs a new span under a stored `traceparent`. Without a usable one it begins a trace of its own.
pub(crate) fn continue_trace(span: &Span, traceparent: Option<&str>) {
    if let Some(context) = traceparent.and_then(runtime::telemetry::context_of)
        && span.set_parent(context).is_err()
    {
        tracing::debug!("this span takes no parent");
    }
}
