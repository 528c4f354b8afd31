//! Everything that was observed in a simulation: a hash over all of it, and the last of it in words.

use std::{
    collections::VecDeque,
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// Lines that are kept in words.
const KEPT_MAX: usize = 2_000;

/// What was observed. Two runs of one seed give equal ones.
#[derive(Debug, Default)]
pub(crate) struct Chronicle {
    hasher: DefaultHasher,
    count: u64,
    last: VecDeque<String>,
}

/// A hash over everything that was observed, and how much that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceHash {
    /// Over every observation with its time.
    pub hash: u64,
    /// How many there were.
    pub observations: u64,
}

impl fmt::Display for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} over {} observations", self.hash, self.observations)
    }
}

impl Chronicle {
    pub(crate) fn note(&mut self, at_ms: u128, what: &str) {
        let line = format!("{at_ms:>8} {what}");
        line.hash(&mut self.hasher);
        self.count += 1;
        if self.last.len() == KEPT_MAX {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    pub(crate) fn hash(&self) -> TraceHash {
        TraceHash { hash: self.hasher.finish(), observations: self.count }
    }

    /// The last observations, oldest first: those that name `about`, or all.
    pub(crate) fn last(&self, count: usize, about: Option<&str>) -> Vec<String> {
        let wanted = self.last.iter().rev().filter(|line| about.is_none_or(|about| line.contains(about)));
        let mut lines: Vec<_> = wanted.take(count).cloned().collect();
        lines.reverse();
        lines
    }
}
