//! The tail of one saga's journal: what this process recorded of it and has not seen on disk yet. The saga runs ahead
//! of it and waits for it where it must; the writer takes it in pieces. No I/O is known here.

use std::{
    any::Any,
    fmt::Write as _,
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use chrono::{DateTime, Utc};
use tokio::sync::Notify;

use crate::{
    definition::Definition,
    event::Event,
    id::{Epoch, SagaId, Seq},
    journal::{Entry, Position, SignalId, Standing, Status},
    state::State,
};

/// Refusals of one entry that are put up with; the next one parks its saga.
pub(crate) const REFUSALS_MAX: u32 = 8;

/// Why nothing more is written of a saga by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It is not ours any more. Nothing may be touched.
    Lost,
    /// What it recorded was refused again and again: its row is parked.
    Parked,
    /// The caller's row was not accepted: it never began.
    Declined,
}

/// The tail.
pub(crate) struct Tail {
    pub(crate) saga: SagaId,
    pub(crate) epoch: Epoch,
    pub(crate) definition: Definition,
    inner: Mutex<Inner>,
    settled: Notify,
}

struct Inner {
    /// The seq that `events` continue.
    after: Seq,
    events: Vec<Event>,
    json: String,
    signals: Vec<(SignalId, Seq)>,
    release: Option<DateTime<Utc>>,
    state: Arc<State>,
    begins: Option<Arc<dyn Any + Send + Sync>>,
    /// An entry that was flushed in vain; it goes before everything else.
    again: Option<Entry>,
    /// All events of the saga as JSON, `events` included.
    history: String,
    place: Place,
    refusals: u32,
    /// What this process last brought to disk.
    standing: Option<Standing>,
    cut: Option<Cut>,
}

/// An entry was refused more than [`REFUSALS_MAX`] times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOften;

/// Where the tail is on its way to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing is to be written.
    Clean,
    /// Something is, and it may ride along with what comes.
    Lazy,
    /// The writer has it in its queue.
    Queued,
    /// A flush is under way with its first part.
    Flying {
        /// More was recorded meanwhile that cannot wait.
        urgent: bool,
    },
}

/// What a tail asks of the writer after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Nothing,
    /// Look at it in a while.
    Soon,
    /// Flush it now.
    Now,
}

impl Tail {
    /// The tail of a saga whose journal is on disk up to `seq`; `history` is that journal.
    pub(crate) fn at(
        saga: SagaId,
        epoch: Epoch,
        seq: Seq,
        definition: Definition,
        state: Arc<State>,
        history: String,
    ) -> Self {
        Self {
            saga,
            epoch,
            definition,
            inner: Mutex::new(Inner {
                after: seq,
                events: Vec::new(),
                json: String::new(),
                signals: Vec::new(),
                release: None,
                state,
                begins: None,
                again: None,
                history,
                place: Place::Clean,
                refusals: 0,
                standing: None,
                cut: None,
            }),
            settled: Notify::new(),
        }
    }

    /// The tail of a saga that begins with `first` and the caller's `row`.
    pub(crate) fn beginning(
        saga: SagaId,
        definition: Definition,
        state: Arc<State>,
        first: Event,
        row: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let tail = Self::at(saga, Epoch(1), Seq(0), definition, Arc::clone(&state), String::new());
        {
            let mut inner = tail.inner();
            inner.begins = Some(row);
            inner.push(vec![first], state);
        }
        tail
    }

    /// Takes events in; `state` has them applied.
    pub(crate) fn record(&self, events: Vec<Event>, signals: &[(SignalId, Seq)], state: Arc<State>) -> Ask {
        let mut inner = self.inner();
        inner.signals.extend_from_slice(signals);
        inner.push(events, state);
        if inner.place == Place::Clean {
            inner.place = Place::Lazy;
            return Ask::Soon;
        }
        Ask::Nothing
    }

    /// The saga is given up until `until` with the next flush.
    pub(crate) fn release(&self, until: DateTime<Utc>) {
        self.inner().release = Some(until);
    }

    /// What was recorded so far must go to disk now.
    pub(crate) fn urge(&self) -> Ask {
        let mut inner = self.inner();
        match inner.place {
            Place::Clean | Place::Lazy if inner.is_dirty() => {
                inner.place = Place::Queued;
                Ask::Now
            }
            Place::Flying { .. } => {
                inner.place = Place::Flying { urgent: true };
                Ask::Nothing
            }
            Place::Clean | Place::Lazy | Place::Queued => Ask::Nothing,
        }
    }

    /// What rode along long enough.
    pub(crate) fn is_lazy(&self) -> bool {
        self.inner().place == Place::Lazy
    }

    /// Waits until all of it is on disk. `Err`: it never will be.
    pub(crate) async fn settled(&self) -> Result<(), Cut> {
        loop {
            let settled = self.settled.notified();
            {
                let inner = self.inner();
                if let Some(cut) = inner.cut {
                    return Err(cut);
                }
                if !inner.is_dirty() && !matches!(inner.place, Place::Flying { .. }) {
                    return Ok(());
                }
            }
            settled.await;
        }
    }

    /// What this process last brought to disk.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.inner().standing
    }

    /// Why nothing more will be written of it.
    pub(crate) fn cut(&self) -> Option<Cut> {
        self.inner().cut
    }

    /// The seq after everything recorded.
    pub(crate) fn end(&self) -> Seq {
        let inner = self.inner();
        inner.after.plus(inner.events.len())
    }

    /// Takes what is to be written, for a flush.
    pub(crate) fn take(&self) -> Option<Entry> {
        let mut inner = self.inner();
        if inner.cut.is_some() || !inner.is_dirty() {
            inner.place = Place::Clean;
            return None;
        }
        inner.place = Place::Flying { urgent: false };
        if let Some(entry) = inner.again.take() {
            return Some(entry);
        }
        let ends = Status::of(&inner.state).is_end();
        let entry = Entry {
            saga: self.saga,
            epoch: self.epoch,
            after: inner.after,
            events: mem::take(&mut inner.events),
            json: mem::take(&mut inner.json),
            state: Arc::clone(&inner.state),
            release: inner.release.take(),
            signals: mem::take(&mut inner.signals),
            definition: self.definition.clone(),
            begins: inner.begins.take(),
            history: ends.then(|| mem::take(&mut inner.history)),
        };
        inner.after = entry.end();
        Some(entry)
    }

    /// A flushed entry is on disk.
    pub(crate) fn written(&self, standing: Standing) -> Ask {
        let mut inner = self.inner();
        inner.standing = Some(standing);
        inner.refusals = 0;
        let ask = inner.land();
        drop(inner);
        self.settled.notify_waiters();
        ask
    }

    /// A flushed entry is not on disk: it is tried again as it is, since a commit that was not answered may still come.
    pub(crate) fn put_back(&self, entry: Entry) {
        self.inner().put_back(entry);
    }

    /// The same of one that was refused. `Err`: it was refused too often.
    pub(crate) fn refused(&self, entry: Entry) -> Result<(), TooOften> {
        let mut inner = self.inner();
        inner.put_back(entry);
        inner.refusals += 1;
        if inner.refusals > REFUSALS_MAX { Err(TooOften) } else { Ok(()) }
    }

    /// Nothing more is written.
    pub(crate) fn end_with(&self, cut: Cut) {
        self.inner().cut = Some(cut);
        self.settled.notify_waiters();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds a tail")
    }
}

impl Inner {
    fn is_dirty(&self) -> bool {
        !self.events.is_empty() || self.release.is_some() || self.begins.is_some() || self.again.is_some()
    }

    fn push(&mut self, events: Vec<Event>, state: Arc<State>) {
        for event in &events {
            let text = serde_json::to_string(event).expect("events are plain data");
            for buffer in [&mut self.json, &mut self.history] {
                let comma = if buffer.is_empty() { "" } else { "," };
                let _ = write!(buffer, "{comma}{text}");
            }
        }
        self.events.extend(events);
        self.state = state;
    }

    fn put_back(&mut self, entry: Entry) {
        self.again = Some(entry);
        self.place = Place::Queued;
    }

    /// What next, after a flight.
    fn land(&mut self) -> Ask {
        let urgent = matches!(self.place, Place::Flying { urgent: true }) || self.release.is_some();
        match (self.is_dirty(), urgent) {
            (false, _) => {
                self.place = Place::Clean;
                Ask::Nothing
            }
            (true, true) => {
                self.place = Place::Queued;
                Ask::Now
            }
            (true, false) => {
                self.place = Place::Lazy;
                Ask::Soon
            }
        }
    }
}

/// What the row says of an entry whose fate is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Written,
    /// Still ours, and where the entry expects it: try again.
    Again,
    Lost,
}

impl Entry {
    /// Ours and where the entry ends: it was written. Ours and where it began: it was not. Anything else is somebody
    /// else's.
    pub(crate) fn judge(&self, row: Option<&Position>, owner: crate::id::WorkerId) -> Verdict {
        let Some(row) = row else {
            return if self.begins.is_some() { Verdict::Again } else { Verdict::Lost };
        };
        let is_ours = row.owner == Some(owner);
        // Given up with it, or by it.
        let is_given_up = row.owner.is_none() && (self.releases() || self.begins.is_none());
        if row.epoch == self.epoch && row.seq == self.end() && (is_ours || is_given_up) {
            // An entry without events changes only who owns the row.
            let moved = !self.events.is_empty() || !is_ours;
            return if moved { Verdict::Written } else { Verdict::Again };
        }
        if row.epoch == self.epoch && row.seq == self.after && is_ours {
            Verdict::Again
        } else {
            Verdict::Lost
        }
    }
}
