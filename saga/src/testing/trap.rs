//! Traps: harm that is done at one exact place of a run, for tables of every place there is.

/// On which side of what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It does not happen.
    Before,
    /// It happened, and nobody was told.
    After,
}

/// What a trap does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Harm {
    /// Whoever waits for it is told that it failed.
    Error,
    /// The worker of this name ends like by kill -9.
    Crash(String),
    /// The worker of this name freezes, and hears the answer when it thaws.
    Freeze(String),
}

/// A trap, for the first thing whose label begins with this one.
///
/// Calls are labelled `<participant> <ask|settle|revoke> <id>`, what a flush writes `journal <saga> <event> <step>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trap {
    /// How the label begins.
    pub label: String,
    /// Before it happens, or after.
    pub when: When,
    /// What then.
    pub harm: Harm,
}
