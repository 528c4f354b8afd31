//! What the lines of a proxy share: the moment it waits for, whether it came, and when everything may pass again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::wire::{Moment, Protocol};

#[derive(Debug)]
pub(super) struct Gate {
    pub(super) protocol: Protocol,
    inner: Mutex<Inner>,
    releases: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    armed: Option<Moment>,
    /// Requests seen since it was armed.
    requests: usize,
    /// One line has taken the moment; the others pass.
    taken: bool,
    holding: bool,
    /// Requests that were held and are neither answered nor lost.
    unanswered: usize,
}

impl Gate {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self { protocol, inner: Mutex::default(), releases: watch::channel(0).0 }
    }

    pub(super) fn arm(&self, moment: Moment) {
        let mut inner = self.inner();
        inner.armed = Some(moment);
        (inner.requests, inner.taken, inner.holding) = (0, false, false);
    }

    pub(super) fn disarm(&self) {
        self.inner().armed = None;
    }

    pub(super) fn moment(&self) -> Option<Moment> {
        self.inner().armed
    }

    pub(super) fn is_holding(&self) -> bool {
        let inner = self.inner();
        inner.armed.is_some() && inner.holding
    }

    pub(super) fn unanswered(&self) -> usize {
        self.inner().unanswered
    }

    pub(super) fn release(&self) {
        self.disarm();
        self.releases.send_modify(|count| *count += 1);
    }

    /// Changes with the next release.
    pub(super) fn released(&self) -> watch::Receiver<u64> {
        self.releases.subscribe()
    }

    /// A request begins: whether it is the one that is waited for.
    pub(super) fn is_call(&self) -> Option<Moment> {
        let mut inner = self.inner();
        inner.requests += 1;
        let Some(moment @ Moment::Call { nth, .. }) = inner.armed else { return None };
        let is_it = !inner.taken && inner.requests == nth;
        inner.taken |= is_it;
        is_it.then_some(moment)
    }

    /// The record that is waited for, while no line has seen it.
    pub(super) fn record(&self) -> Option<&'static str> {
        let inner = self.inner();
        match inner.armed {
            Some(Moment::Record { event, .. }) if !inner.taken => Some(event),
            _ => None,
        }
    }

    /// A line has seen the record. `None`: another one was faster.
    pub(super) fn take_record(&self) -> Option<Moment> {
        let mut inner = self.inner();
        if inner.taken {
            return None;
        }
        inner.taken = true;
        inner.armed
    }

    /// A request is to be held. `false`: everything may pass again already.
    pub(super) fn hold_request(&self) -> bool {
        let mut inner = self.inner();
        let is_armed = inner.armed.is_some();
        if is_armed {
            inner.holding = true;
            inner.unanswered += 1;
        }
        is_armed
    }

    /// A request that was held is answered, or lost.
    pub(super) fn request_ended(&self) {
        self.inner().unanswered -= 1;
    }

    /// The answer is there, and to be held. `false`: everything may pass again already.
    pub(super) fn hold_answer(&self) -> bool {
        let mut inner = self.inner();
        inner.holding = inner.armed.is_some();
        inner.holding
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
