//! Seeded randomness: every run that draws timings prints its seed, and `HOLDFAST_SEED` runs it again.

use rand::SeedableRng;
use rand::rngs::StdRng;

/// A generator whose seed is printed with the test's output.
#[expect(clippy::print_stdout, reason = "the test runner shows it with a failure")]
pub fn seeded(test: &str) -> StdRng {
    let given = std::env::var("HOLDFAST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    println!("{test}: HOLDFAST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}
