//! Says once when the collector stops taking spans, and once when it takes them again.
//!
//! The SDK logs an error for every batch it cannot send, twice a second for as long as a collector is away; and says
//! nothing when it is back. Absent: a second attempt. What cannot be sent is lost, and counted.

use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// An exporter whose failures are counted, and logged when they begin and when they end.
#[derive(Debug)]
pub(super) struct WatchedExporter<E> {
    inner: E,
    /// Spans lost since the collector last took some.
    lost_spans: AtomicU64,
}

impl<E> WatchedExporter<E> {
    pub(super) fn new(inner: E) -> Self {
        Self { inner, lost_spans: AtomicU64::new(0) }
    }
}

impl<E: SpanExporter> SpanExporter for WatchedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        match self.inner.export(batch).await {
            Ok(()) => {
                let lost_spans = self.lost_spans.swap(0, Ordering::Relaxed);
                if lost_spans > 0 {
                    tracing::info!(lost_spans, "the collector takes spans again");
                }
            }
            Err(error) => {
                if self.lost_spans.fetch_add(spans, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, "the collector takes no spans; until it does they are lost");
                }
            }
        }
        // The failure has been handled here; told to the SDK, it would be logged again for every batch.
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let lost_spans = self.lost_spans.load(Ordering::Relaxed);
        if lost_spans > 0 {
            tracing::warn!(lost_spans, "leaving with spans the collector did not take");
        }
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
