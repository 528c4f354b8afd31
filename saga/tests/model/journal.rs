//! The durable side: a saga's row with its log, the compare-and-set that appends to it, and the fold over a log.

use std::fmt;

use crate::bounds::Rule;

/// What a log may hold. Less than the engine's: waiting and failed attempts before the pivot change nothing
/// here, since a request may be repeated at any time anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Event {
    Started = 1,
    Reserved,
    Paid,
    PivotBegun,
    PivotFailed,
    Confirmed,
    Finished,
    Completed,
    Restarted,
    Turned,
    PayUndone,
    ReserveUndone,
    Undone,
}

const EVENTS: [Event; 13] = [
    Event::Started,
    Event::Reserved,
    Event::Paid,
    Event::PivotBegun,
    Event::PivotFailed,
    Event::Confirmed,
    Event::Finished,
    Event::Completed,
    Event::Restarted,
    Event::Turned,
    Event::PayUndone,
    Event::ReserveUndone,
    Event::Undone,
];

/// Up to 32 events, four bits each, so that states are small and quick to compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Log {
    bits: u128,
    len: u8,
}

impl Log {
    pub(crate) const fn len(self) -> u8 {
        self.len
    }

    pub(crate) fn push(&mut self, event: Event) {
        assert!(self.len < 32, "a log of the model is at most 32 events long");
        self.bits |= u128::from(event as u8) << (4 * self.len);
        self.len += 1;
    }

    pub(crate) fn events(self) -> impl Iterator<Item = Event> {
        (0..self.len).map(move |at| EVENTS[((self.bits >> (4 * at)) & 15) as usize - 1])
    }

    /// What follows its first `after` events, up to `end`.
    pub(crate) fn part(self, after: u8, end: u8) -> Self {
        let mut part = Self::default();
        for event in self.events().take(usize::from(end)).skip(usize::from(after)) {
            part.push(event);
        }
        part
    }

    pub(crate) fn append(&mut self, other: Self) {
        for event in other.events() {
            self.push(event);
        }
    }

    pub(crate) fn has(self, event: Event) -> bool {
        self.events().any(|one| one == event)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.events()).finish()
    }
}

/// A saga's durable row. An empty log: there is none yet. Who owns it is implied by the epoch, which every claim raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Row {
    pub(crate) epoch: u8,
    pub(crate) log: Log,
}

/// One saga's part of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Append {
    pub(crate) saga: u8,
    pub(crate) epoch: u8,
    /// The seq it follows.
    pub(crate) after: u8,
    pub(crate) events: Log,
}

impl Row {
    /// The compare-and-set. Whether it took.
    pub(crate) fn append(&mut self, append: &Append, without: Option<Rule>) -> bool {
        let begins = append.after == 0;
        let taken = if begins {
            self.log.len() == 0
        } else {
            (self.epoch == append.epoch || without == Some(Rule::EpochFence))
                && (self.log.len() == append.after || without == Some(Rule::SeqFence))
        };
        if taken {
            if begins {
                self.epoch = append.epoch;
            }
            self.log.append(append.events);
        }
        taken
    }
}

/// How a saga ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Completed,
    Undone,
}

/// Which way it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Forward,
    Undoing,
    Ended(End),
}

/// Where a saga stands: the fold over a log.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether one event is in the log")]
pub(crate) struct Standing {
    pub(crate) phase: Phase,
    pub(crate) round: Round,
    pub(crate) reserved: bool,
    /// Whether any round of the reserve has a recorded answer.
    pub(crate) reserve_answered: bool,
    pub(crate) paid: bool,
    pub(crate) pivot_begun: bool,
    pub(crate) pivoted: bool,
    pub(crate) confirmed: bool,
    pub(crate) finished: bool,
    pub(crate) pay_undone: bool,
    pub(crate) reserve_undone: bool,
}

/// Which attempt at a hold: its id derives from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Round {
    First,
    Second,
}

/// A log with an event that cannot follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Illegal;

impl Standing {
    /// Folds a log, which must begin with `Started`.
    pub(crate) fn of(log: Log) -> Result<Self, Illegal> {
        let mut events = log.events();
        if events.next() != Some(Event::Started) {
            return Err(Illegal);
        }
        let mut standing = Self {
            phase: Phase::Forward,
            round: Round::First,
            reserved: false,
            reserve_answered: false,
            paid: false,
            pivot_begun: false,
            pivoted: false,
            confirmed: false,
            finished: false,
            pay_undone: false,
            reserve_undone: false,
        };
        for event in events {
            standing.apply(event)?;
        }
        Ok(standing)
    }

    fn apply(&mut self, event: Event) -> Result<(), Illegal> {
        let forward = self.phase == Phase::Forward;
        let undoing = self.phase == Phase::Undoing;
        let legal = match event {
            Event::Started => false,
            Event::Reserved => forward && !self.reserved,
            Event::Paid => forward && !self.paid,
            Event::PivotBegun => forward && !self.pivot_begun && !self.confirmed,
            Event::PivotFailed | Event::Restarted => forward && self.pivot_begun,
            Event::Finished => forward && self.confirmed && !self.finished,
            Event::Completed => forward && !self.pivot_begun && self.confirmed,
            Event::Confirmed | Event::Turned => forward && !self.confirmed,
            Event::PayUndone => undoing && !self.pay_undone,
            Event::ReserveUndone => undoing && !self.reserve_undone,
            Event::Undone => undoing,
        };
        if !legal {
            return Err(Illegal);
        }
        match event {
            Event::Started => {}
            Event::Reserved => (self.reserved, self.reserve_answered) = (true, true),
            Event::Paid => self.paid = true,
            Event::PivotBegun => (self.pivot_begun, self.pivoted) = (true, true),
            Event::PivotFailed => self.pivot_begun = false,
            Event::Confirmed => (self.pivot_begun, self.confirmed) = (false, true),
            Event::Finished => self.finished = true,
            Event::Completed => self.phase = Phase::Ended(End::Completed),
            Event::Restarted => {
                (self.pivot_begun, self.reserved, self.round) = (false, false, Round::Second);
            }
            Event::Turned => (self.phase, self.pivot_begun) = (Phase::Undoing, false),
            Event::PayUndone => self.pay_undone = true,
            Event::ReserveUndone => self.reserve_undone = true,
            Event::Undone => self.phase = Phase::Ended(End::Undone),
        }
        Ok(())
    }

    /// How it ended, if it did.
    pub(crate) fn end(&self) -> Option<End> {
        match self.phase {
            Phase::Ended(end) => Some(end),
            Phase::Forward | Phase::Undoing => None,
        }
    }
}
