//! A span as a test reads it, and how it is read off the wire.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1 as wire;

/// Attributes as text.
pub type Attributes = BTreeMap<String, String>;

/// A pointer from one span to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Trace of the other span, hex.
    pub trace_id: String,
    /// The other span, hex.
    pub span_id: String,
    /// What the link says about itself.
    pub attributes: Attributes,
}

/// One exported span. Ids are lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its trace.
    pub trace_id: String,
    /// Itself.
    pub span_id: String,
    /// Its parent; empty for a root.
    pub parent_id: String,
    /// `service.name` of the process that made it.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Begin, nanoseconds since the epoch.
    pub start_ns: u64,
    /// End, nanoseconds since the epoch.
    pub end_ns: u64,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its links.
    pub links: Vec<Link>,
    /// The status message, if its status is error.
    pub error: Option<String>,
}

impl Span {
    /// An attribute; empty if absent.
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// Whether it has a link to `other`.
    pub fn links_to(&self, other: &Span) -> bool {
        self.links.iter().any(|link| link.span_id == other.span_id && link.trace_id == other.trace_id)
    }
}

/// The spans of one export call.
pub(super) fn received(request: ExportTraceServiceRequest) -> impl Iterator<Item = Span> {
    request.resource_spans.into_iter().flat_map(|of_resource| {
        let resource =
            attributes(of_resource.resource.map(|resource| resource.attributes).unwrap_or_default());
        let service = resource.get("service.name").cloned().unwrap_or_default();
        let spans = of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans);
        spans.map(move |span| read(&service, span))
    })
}

fn read(service: &str, span: wire::Span) -> Span {
    let status = span.status.unwrap_or_default();
    let failed = status.code == wire::status::StatusCode::Error as i32;
    Span {
        trace_id: hex::encode(span.trace_id),
        span_id: hex::encode(span.span_id),
        parent_id: hex::encode(span.parent_span_id),
        service: service.to_owned(),
        name: span.name,
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        attributes: attributes(span.attributes),
        links: span.links.into_iter().map(link).collect(),
        error: failed.then_some(status.message),
    }
}

fn link(link: wire::span::Link) -> Link {
    Link {
        trace_id: hex::encode(link.trace_id),
        span_id: hex::encode(link.span_id),
        attributes: attributes(link.attributes),
    }
}

fn attributes(pairs: Vec<KeyValue>) -> Attributes {
    pairs.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}
