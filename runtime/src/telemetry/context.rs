//! Trace context in its W3C form: out of and into headers, and as the text a row can keep.
//!
//! Absent: baggage, and any other propagation format.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::{SpanContext, TraceContextExt as _},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

const TRACEPARENT: &str = "traceparent";

/// The `traceparent` of the current span, to be kept with work that goes on later; `None` outside a span.
pub fn current_traceparent() -> Option<String> {
    let context = Span::current().context();
    let span = context.span();
    let span = span.span_context();
    span.is_valid()
        .then(|| format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8() & 1))
}

/// The trace id inside a `traceparent`, if it is one.
pub fn trace_id_of(traceparent: &str) -> Option<&str> {
    span_context(traceparent)?;
    traceparent.split('-').nth(1)
}

/// The span a `traceparent` names, for a link to it; `None` if it is not one.
pub fn span_context(traceparent: &str) -> Option<SpanContext> {
    let context = context_of(traceparent)?;
    Some(context.span().span_context().clone())
}

/// A context whose span is the one a `traceparent` names, for `set_parent`; `None` if it is not one.
pub fn context_of(traceparent: &str) -> Option<Context> {
    struct Single<'a>(&'a str);
    impl Extractor for Single<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            (key == TRACEPARENT).then_some(self.0)
        }
        fn keys(&self) -> Vec<&str> {
            vec![TRACEPARENT]
        }
    }
    valid(TraceContextPropagator::new().extract_with_context(&Context::new(), &Single(traceparent)))
}

/// The caller's context, if the headers hold one.
pub(crate) fn extract(headers: &HeaderMap) -> Option<Context> {
    struct Headers<'a>(&'a HeaderMap);
    impl Extractor for Headers<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key)?.to_str().ok()
        }
        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(HeaderName::as_str).collect()
        }
    }
    if !headers.contains_key(TRACEPARENT) {
        return None;
    }
    valid(TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers)))
}

/// Writes `span`'s context into the headers. Without a span the headers stay as they are.
pub(crate) fn inject(span: &Span, headers: &mut HeaderMap) {
    struct Headers<'a>(&'a mut HeaderMap);
    impl Injector for Headers<'_> {
        fn set(&mut self, key: &str, value: String) {
            // An empty tracestate says nothing.
            if !value.is_empty()
                && let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value))
            {
                self.0.insert(name, value);
            }
        }
    }
    TraceContextPropagator::new().inject_context(&span.context(), &mut Headers(headers));
}

fn valid(context: Context) -> Option<Context> {
    context.span().span_context().is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read() {
        let span = span_context(TEXT).unwrap();
        assert_eq!(span.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(span.span_id().to_string(), "b7ad6b7169203331");
        assert!(span.is_sampled() && span.is_remote());
        assert_eq!(trace_id_of(TEXT), Some("0af7651916cd43dd8448eb211c80319c"));
        assert!(context_of(TEXT).is_some());
    }

    #[test]
    fn what_is_no_traceparent_is_none() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
        ] {
            assert_eq!(trace_id_of(text), None, "{text}");
            assert!(span_context(text).is_none(), "{text}");
        }
    }
}
