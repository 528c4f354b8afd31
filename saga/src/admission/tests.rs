//! Admission as its callers see it, on virtual time.

mod core;

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use proptest::prelude::*;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn small(in_flight_max: u32) -> AdmissionConfig {
    AdmissionConfig { in_flight_max, ..AdmissionConfig::default() }
}

fn admission(config: AdmissionConfig) -> Admission {
    Admission::new(config).expect("valid")
}

async fn fill(admission: &Admission, slots: u32) -> Vec<Slot> {
    let mut held = Vec::new();
    for _ in 0..slots {
        held.push(admission.enter(Priority::Ordinary, Duration::ZERO).await.expect("free"));
    }
    held
}

/// Lets everything that is ready run, without letting time pass.
async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn limits_that_let_nobody_in_are_refused() {
    let default = AdmissionConfig::default();
    let weights = Weights { vip: 1, ordinary: 0, recovered: 1 };
    let cases = [
        (AdmissionConfig { weights, ..default }, AdmissionConfigError::Zero("weights.ordinary")),
        (AdmissionConfig { in_flight_max: 0, ..default }, AdmissionConfigError::Zero("in_flight_max")),
        (
            AdmissionConfig { recovered_beside_max: 0, ..default },
            AdmissionConfigError::Zero("recovered_beside_max"),
        ),
        (
            AdmissionConfig { weights: Weights { vip: 2_000, ..default.weights }, ..default },
            AdmissionConfigError::WeightTooLarge(2_000),
        ),
        (
            AdmissionConfig { starts: Some(StartRate { per_s: 10_000, burst: 99 }), ..default },
            AdmissionConfigError::BurstTooSmall { burst: 99, per_s: 10_000 },
        ),
        (
            AdmissionConfig { recovered_max: 8, ..default },
            AdmissionConfigError::FewerAlone { alone: 8, beside: 64 },
        ),
    ];
    let held = admission(default);
    for (config, error) in cases {
        assert_eq!(Admission::new(config).err(), Some(error));
        assert_eq!(held.set(config), Err(error));
        assert_eq!(held.config(), default, "nothing of it took effect");
    }
}

#[tokio::test(start_paused = true)]
async fn without_load_everybody_enters_at_once() {
    let admission = admission(small(3));
    let began = Instant::now();
    let vip = admission.enter(Priority::Vip, Duration::ZERO).await.expect("free");
    let ordinary = admission.enter(Priority::Ordinary, LONG).await.expect("free");
    let recovered = admission.enter(Priority::Recovered, LONG).await.expect("free");
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(admission.occupancy().in_flight, [1, 1, 1]);
    assert_eq!(admission.enter(Priority::Vip, Duration::ZERO).await.err(), Some(Overloaded::PatienceEnded));
    drop((vip, ordinary, recovered));
    assert_eq!(admission.occupancy().in_flight, [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_and_an_ended_patience_are_overload() {
    let admission = admission(AdmissionConfig { waiting_max: 2, ..small(1) });
    let held = fill(&admission, 1).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let admission = admission.clone();
        waiting.spawn(
            async move { admission.enter(Priority::Ordinary, Duration::from_millis(250)).await.err() },
        );
    }
    settle().await;
    assert_eq!(admission.enter(Priority::Ordinary, LONG).await.err(), Some(Overloaded::QueueFull));
    let vip = admission.enter(Priority::Vip, Duration::from_millis(100)).await;
    assert_eq!(
        vip.err(),
        Some(Overloaded::PatienceEnded),
        "a flood of one class does not fill another's queue"
    );
    let began = Instant::now();
    assert_eq!(waiting.join_all().await, [Some(Overloaded::PatienceEnded); 2]);
    assert_eq!(began.elapsed(), Duration::from_millis(150));
    assert_eq!(admission.occupancy().waiting, [0; 3]);
    drop(held);
    fill(&admission, 1).await;
}

#[tokio::test(start_paused = true)]
async fn starts_keep_to_their_rate_while_those_that_go_on_do_not_need_it() {
    let admission =
        admission(AdmissionConfig { starts: Some(StartRate { per_s: 100, burst: 10 }), ..small(1_000) });
    let began = Instant::now();
    let mut waiting = tokio::task::JoinSet::new();
    for nth in 0..110 {
        let admission = admission.clone();
        let priority = if nth % 2 == 0 { Priority::Vip } else { Priority::Ordinary };
        waiting
            .spawn(async move { (admission.enter(priority, LONG).await.expect("in time"), Instant::now()) });
    }
    settle().await;
    assert_eq!(admission.occupancy().in_flight, [5, 5, 0], "the burst");
    let slots = admission.try_enter_many(3);
    assert_eq!(slots.len(), 3);
    // The one that keeps the time goes away again and again, and another takes over.
    for _ in 0..20 {
        let impatient = admission.enter(Priority::Vip, Duration::from_millis(1)).await;
        assert_eq!(impatient.err(), Some(Overloaded::PatienceEnded));
    }
    let slots = waiting.join_all().await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_000) && took < Duration::from_millis(1_010), "{took:?}");
    let in_half: usize = slots.iter().filter(|(_, at)| *at - began <= Duration::from_millis(500)).count();
    assert!((59..=60).contains(&in_half), "{in_half} in the first half second");
}

#[tokio::test(start_paused = true)]
async fn the_first_to_wait_for_a_token_wakes_the_one_that_keeps_the_time() {
    let starts = Some(StartRate { per_s: 100, burst: 1 });
    let limits = AdmissionConfig { starts, recovered_max: 1, recovered_beside_max: 1, ..small(10) };
    let admission = admission(limits);
    let slots = (admission.try_enter_many(1), fill(&admission, 1).await);
    let keeper = {
        let admission = admission.clone();
        tokio::spawn(async move { admission.enter(Priority::Recovered, LONG).await })
    };
    settle().await;
    let began = Instant::now();
    drop(admission.enter(Priority::Ordinary, LONG).await.expect("in time"));
    assert_eq!(began.elapsed(), Duration::from_millis(10));
    drop(slots);
    drop(keeper.await.expect("no panic").expect("in time"));
}

#[tokio::test(start_paused = true)]
async fn a_rate_lifted_at_run_time_lets_everybody_in() {
    let starts = Some(StartRate { per_s: 1, burst: 1 });
    let admission = admission(AdmissionConfig { starts, ..small(10) });
    let began = Instant::now();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let admission = admission.clone();
        waiting.spawn(async move { admission.enter(Priority::Ordinary, LONG).await.expect("in time") });
    }
    settle().await;
    assert_eq!(admission.occupancy().waiting, [0, 9, 0]);
    admission.set(small(10)).expect("valid");
    waiting.join_all().await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn recovery_takes_more_when_it_is_quiet_and_less_beside_new_sagas() {
    let admission = admission(AdmissionConfig::default());
    let alone = admission.try_enter_many(1_000);
    assert_eq!(alone.len(), 512);
    let new = fill(&admission, 1).await;
    drop(alone);
    let began = Instant::now();
    tokio::time::advance(Duration::from_millis(400)).await;
    let beside = admission.try_enter_many(1_000);
    assert_eq!(beside.len(), 64);
    assert!(admission.try_enter_many(1).is_empty());
    admission.freed(1_000).await;
    assert_eq!(began.elapsed(), scheduler::QUIET, "quiet by itself makes room");
    assert_eq!(admission.try_enter_many(1_000).len(), 512 - 64);
    drop((beside, new));
}

#[tokio::test(start_paused = true)]
async fn recovery_gets_its_turns_though_new_sagas_queue_for_every_slot() {
    let admission = admission(small(14));
    let mut held: VecDeque<_> = fill(&admission, 14).await.into();
    let mut new = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let admission = admission.clone();
        new.spawn(async move { admission.enter(Priority::Ordinary, LONG).await.expect("in time") });
    }
    settle().await;
    let mut recovered = 0_u32;
    for _ in 0..10 {
        let freed = {
            let admission = admission.clone();
            tokio::spawn(async move { admission.freed(8).await })
        };
        settle().await;
        // As many sagas end as there are turns in three rounds of 4:2.
        for _ in 0..18 {
            held.pop_front();
            settle().await;
            while let Some(slot) = new.try_join_next() {
                held.push_back(slot.expect("no panic"));
            }
        }
        freed.await.expect("no panic");
        let slots = admission.try_enter_many(8);
        recovered += u32::try_from(slots.len()).unwrap();
        held.extend(slots);
        assert!(admission.occupancy().in_flight.iter().sum::<u32>() <= 14);
    }
    assert!((55..=65).contains(&recovered), "{recovered} of 180 turns, a third expected");
}

#[tokio::test(start_paused = true)]
async fn a_promise_that_is_not_taken_up_goes_to_others() {
    let admission = admission(small(1));
    let held = fill(&admission, 1).await;
    let freed = {
        let admission = admission.clone();
        tokio::spawn(async move { admission.freed(1).await })
    };
    settle().await;
    let began = Instant::now();
    drop(held);
    assert_eq!(admission.occupancy().promised, 1);
    tokio::time::advance(Duration::from_millis(300)).await;
    let slot = admission.enter(Priority::Ordinary, LONG).await.expect("in time");
    assert_eq!(began.elapsed(), scheduler::PROMISE);
    freed.await.expect("no panic");
    drop(slot);
}

#[tokio::test(start_paused = true)]
async fn a_claim_loop_that_gives_everything_back_does_not_spin() {
    let admission = admission(AdmissionConfig::default());
    let began = Instant::now();
    for _ in 0..10 {
        assert_eq!(admission.try_enter_many(200).len(), 200);
        admission.freed(200).await;
    }
    assert_eq!(began.elapsed(), PACE * 10);
    assert_eq!(admission.occupancy().promised, 200);
    assert!(admission.try_enter_many(0).is_empty());
    assert_eq!(admission.occupancy().promised, 0);
}

#[tokio::test(start_paused = true)]
async fn a_wish_dropped_is_withdrawn() {
    let admission = admission(small(1));
    let held = fill(&admission, 1).await;
    assert!(tokio::time::timeout(Duration::from_millis(10), admission.freed(5)).await.is_err());
    drop(held);
    assert_eq!(admission.occupancy().promised, 0);
    fill(&admission, 1).await;
}

#[tokio::test(start_paused = true)]
async fn slots_sent_to_those_who_have_just_gone_are_free_again() {
    let admission = admission(small(1));
    let held = fill(&admission, 1).await;
    // Gone between being let in and being sent the slot; so many that a recursion would not survive it.
    for _ in 0..8_000 {
        let (sender, receiver) = oneshot::channel();
        admission.0.lock().queue(Priority::Ordinary, sender).expect("room");
        drop(receiver);
    }
    drop(held);
    assert_eq!(admission.occupancy(), Occupancy { in_flight: [0; 3], waiting: [0; 3], promised: 0 });
}

#[test]
fn under_threads_no_slot_is_lost() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let admission = admission(small(4));
    runtime.block_on(async {
        let mut callers = tokio::task::JoinSet::new();
        for nth in 0..64_u64 {
            let admission = admission.clone();
            callers.spawn(async move {
                for round in 0..100 {
                    let priority = Priority::ALL[usize::try_from((nth + round) % 3).unwrap()];
                    let patience = Duration::from_micros((nth * 7 + round * 13) % 500);
                    if let Ok(slot) = admission.enter(priority, patience).await {
                        tokio::task::yield_now().await;
                        drop(slot);
                    }
                }
            });
        }
        callers.join_all().await;
    });
    assert_eq!(admission.occupancy(), Occupancy { in_flight: [0; 3], waiting: [0; 3], promised: 0 });
}

type Entering = Pin<Box<dyn Future<Output = Result<Slot, Overloaded>>>>;

/// What callers do, in any order.
#[derive(Debug, Clone, Copy)]
enum Op {
    Enter(usize),
    Poll(usize),
    Drop(usize),
    Finish(usize),
    Claim(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_usize..3).prop_map(Op::Enter),
        3 => any::<usize>().prop_map(Op::Poll),
        2 => any::<usize>().prop_map(Op::Drop),
        3 => any::<usize>().prop_map(Op::Finish),
        1 => (0_u32..4).prop_map(Op::Claim),
    ]
}

proptest! {
    /// Whether a waiter is dropped before its turn, after the slot was sent or after it was received: all slots are
    /// there again in the end.
    #[test]
    fn waiters_that_go_away_lose_no_slot(ops in prop::collection::vec(op(), 1..300)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let _within = runtime.enter();
        let admission = admission(small(4));
        let mut entering: Vec<Entering> = Vec::new();
        let mut held: Vec<Slot> = Vec::new();
        let poll = |future: &mut Entering| future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        for op in ops {
            match op {
                Op::Enter(class) => {
                    let admission = admission.clone();
                    let mut future: Entering =
                        Box::pin(async move { admission.enter(Priority::ALL[class], LONG).await });
                    match poll(&mut future) {
                        Poll::Ready(slot) => held.extend(slot),
                        Poll::Pending => entering.push(future),
                    }
                }
                Op::Poll(nth) if !entering.is_empty() => {
                    let nth = nth % entering.len();
                    if let Poll::Ready(slot) = poll(&mut entering[nth]) {
                        held.extend(slot);
                        drop(entering.swap_remove(nth));
                    }
                }
                Op::Drop(nth) if !entering.is_empty() => drop(entering.swap_remove(nth % entering.len())),
                Op::Finish(nth) if !held.is_empty() => drop(held.swap_remove(nth % held.len())),
                Op::Claim(n) => held.extend(admission.try_enter_many(n)),
                Op::Poll(_) | Op::Drop(_) | Op::Finish(_) => {}
            }
            let Occupancy { in_flight, waiting, .. } = admission.occupancy();
            let used: u32 = in_flight.iter().sum();
            prop_assert!(used <= 4);
            prop_assert!(usize::try_from(used).unwrap() >= held.len());
            prop_assert!(used == 4 || waiting == [0; 3], "a slot is free while somebody waits");
            prop_assert!(waiting.iter().sum::<usize>() <= entering.len(), "nobody stands in line who has gone");
        }
        drop(entering);
        prop_assert_eq!(admission.occupancy().waiting, [0; 3]);
        drop(held);
        prop_assert_eq!(admission.occupancy(), Occupancy { in_flight: [0; 3], waiting: [0; 3], promised: 0 });
    }
}
