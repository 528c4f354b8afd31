//! The engine under a seeded scheduler and virtual time: whatever is lost, late, doubled or killed, the promises hold.
//! One seed is one run: `HOLDFAST_SEED=n` repeats it, `HOLDFAST_SEEDS=n` runs more of them.
#![expect(clippy::print_stderr, clippy::print_stdout, reason = "a failed run is of no use without its seed")]

#[path = "simulation/day.rs"]
mod day;
#[path = "simulation/promises.rs"]
mod promises;
#[path = "simulation/shop.rs"]
mod shop;
#[path = "simulation/table.rs"]
mod table;

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use saga::testing::Weakened;

/// Seeds of an ordinary run.
const SEEDS: u64 = 200;
/// What so many seeds cannot but meet.
const MUST_MEET: [&str; 9] = [
    "completed",
    "undone",
    "taken_over",
    "restarted",
    "deadline_moved",
    "turned_by_refusal",
    "turned_by_deadline",
    "turned_by_cancel",
    "undo_failed",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What many runs came to.
#[derive(Default)]
struct Sweep {
    /// How often what was met.
    met: BTreeMap<&'static str, u64>,
    /// The runs that broke a promise, by seed.
    broken: BTreeMap<u64, day::Report>,
}

/// Runs seeds on all cores until one breaks a promise.
fn sweep(seeds: Range<u64>, weakened: Weakened) -> Sweep {
    let next = AtomicU64::new(seeds.start);
    let sweep = Mutex::<Sweep>::default();
    let locked = || sweep.lock().expect("no run panics while it counts");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || !locked().broken.is_empty() {
                        break;
                    }
                    let report = day::run(seed, weakened);
                    let mut sweep = locked();
                    for (what, times) in &report.met {
                        *sweep.met.entry(what).or_default() += times;
                    }
                    if !report.broken.is_empty() {
                        sweep.broken.insert(seed, report);
                    }
                }
            });
        }
    });
    sweep.into_inner().expect("no run panics while it counts")
}

fn tell(seed: u64, report: &day::Report) {
    for line in &report.told {
        eprintln!("{line}");
    }
    eprintln!("HOLDFAST_SEED={seed}: {}", report.trace);
    for what in &report.broken {
        eprintln!("broken: {what}");
    }
}

#[test]
fn promises_hold_whatever_happens() {
    if let Some(seed) = number("HOLDFAST_SEED") {
        let report = day::run(seed, Weakened::default());
        tell(seed, &report);
        assert!(report.broken.is_empty(), "seed {seed}: {:?}", report.broken);
        return;
    }
    let seeds = number("HOLDFAST_SEEDS").unwrap_or(SEEDS);
    let mut sweep = sweep(0..seeds, Weakened::default());
    let met: Vec<_> = sweep.met.iter().map(|(what, times)| format!("{what}={times}")).collect();
    println!("simulation seeds={seeds} {}", met.join(" "));
    if let Some((seed, report)) = sweep.broken.pop_first() {
        tell(seed, &report);
        panic!("seed {seed} broke promises: {:?}", report.broken);
    }
    // A quiet simulation is no good one.
    for what in MUST_MEET.into_iter().filter(|_| seeds >= SEEDS) {
        assert!(sweep.met.get(what).is_some_and(|times| *times > 0), "{seeds} seeds met no {what}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..10 {
        let (first, second) = (day::run(seed, Weakened::default()), day::run(seed, Weakened::default()));
        if first.trace != second.trace {
            let at = first.told.iter().zip(&second.told).find(|(one, other)| one != other);
            panic!("seed {seed}: {} and {}, first at {at:?}", first.trace, second.trace);
        }
    }
}

/// Seeds within which a rule that is left out must be missed.
const SEEDS_WEAKENED: u64 = 2_000;

fn is_missed(weakened: Weakened) {
    let mut sweep = sweep(0..SEEDS_WEAKENED, weakened);
    let Some((seed, report)) = sweep.broken.pop_first() else {
        panic!("{weakened:?} broke nothing in {SEEDS_WEAKENED} seeds");
    };
    println!("{weakened:?} is noticed at seed {seed}: {:?}", report.broken);
}

#[test]
fn a_pivot_without_its_record_is_noticed() {
    is_missed(Weakened { pivot_record: true, ..Weakened::default() });
}

#[test]
fn a_turn_that_nobody_waits_for_is_noticed() {
    is_missed(Weakened { turn_wait: true, ..Weakened::default() });
}

#[test]
fn an_undo_of_only_what_is_known_is_noticed() {
    is_missed(Weakened { full_undo: true, ..Weakened::default() });
}

#[test]
fn a_missing_tombstone_is_noticed() {
    is_missed(Weakened { tombstones: true, ..Weakened::default() });
}

#[test]
fn every_step_survives_errors_and_crashes_at_every_moment() {
    let (table, broken) = table::draw();
    assert!(broken.is_empty(), "{broken:#?}");
    insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "simulation/snapshots" }, {
        insta::assert_snapshot!("every_step_at_every_moment", table);
    });
}
