//! Whose turn it is: stride scheduling over the classes. Each turn moves a class on by a stride that is the shorter
//! the heavier it is; the one that is least far on is next. Absent: queues, slots, and who may enter at all.

use super::{AdmissionConfig, PerClass, Priority};

/// The stride of weight 1. With weights up to 1,024 it rounds by less than a thousandth, and 64 bits last for
/// decades of turns.
const STRIDE: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// How far on each class is.
    passed: PerClass<u64>,
    /// How far on the class was that had the last turn. Whoever is behind could not enter meanwhile, and has no
    /// claim to make up for it: it would shut the others out for as long.
    reached: u64,
}

impl Turns {
    /// Gives the next turn to one of those that `may`; ties go to the higher class.
    pub(super) fn next(
        &mut self,
        config: &AdmissionConfig,
        may: impl Fn(Priority) -> bool,
    ) -> Option<Priority> {
        let candidates = Priority::ALL.into_iter().filter(|priority| may(*priority));
        let next = candidates.min_by_key(|priority| self.passed[*priority].max(self.reached))?;
        self.reached = self.passed[next].max(self.reached);
        self.passed[next] = self.reached + STRIDE / u64::from(config.weight(next));
        Some(next)
    }

    /// What is left of a stride shrinks or grows with the weight, so that a new weight counts from now on.
    pub(super) fn reweigh(&mut self, old: &AdmissionConfig, new: &AdmissionConfig) {
        for priority in Priority::ALL {
            let left = self.passed[priority].saturating_sub(self.reached);
            let left = left * u64::from(old.weight(priority)) / u64::from(new.weight(priority));
            self.passed[priority] = self.reached + left;
        }
    }
}
