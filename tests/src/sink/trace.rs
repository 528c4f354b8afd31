//! A trace: spans of one id as a tree.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

use super::span::Span;

/// Every span of one trace that has arrived, by start time.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Its id, hex.
    pub trace_id: String,
    /// Its spans, by start time.
    pub spans: Vec<Span>,
}

impl Trace {
    /// Puts the spans of a trace in order. An exporter may repeat an export; a span counts once.
    pub fn new(trace_id: &str, spans: impl IntoIterator<Item = Span>) -> Self {
        let once: BTreeMap<String, Span> =
            spans.into_iter().map(|span| (span.span_id.clone(), span)).collect();
        let mut spans: Vec<Span> = once.into_values().collect();
        spans.sort_by(|a, b| (a.start_ns, &a.span_id).cmp(&(b.start_ns, &b.span_id)));
        Self { trace_id: trace_id.to_owned(), spans }
    }

    /// Spans without a parent in this trace: its root, and those whose parent was lost with a killed process.
    pub fn tops(&self) -> impl Iterator<Item = &Span> {
        let known: BTreeSet<&str> = self.spans.iter().map(|span| span.span_id.as_str()).collect();
        self.spans.iter().filter(move |span| !known.contains(span.parent_id.as_str()))
    }

    /// The spans directly under `parent`.
    pub fn under<'a>(&'a self, parent: &'a Span) -> impl Iterator<Item = &'a Span> {
        self.spans.iter().filter(move |span| span.parent_id == parent.span_id)
    }

    /// Every span of this name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Span> {
        self.spans.iter().filter(move |span| span.name == name)
    }

    /// The last span of this name.
    pub fn last(&self, name: &str) -> Result<&Span> {
        self.spans.iter().rfind(|span| span.name == name).with_context(|| format!("no span {name:?}"))
    }

    /// The services that took part.
    pub fn services(&self) -> BTreeSet<&str> {
        self.spans.iter().map(|span| span.service.as_str()).collect()
    }

    /// That another process went on with this story: a span says that it resumes, and links to what was interrupted.
    pub fn resumed(&self) -> Result<()> {
        let resumed: Vec<&Span> =
            self.spans.iter().filter(|span| span.attribute("saga.resumed") == "true").collect();
        ensure!(!resumed.is_empty(), "no span says that it resumed");
        for span in resumed {
            let is_that = |why: &String| why == "resumes";
            let link = span.links.iter().find(|link| link.attributes.get("saga.link").is_some_and(is_that));
            let link = link.with_context(|| format!("{} links to nothing it resumes", span.name))?;
            ensure!(link.trace_id == self.trace_id, "a link out of the trace: {link:?}");
            ensure!(link.span_id != span.span_id, "a link to itself: {link:?}");
        }
        Ok(())
    }

    /// That every span but the root has its parent here: nothing of the story is missing.
    pub fn whole(&self) -> Result<()> {
        let tops: Vec<&str> = self.tops().map(|span| span.name.as_str()).collect();
        ensure!(tops.len() == 1, "a whole trace has one top, this one has {tops:?}");
        Ok(())
    }
}
