//! Spans of steps: every attempt of a saga, by whichever process and however late, stands in the trace of the call
//! that began it. Undo links to do, retry to the attempt before, resumed to interrupted.

use std::collections::HashMap;

use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::TraceContextExt as _,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::{definition::Definition, id::SagaId, state::State};

/// What a step's span stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Do,
    Undo,
}

/// Makes the span of one attempt of step `index`.
pub(crate) fn step_span(
    saga: SagaId,
    definition: &Definition,
    index: usize,
    state: &State,
    direction: Direction,
    attempt: u32,
    resumed: bool,
) -> Span {
    let step = definition.shape.steps[index].name;
    let names = &definition.span_names[index];
    let (name, word) = match direction {
        Direction::Do => (names.0.as_str(), "do"),
        Direction::Undo => (names.1.as_str(), "undo"),
    };
    let span = tracing::info_span!(
        "saga_step",
        otel.name = name,
        otel.status_code = tracing::field::Empty,
        otel.status_description = tracing::field::Empty,
        saga.id = %saga,
        saga.kind = definition.kind,
        saga.step = step,
        saga.direction = word,
        saga.attempt = i64::from(attempt),
        saga.outcome = tracing::field::Empty,
    );
    if span.is_disabled() {
        return span;
    }
    // The parent must be set before the span is entered. It fails only where no OpenTelemetry layer is installed.
    if let Some(parent) = state.traceparent.as_deref() {
        let _ = span.set_parent(context_of(parent));
    }
    for (name, value) in state.attributes.iter() {
        span.set_attribute(name.clone(), value.clone());
    }
    // Nothing recorded yet: what was interrupted hangs under the call that began the saga.
    let interrupted = state.last_span.as_deref().or(state.traceparent.as_deref()).filter(|_| resumed);
    if let Some(last) = interrupted {
        span.set_attribute("saga.resumed", true);
        link(&span, last, "resumes");
    }
    let recorded = state.steps.get(step).and_then(|entry| entry.span.as_deref());
    if let Some(earlier) =
        recorded.filter(|earlier| direction == Direction::Undo || interrupted != Some(*earlier))
    {
        link(&span, earlier, if direction == Direction::Undo { "undoes" } else { "retries" });
    }
    span
}

/// Records how the attempt ended. A failed forward step is an error; a compensation that worked is not.
pub(crate) fn record_outcome(span: &Span, outcome: &'static str, error: Option<&str>) {
    span.record("saga.outcome", outcome);
    if let Some(error) = error {
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", error);
    }
}

/// The W3C trace context of a span, if it has one.
pub fn traceparent_of(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    let mut carrier = Carrier::default();
    opentelemetry_sdk::propagation::TraceContextPropagator::new()
        .inject_context(&span.context(), &mut carrier);
    carrier.0.remove(TRACEPARENT)
}

fn context_of(traceparent: &str) -> Context {
    let carrier = Carrier(HashMap::from([(TRACEPARENT, traceparent.to_owned())]));
    opentelemetry_sdk::propagation::TraceContextPropagator::new()
        .extract_with_context(&Context::new(), &carrier)
}

fn link(span: &Span, traceparent: &str, why: &'static str) {
    let context = context_of(traceparent);
    let target = context.span().span_context().clone();
    if target.is_valid() {
        span.add_link_with_attributes(target, vec![KeyValue::new("saga.link", why)]);
    }
}

const TRACEPARENT: &str = "traceparent";

#[derive(Default)]
struct Carrier(HashMap<&'static str, String>);

impl Injector for Carrier {
    fn set(&mut self, key: &str, value: String) {
        if key == TRACEPARENT {
            self.0.insert(TRACEPARENT, value);
        }
    }
}

impl Extractor for Carrier {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().copied().collect()
    }
}
