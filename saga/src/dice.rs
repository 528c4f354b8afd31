//! Where jitter comes from: the thread's generator, or, in simulation, a seed.

use std::sync::Mutex;

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

/// Rolls numbers in 0..1.
#[derive(Debug, Default)]
pub(crate) struct Dice {
    seeded: Option<Mutex<SmallRng>>,
}

impl Dice {
    /// Dice that roll the same numbers for the same seed.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only a simulation is seeded"))]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { seeded: Some(Mutex::new(SmallRng::seed_from_u64(seed))) }
    }

    pub(crate) fn roll(&self) -> f64 {
        match &self.seeded {
            Some(seeded) => seeded.lock().expect("no code panics while it rolls").random(),
            None => rand::random(),
        }
    }
}
