//! What goes wrong in a simulation, and how often. All of it is drawn from the seed.

use std::time::Duration;

/// What goes wrong, as shares of all calls (0 never, 1 always).
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// Between workers and their journal.
    pub journal: JournalFaults,
    /// Between workers and participants.
    pub network: NetworkFaults,
}

/// What goes wrong with the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalFaults {
    /// The longest an ordinary call takes one way.
    pub slowest: Duration,
    /// Calls that do nothing and say so.
    pub failed: f64,
    /// Calls that are carried out, or not, and are not answered.
    pub unknown: f64,
    /// Calls that are answered with a failure and carried out later all the same.
    pub late: f64,
    /// How much later at most.
    pub latest: Duration,
    /// Rows of a flush that somebody else holds at the moment: they are left to the next flush.
    pub locked: f64,
    /// Hints that nobody hears.
    pub hints_lost: f64,
}

/// What goes wrong on the way to a participant and back.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkFaults {
    /// The longest an ordinary call takes one way.
    pub slowest: Duration,
    /// Requests that never arrive.
    pub lost: f64,
    /// Requests that are carried out and whose answer never arrives.
    pub unanswered: f64,
    /// Requests that arrive long after the caller gave up.
    pub delayed: f64,
    /// Requests that arrive a second time, later.
    pub duplicated: f64,
    /// How late a delayed or duplicated request arrives at most.
    pub latest: Duration,
}

impl Faults {
    /// Nothing goes wrong; calls take their time.
    pub const NONE: Self = Self {
        journal: JournalFaults {
            slowest: Duration::from_millis(4),
            failed: 0.0,
            unknown: 0.0,
            late: 0.0,
            latest: Duration::ZERO,
            locked: 0.0,
            hints_lost: 0.0,
        },
        network: NetworkFaults {
            slowest: Duration::from_millis(8),
            lost: 0.0,
            unanswered: 0.0,
            delayed: 0.0,
            duplicated: 0.0,
            latest: Duration::ZERO,
        },
    };

    /// A bad day: about one call in five goes wrong in one of these ways.
    pub const MANY: Self = Self {
        journal: JournalFaults {
            slowest: Duration::from_millis(12),
            failed: 0.04,
            unknown: 0.05,
            late: 0.04,
            latest: Duration::from_secs(9),
            locked: 0.03,
            hints_lost: 0.3,
        },
        network: NetworkFaults {
            slowest: Duration::from_millis(40),
            lost: 0.05,
            unanswered: 0.07,
            delayed: 0.06,
            duplicated: 0.08,
            latest: Duration::from_secs(12),
        },
    };
}

impl Default for Faults {
    fn default() -> Self {
        Self::MANY
    }
}

/// A rule of the engine or of participants that is left out, to see that the simulation notices. For tests of the
/// tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule that is there or not")]
pub struct Weakened {
    /// A pivot attempt does not wait for its record.
    pub pivot_record: bool,
    /// The first undo does not wait for the turn.
    pub turn_wait: bool,
    /// Undo covers only steps that are known to have answered.
    pub full_undo: bool,
    /// An undo of something that never happened leaves no tombstone.
    pub tombstones: bool,
}
