//! The limits of admission and what makes them valid. Absent: where they come from.

use std::ops::{Index, IndexMut};

use super::Priority;

/// Heavier than this rounds too coarsely; a thousand to one is starvation by another name anyway.
const WEIGHT_MAX: u32 = 1_024;

/// Turns under load: of 14, with the default, VIP orders get 8, ordinary ones 4, work that goes on 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Of [`Priority::Vip`].
    pub vip: u32,
    /// Of [`Priority::Ordinary`].
    pub ordinary: u32,
    /// Of [`Priority::Recovered`].
    pub recovered: u32,
}

/// How many new sagas may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartRate {
    /// A second, in the long run.
    pub per_s: u32,
    /// At once, after a while without. At least ten milliseconds' worth: timers are not more precise.
    pub burst: u32,
}

/// How many sagas may be in flight, and in which proportion they are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Sagas in flight: 4,096 keep two cores and a database busy several times over; more only wait inside.
    pub in_flight_max: u32,
    /// Who goes first under load.
    pub weights: Weights,
    /// A limit on new sagas, if one is wanted.
    pub starts: Option<StartRate>,
    /// Callers that may wait, per class, so that a flood of one class refuses no other: 8,192 are about as many as
    /// get in within a second or two.
    pub waiting_max: u32,
    /// Sagas going on in flight while no new one entered within the last second: enough to use what is free.
    pub recovered_max: u32,
    /// The same beside new sagas: so few that they are hardly felt, enough for thousands a second.
    pub recovered_beside_max: u32,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            in_flight_max: 4_096,
            weights: Weights { vip: 8, ordinary: 4, recovered: 2 },
            starts: None,
            waiting_max: 8_192,
            recovered_max: 512,
            recovered_beside_max: 64,
        }
    }
}

/// Limits that would let nobody in, or contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionConfigError {
    /// It would stop everything for ever.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// Turns are not that fine.
    #[error("a weight may be at most {WEIGHT_MAX}, not {0}")]
    WeightTooLarge(u32),
    /// The rate would never be reached.
    #[error("a burst of {burst} is less than ten milliseconds of {per_s} starts a second")]
    BurstTooSmall {
        /// The burst asked for.
        burst: u32,
        /// The rate asked for.
        per_s: u32,
    },
    /// Less may go on alone than beside new sagas.
    #[error("recovered_max ({alone}) must not be below recovered_beside_max ({beside})")]
    FewerAlone {
        /// `recovered_max`.
        alone: u32,
        /// `recovered_beside_max`.
        beside: u32,
    },
}

impl AdmissionConfig {
    pub(super) fn check(&self) -> Result<(), AdmissionConfigError> {
        let Weights { vip, ordinary, recovered } = self.weights;
        let starts = self.starts.unwrap_or(StartRate { per_s: 1, burst: 1 });
        let at_least_one = [
            ("in_flight_max", self.in_flight_max),
            ("weights.vip", vip),
            ("weights.ordinary", ordinary),
            ("weights.recovered", recovered),
            ("starts.per_s", starts.per_s),
            ("starts.burst", starts.burst),
            ("waiting_max", self.waiting_max),
            ("recovered_max", self.recovered_max),
            ("recovered_beside_max", self.recovered_beside_max),
        ];
        if let Some((name, _)) = at_least_one.into_iter().find(|(_, value)| *value == 0) {
            return Err(AdmissionConfigError::Zero(name));
        }
        if let Some(weight) = [vip, ordinary, recovered].into_iter().find(|weight| *weight > WEIGHT_MAX) {
            return Err(AdmissionConfigError::WeightTooLarge(weight));
        }
        let StartRate { per_s, burst } = starts;
        if burst < per_s / 100 {
            return Err(AdmissionConfigError::BurstTooSmall { burst, per_s });
        }
        let (alone, beside) = (self.recovered_max, self.recovered_beside_max);
        if alone < beside {
            return Err(AdmissionConfigError::FewerAlone { alone, beside });
        }
        Ok(())
    }

    pub(super) fn weight(&self, priority: Priority) -> u32 {
        match priority {
            Priority::Vip => self.weights.vip,
            Priority::Ordinary => self.weights.ordinary,
            Priority::Recovered => self.weights.recovered,
        }
    }
}

/// One thing for each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PerClass<T>(pub(super) [T; 3]);

impl<T> Index<Priority> for PerClass<T> {
    type Output = T;

    fn index(&self, priority: Priority) -> &T {
        &self.0[priority as usize]
    }
}

impl<T> IndexMut<Priority> for PerClass<T> {
    fn index_mut(&mut self, priority: Priority) -> &mut T {
        &mut self.0[priority as usize]
    }
}
