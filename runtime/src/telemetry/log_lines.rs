//! Logs as JSON lines: one event, one line, one write.
//!
//! A line holds the event's fields, the ids of the spans around it (order, saga, …) and the trace it belongs to.
//! Absent: span starts and ends; those are traces. Other span fields; they would repeat on every line.

use opentelemetry::{Context as OtelContext, trace::TraceContextExt as _};
use serde::ser::{SerializeMap as _, Serializer as _};
use serde_json::Value;
use std::{fmt, io::Write as _};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    fmt::MakeWriter,
    layer::Context,
    registry::{LookupSpan, Scope},
};

/// Writes each event as a JSON line.
pub(super) struct LogLines<W> {
    service: &'static str,
    writer: W,
}

impl<W> LogLines<W> {
    pub(super) fn new(service: &'static str, writer: W) -> Self {
        Self { service, writer }
    }
}

/// The fields of a span that every line inside it repeats.
struct Ids(Fields);

#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// A name stands once in a line; the innermost span's value is the one that counts.
    fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }
}

/// `order.id`, `saga.step`, …: what one searches logs by.
fn is_id(name: &str) -> bool {
    name.starts_with("saga.") || name.rsplit_once('.').is_some_and(|(_, last)| last == "id")
}

impl<S, W> Layer<S> for LogLines<W>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut ids = Only::default();
        attributes.record(&mut ids);
        if !ids.0.0.is_empty()
            && let Some(span) = context.span(id)
        {
            span.extensions_mut().insert(Ids(ids.0));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut ids = Only::default();
        values.record(&mut ids);
        if !ids.0.0.is_empty()
            && let Some(span) = context.span(id)
        {
            let mut extensions = span.extensions_mut();
            match extensions.get_mut::<Ids>() {
                Some(Ids(known)) => ids.0.0.into_iter().for_each(|(name, value)| known.set(name, value)),
                None => extensions.insert(Ids(ids.0)),
            }
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(Ids(ids)) = span.extensions().get::<Ids>() {
                ids.0.iter().for_each(|(name, value)| fields.set(name, value.clone()));
            }
        }
        event.record(&mut All(&mut fields));
        let mut line = match self.line(event, &fields) {
            Ok(line) => line,
            Err(error) => {
                format!("{{\"level\":\"ERROR\",\"message\":\"a log line was lost: {error}\"}}").into()
            }
        };
        line.push(b'\n');
        // There is nowhere left to report that stderr is gone.
        let _ = self.writer.make_writer_for(event.metadata()).write_all(&line);
    }
}

impl<W> LogLines<W> {
    fn line(&self, event: &Event<'_>, fields: &Fields) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = Vec::with_capacity(256);
        let mut json = serde_json::Serializer::new(&mut line);
        let mut map = json.serialize_map(None)?;
        let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        map.serialize_entry("timestamp", &now)?;
        map.serialize_entry("level", event.metadata().level().as_str())?;
        map.serialize_entry("service", self.service)?;
        map.serialize_entry("target", event.metadata().target())?;
        for (name, value) in &fields.0 {
            // Our own keys are not to be written twice.
            if !matches!(*name, "timestamp" | "level" | "service" | "target" | "trace_id" | "span_id") {
                map.serialize_entry(name, value)?;
            }
        }
        // An entered span is also the current OpenTelemetry context of its thread.
        let context = OtelContext::current();
        let span = context.span();
        let span = span.span_context();
        if span.is_valid() {
            map.serialize_entry("trace_id", &span.trace_id().to_string())?;
            map.serialize_entry("span_id", &span.span_id().to_string())?;
        }
        map.end()?;
        Ok(line)
    }
}

/// Takes every field.
struct All<'a>(&'a mut Fields);

/// Takes the ids, and does not even format the rest.
#[derive(Default)]
struct Only(Fields);

macro_rules! visit {
    ($visitor:ty, $wanted:expr) => {
        impl Visit for $visitor {
            fn record_str(&mut self, field: &Field, value: &str) {
                if $wanted(field.name()) {
                    self.0.set(field.name(), value.into());
                }
            }
            fn record_i64(&mut self, field: &Field, value: i64) {
                if $wanted(field.name()) {
                    self.0.set(field.name(), value.into());
                }
            }
            fn record_u64(&mut self, field: &Field, value: u64) {
                if $wanted(field.name()) {
                    self.0.set(field.name(), value.into());
                }
            }
            fn record_f64(&mut self, field: &Field, value: f64) {
                if $wanted(field.name()) {
                    self.0.set(field.name(), value.into());
                }
            }
            fn record_bool(&mut self, field: &Field, value: bool) {
                if $wanted(field.name()) {
                    self.0.set(field.name(), value.into());
                }
            }
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                if $wanted(field.name()) {
                    self.0.set(field.name(), format!("{value:?}").into());
                }
            }
        }
    };
}
visit!(All<'_>, |_: &str| true);
visit!(Only, is_id);

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::TracerProvider as _;
    use std::{
        io,
        sync::{Arc, Mutex},
    };
    use tracing_subscriber::layer::SubscriberExt as _;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(work: impl FnOnce()) -> Vec<serde_json::Map<String, Value>> {
        let kept = Kept::default();
        let writer = kept.clone();
        let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
        let subscriber = tracing_subscriber::registry()
            .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("test")))
            .with(LogLines::new("test-svc", move || writer.clone()));
        tracing::subscriber::with_default(subscriber, work);
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_line_is_json_with_the_events_fields() {
        let lines = lines(|| {
            tracing::warn!(count = 3, ratio = 0.5, late = true, who = "a\n\"b\"", why = ?Some(1), "it {}", "happened");
        });
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["service"], "test-svc");
        assert_eq!(line["message"], "it happened");
        assert_eq!(line["count"], 3);
        assert_eq!(line["ratio"], 0.5);
        assert_eq!(line["late"], true);
        assert_eq!(line["who"], "a\n\"b\"");
        assert_eq!(line["why"], "Some(1)");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
        assert!(!line.contains_key("trace_id"), "{line:?}");
    }

    #[test]
    fn a_line_carries_the_trace_and_the_ids_around_it() {
        let lines = lines(|| {
            let outer = tracing::info_span!("outer", order.id = "o-1", saga.id = "s-1", secret = "hidden");
            let _outer = outer.enter();
            let inner = tracing::info_span!("inner", saga.id = "s-2", saga.attempt = tracing::field::Empty);
            inner.record("saga.attempt", 2);
            let _inner = inner.enter();
            tracing::info!("inside");
            tracing::info!(saga.id = "s-3", trace_id = "forged", "its own");
        });
        let [inside, own] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(inside["order.id"], "o-1");
        assert_eq!(inside["saga.id"], "s-2", "the innermost span counts");
        assert_eq!(inside["saga.attempt"], 2);
        assert!(!inside.contains_key("secret"));
        assert_eq!(inside["trace_id"].as_str().unwrap().len(), 32);
        assert_eq!(inside["span_id"].as_str().unwrap().len(), 16);
        assert_eq!(own["saga.id"], "s-3", "the event's own field counts most");
        assert_eq!(own["trace_id"], inside["trace_id"]);
    }
}
