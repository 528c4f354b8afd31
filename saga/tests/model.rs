//! An exhaustive model of how a saga runs ahead of its journal: every order in which two workers, the database and the
//! participants can act, within written bounds. The argument it supports is docs/decisions/0007-running-ahead.md.
//!
//! - *Workers* claim, run ahead with records that are not on disk, flush, die with all they know, and go on as zombies
//!   after another has taken their saga (`run.rs`, `world.rs`).
//! - *The journal* is a row per saga with epoch, seq and log, and a compare-and-set. A flush may be committed and
//!   answered, or its answer is lost and it is committed at once, later, or never (`journal.rs`).
//! - *The network* is the set of all requests ever sent: each may arrive at any moment, any number of times, or never.
//!   That is delay, loss, duplication and reordering without bound. Answers may be late.
//! - *Participants* keep outcomes by id and leave tombstones, but forget their refusals (`participants.rs`).
//! - *A saga* reserves, pays, confirms (the pivot; a lapsed hold is acquired once more) and, in some bounds, finishes.
//!   Cancel and deadline are one: they may turn a saga whenever the rules allow it.
//!
//! The model has types of its own, small enough for millions of states; `mirror.rs` holds them against the engine's
//! `decide`, `record` and fold.
//!
//! Absent: time (whatever may happen, may happen at any moment), operators, parking, waiting rows (giving a saga up
//! between two records is a crash here), and how a flush is put together.
#![expect(clippy::print_stderr, reason = "the figures of a run are what a reader wants of it")]

#[path = "model/bounds.rs"]
mod bounds;
#[path = "model/journal.rs"]
mod journal;
#[path = "model/mirror.rs"]
mod mirror;
#[path = "model/participants.rs"]
mod participants;
#[path = "model/promises.rs"]
mod promises;
#[path = "model/run.rs"]
mod run;
#[path = "model/world.rs"]
mod world;

use std::{collections::BTreeSet, time::Instant};

use bounds::{Bounds, Faults, Rule};
use stateright::{Checker, HasDiscoveries, Model as _};

/// Fits the machine the tests run on.
const THREADS: usize = 2;

/// Walks the whole space and finds every promise kept.
fn holds(name: &str, bounds: Bounds) {
    let begun = Instant::now();
    let checker = bounds.checker().threads(THREADS).spawn_bfs().join();
    eprintln!(
        "model {name}: states={} depth={} seconds={:.1}",
        checker.unique_state_count(),
        checker.max_depth(),
        begun.elapsed().as_secs_f64()
    );
    for (promise, path) in checker.discoveries() {
        let broken = checker.model().property(promise).expectation.discovery_is_failure();
        assert!(!broken, "{name}: {promise:?} does not hold after {:#?}", path.into_actions());
    }
    for wanted in promises::reachable(bounds.faults) {
        assert!(checker.discovery(wanted).is_some(), "{name}: never {wanted:?}");
    }
}

/// Without the rule, `promise` is broken; with it, by the same faults, none is.
fn breaks(rule: Rule, faults: Faults, promise: &'static str) {
    holds(&format!("with {rule:?}"), Bounds { faults, ..Bounds::ONE });
    let bounds = Bounds { faults, without: Some(rule), ..Bounds::ONE };
    let history = shortest(bounds, promise).unwrap_or_else(|| panic!("{promise:?} holds without {rule:?}"));
    eprintln!("model without {rule:?}: {promise:?} is broken after");
    for (step, action) in history.iter().enumerate() {
        eprintln!("  {:>2} {action:?}", step + 1);
    }
}

/// A shortest history that breaks `promise`. The checker gives some history: it is asked again for shorter ones until
/// there is none.
fn shortest(bounds: Bounds, promise: &'static str) -> Option<Vec<world::Action>> {
    let mut shortest: Option<Vec<_>> = None;
    loop {
        let enough = HasDiscoveries::AnyOf(BTreeSet::from([promise]));
        // A history of n actions ends at depth n + 1, and a depth of 0 means no limit.
        let limit = shortest.as_ref().map_or(0, |history| history.len() + 1);
        let checker =
            bounds.checker().threads(THREADS).finish_when(enough).target_max_depth(limit).spawn_bfs().join();
        let Some(shorter) = checker.discovery(promise) else { return shortest };
        shortest = Some(shorter.into_actions());
    }
}

#[test]
fn a_crash_and_a_zombie_and_a_customer_who_pays_by_himself() {
    let faults = Faults { crashes: 1, takeovers: 1, turns: 1, ..Faults::NONE };
    holds("crash and zombie", Bounds { customer_pays: true, faults, ..Bounds::ONE });
}

#[test]
fn a_flush_whose_fate_is_unknown() {
    let faults = Faults { takeovers: 1, lost_answers: 1, turns: 1, ..Faults::NONE };
    holds("unknown flush", Bounds { faults, ..Bounds::ONE });
}

#[test]
fn a_hold_that_lapses_and_a_pivot_without_an_answer() {
    let faults = Faults { takeovers: 1, refusals: 1, lapses: 1, pivot_failures: 1, turns: 1, ..Faults::NONE };
    holds("lapsed hold", Bounds { finish: true, faults, ..Bounds::ONE });
}

#[test]
fn two_sagas_share_the_last_unit_and_the_flush() {
    holds("two sagas, cancel", Bounds { faults: Faults { turns: 1, ..Faults::NONE }, ..Bounds::TWO });
    holds(
        "two sagas, unknown flush",
        Bounds { faults: Faults { lost_answers: 1, ..Faults::NONE }, ..Bounds::TWO },
    );
}

/// Bounds that take minutes, for `./dev chaos sim`: walked only with `HOLDFAST_MODEL=large`.
fn holds_if_large(name: &str, bounds: Bounds) {
    if std::env::var("HOLDFAST_MODEL").is_ok_and(|size| size == "large") {
        holds(name, bounds);
    }
}

#[test]
fn large_an_unknown_flush_and_a_lapsed_hold() {
    let faults = Faults { takeovers: 1, lost_answers: 1, lapses: 1, turns: 1, ..Faults::NONE };
    holds_if_large("large, unknown flush, lapsed hold", Bounds { faults, ..Bounds::ONE });
}

#[test]
fn large_two_crashes_and_an_unknown_flush() {
    let faults = Faults { crashes: 2, lost_answers: 1, turns: 1, ..Faults::NONE };
    holds_if_large("large, two crashes, unknown flush", Bounds { faults, ..Bounds::ONE });
}

#[test]
fn large_a_crash_a_zombie_a_lapsed_hold_and_a_refusal() {
    let faults = Faults { crashes: 1, takeovers: 1, refusals: 1, lapses: 1, turns: 1, ..Faults::NONE };
    holds_if_large("large, crash, zombie, lapsed hold", Bounds { faults, ..Bounds::ONE });
}

#[test]
fn large_two_sagas_a_crash_or_a_zombie() {
    let crash = Faults { crashes: 1, ..Faults::NONE };
    holds_if_large("large, two sagas, crash", Bounds { faults: crash, ..Bounds::TWO });
    let zombie = Faults { takeovers: 1, ..Faults::NONE };
    holds_if_large("large, two sagas, zombie", Bounds { faults: zombie, ..Bounds::TWO });
}

#[test]
fn without_the_waited_start_goods_are_held_for_nobody() {
    let faults = Faults { crashes: 1, ..Faults::NONE };
    breaks(Rule::StartWait, faults, promises::COMES_TO_REST);
}

#[test]
fn without_the_pivots_record_goods_are_sold_and_refunded() {
    let faults = Faults { crashes: 1, turns: 1, ..Faults::NONE };
    breaks(Rule::PivotRecord, faults, promises::NEVER_SOLD_AND_REFUNDED);
}

#[test]
fn without_the_restarted_pivots_record_goods_are_sold_and_refunded() {
    let faults = Faults { takeovers: 1, lapses: 1, refusals: 1, ..Faults::NONE };
    breaks(Rule::PivotRecordAgain, faults, promises::NEVER_SOLD_AND_REFUNDED);
}

#[test]
fn without_the_turns_wait_goods_are_sold_and_refunded() {
    let by_a_zombie = Faults { takeovers: 1, turns: 1, ..Faults::NONE };
    breaks(Rule::TurnWait, by_a_zombie, promises::NEVER_SOLD_AND_REFUNDED);
    let by_a_crash = Faults { crashes: 1, turns: 1, ..Faults::NONE };
    breaks(Rule::TurnWait, by_a_crash, promises::NEVER_SOLD_AND_REFUNDED);
}

#[test]
fn without_the_wait_at_rest_a_caller_is_told_what_is_not_written() {
    let faults = Faults { crashes: 1, turns: 1, ..Faults::NONE };
    breaks(Rule::RestWait, faults, promises::ONE_ANSWER);
}

#[test]
fn without_tombstones_a_late_request_revives_what_was_undone() {
    let faults = Faults { turns: 1, ..Faults::NONE };
    breaks(Rule::Tombstone, faults, promises::UNDONE_IS_TRUE);
}

#[test]
fn without_the_full_undo_something_is_left_behind() {
    let faults = Faults { crashes: 1, turns: 1, ..Faults::NONE };
    breaks(Rule::FullUndo, faults, promises::UNDONE_IS_TRUE);
}

#[test]
fn without_recorded_outcomes_a_repeat_charges_again() {
    let faults = Faults { crashes: 1, ..Faults::NONE };
    breaks(Rule::RecordedOutcome, faults, promises::CHARGED_ONCE);
}

#[test]
fn without_the_epoch_a_zombies_record_passes_for_the_owners() {
    let faults = Faults { takeovers: 1, turns: 1, ..Faults::NONE };
    breaks(Rule::EpochFence, faults, promises::NEVER_SOLD_AND_REFUNDED);
}

#[test]
fn without_a_new_epoch_per_claim_a_late_commit_passes_for_the_owners() {
    let faults = Faults { crashes: 1, turns: 1, ..Faults::NONE };
    breaks(Rule::FreshEpoch, faults, promises::ONE_ANSWER);
}

#[test]
fn without_the_seq_a_repeated_flush_is_written_twice() {
    let faults = Faults { lost_answers: 1, ..Faults::NONE };
    breaks(Rule::SeqFence, faults, promises::LEGAL);
}

/// Two things the engine does beyond what the model needs. Should a change make one of them needed, this fails.
#[test]
fn what_is_done_for_other_reasons() {
    // A record per pivot attempt counts attempts and tells the operator; the first one of a round is what protects.
    let faults = Faults { takeovers: 1, lapses: 1, pivot_failures: 2, ..Faults::NONE };
    holds("without PivotRecordEach", Bounds { faults, without: Some(Rule::PivotRecordEach), ..Bounds::ONE });
    // A hold that lapsed stays lapsed, so whoever turns after a restart has recorded the restart.
    let faults = Faults { takeovers: 1, lapses: 1, refusals: 1, ..Faults::NONE };
    holds("without EveryRound", Bounds { faults, without: Some(Rule::EveryRound), ..Bounds::ONE });
}

#[test]
fn the_model_decides_as_the_engine_does() {
    let logs = mirror::walk(false, 2) + mirror::walk(true, 2);
    eprintln!("model mirror: logs={logs}");
    assert!(logs > 100, "the walk went nowhere: {logs} logs");
}
