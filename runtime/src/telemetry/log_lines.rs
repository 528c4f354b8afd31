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
use tracing_subscriber::{Layer, fmt::MakeWriter, layer::Context, registry::LookupSpan};

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
    name.starts_with("saga.") || name.ends_with(".id")
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
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
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
