//! What one run of the checker covers: how many sagas, how many faults of each kind, and which rule is left out.

/// How far the model goes. Copies, delays, reorderings and losses of requests need no number: whatever was ever sent
/// may arrive at any moment, any number of times, or never.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// One or two, started by the same worker.
    pub(crate) sagas: usize,
    /// Units of stock, shared by the sagas.
    pub(crate) stock: u8,
    /// Whether a step follows the pivot.
    pub(crate) finish: bool,
    /// Whether money may move without being asked for by the saga: a customer who pays by a link.
    pub(crate) customer_pays: bool,
    /// The faults to spend.
    pub(crate) faults: Faults,
    /// The rule left out, if any.
    pub(crate) without: Option<Rule>,
}

/// Faults that may still happen. Each is spent at most this often in one history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A worker dies: its memory is gone, its requests and its flush are still under way.
    pub(crate) crashes: u8,
    /// A saga is taken from a worker that still runs: it stays as a zombie.
    pub(crate) takeovers: u8,
    /// A flush whose answer never comes; it may be committed at once, later or never.
    pub(crate) lost_answers: u8,
    /// A participant refuses what it could have granted.
    pub(crate) refusals: u8,
    /// A hold lapses at the participant.
    pub(crate) lapses: u8,
    /// A pivot attempt ends without an answer and is recorded as failed.
    pub(crate) pivot_failures: u8,
    /// A cancel or the deadline turns a saga.
    pub(crate) turns: u8,
}

impl Bounds {
    /// One saga over one unit of stock, and nothing goes wrong.
    pub(crate) const ONE: Self =
        Self { sagas: 1, stock: 1, finish: false, customer_pays: false, faults: Faults::NONE, without: None };
    /// Two of them, of which the stock serves one.
    pub(crate) const TWO: Self = Self { sagas: 2, ..Self::ONE };
}

impl Faults {
    /// Nothing goes wrong.
    pub(crate) const NONE: Self = Self {
        crashes: 0,
        takeovers: 0,
        lost_answers: 0,
        refusals: 0,
        lapses: 0,
        pivot_failures: 0,
        turns: 0,
    };
}

/// A rule of the protocol that can be left out, to see what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The start is on disk before the first request.
    StartWait,
    /// The pivot is called only when its own record, and all before it, is on disk.
    PivotRecord,
    /// The same, of the pivot after a restart.
    PivotRecordAgain,
    /// The same, of a pivot attempt whose round had one before.
    PivotRecordEach,
    /// Undo begins only when the turn is on disk.
    TurnWait,
    /// A caller is told only what is on disk.
    RestWait,
    /// An undo of something unknown is remembered, and refuses the late original.
    Tombstone,
    /// Undo covers every step, also one without a recorded answer.
    FullUndo,
    /// Undo covers every round a step may have, also one that is not recorded.
    EveryRound,
    /// A participant that is asked again answers what it answered before.
    RecordedOutcome,
    /// An append names the epoch its worker was given.
    EpochFence,
    /// An append names the seq it follows.
    SeqFence,
    /// Every claim takes a new epoch, also one of a row that nobody took meanwhile.
    FreshEpoch,
}
