//! A trace as text: an indented tree with offsets, error marks and arrows along the links.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::span::Span;
use super::trace::Trace;

const NANOS_PER_MS: f64 = 1_000_000.0;
/// Attributes worth reading in a picture, in this order.
const SHOWN: [&str; 4] = ["saga.attempt", "saga.outcome", "saga.resumed", "rpc.grpc.status_code"];

impl Trace {
    /// The picture. Spans that a link points to get a number; the span that links shows it with an arrow.
    pub fn render(&self) -> String {
        let mut picture = Picture::of(self);
        let services = self.services().into_iter().collect::<Vec<_>>().join(", ");
        picture.line(&format!("trace {}: {} spans of {services}", self.trace_id, self.spans.len()));
        for top in self.tops() {
            picture.branch(top, "", "", "");
        }
        picture.text
    }
}

struct Picture<'a> {
    trace: &'a Trace,
    start_ns: u64,
    numbers: BTreeMap<&'a str, usize>,
    drawn: BTreeSet<&'a str>,
    text: String,
}

impl<'a> Picture<'a> {
    fn of(trace: &'a Trace) -> Self {
        let linked: BTreeSet<&str> =
            trace.spans.iter().flat_map(|span| &span.links).map(|link| link.span_id.as_str()).collect();
        let targets = trace.spans.iter().filter(|span| linked.contains(span.span_id.as_str()));
        let numbers = targets.enumerate().map(|(index, span)| (span.span_id.as_str(), index + 1)).collect();
        let start_ns = trace.spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
        Self { trace, start_ns, numbers, drawn: BTreeSet::new(), text: String::new() }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn branch(&mut self, span: &'a Span, indent: &str, fork: &str, below: &str) {
        // Ids come from outside: a span that claims to be its own ancestor is drawn once.
        if !self.drawn.insert(&span.span_id) {
            return;
        }
        let line = self.describe(span, &format!("{indent}{fork}"));
        self.line(&line);
        let trace = self.trace;
        let children: Vec<&Span> = trace.under(span).collect();
        let indent = format!("{indent}{below}");
        for (index, child) in children.iter().enumerate() {
            let (fork, below) =
                if index + 1 == children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.branch(child, &indent, fork, below);
        }
    }

    fn describe(&self, span: &Span, lead: &str) -> String {
        let mark = if span.error.is_some() { "✗ " } else { "" };
        let number =
            self.numbers.get(span.span_id.as_str()).map(|number| format!(" [{number}]")).unwrap_or_default();
        let name = format!("{lead}{mark}{}{number}", span.name);
        let took = ms(span.end_ns.saturating_sub(span.start_ns));
        let offset = ms(span.start_ns.saturating_sub(self.start_ns));
        let mut line = format!("{offset:>9.1} ms  {name:<66} {:<13} {took:>8.1} ms", span.service);
        for attribute in SHOWN {
            let value = span.attribute(attribute);
            if !value.is_empty() {
                let label = attribute.rsplit('.').next().unwrap_or(attribute);
                let _ = write!(line, "  {label}={value}");
            }
        }
        for link in &span.links {
            match self.numbers.get(link.span_id.as_str()) {
                Some(number) => _ = write!(line, "  ⤴ [{number}]"),
                None => _ = write!(line, "  ⤴ {} (lost)", link.span_id),
            }
        }
        if let Some(error) = &span.error {
            let _ = write!(line, "  {error}");
        }
        line
    }
}

/// Only for the eye: nanoseconds of a test fit a double exactly enough.
#[expect(clippy::cast_precision_loss, reason = "shown with one digit after the point")]
fn ms(nanos: u64) -> f64 {
    nanos as f64 / NANOS_PER_MS
}

#[cfg(test)]
mod tests {
    use crate::sink::{Link, Span, Trace};

    fn span(id: &str, parent: &str, name: &str, start_ms: u64) -> Span {
        Span {
            trace_id: "t".to_owned(),
            span_id: id.to_owned(),
            parent_id: parent.to_owned(),
            service: "order-svc".to_owned(),
            name: name.to_owned(),
            start_ns: start_ms * 1_000_000,
            end_ns: (start_ms + 2) * 1_000_000,
            attributes: std::collections::BTreeMap::default(),
            links: Vec::new(),
            error: None,
        }
    }

    #[test]
    fn a_compensation_reads_as_a_tree_with_arrows() {
        let mut pay = span("b", "a", "saga pay", 3);
        pay.error = Some("declined".to_owned());
        let mut undo = span("c", "a", "saga undo pay", 6);
        undo.links.push(Link {
            trace_id: "t".to_owned(),
            span_id: "b".to_owned(),
            attributes: std::collections::BTreeMap::default(),
        });
        let trace = Trace::new("t", [undo, span("a", "", "CreateOrder", 1), pay]);
        let lines: Vec<String> = trace.render().lines().map(str::to_owned).collect();
        assert!(lines[0].starts_with("trace t: 3 spans of order-svc"), "{lines:#?}");
        assert!(lines[1].starts_with("      0.0 ms  CreateOrder "), "{lines:#?}");
        assert!(lines[2].starts_with("      2.0 ms  ├─ ✗ saga pay [1] "), "{lines:#?}");
        assert!(lines[2].ends_with("declined"), "{lines:#?}");
        assert!(lines[3].starts_with("      5.0 ms  └─ saga undo pay "), "{lines:#?}");
        assert!(lines[3].ends_with("⤴ [1]"), "{lines:#?}");
    }
}
