//! The scheduler by itself: shares, changes of weight, and random histories against what must always hold.

use proptest::prelude::*;

use super::super::*;

type Core = Scheduler<u32>;

fn nobody() -> Admitted<u32> {
    Admitted { waiters: VecDeque::new(), promised: false }
}

/// Full slots, all classes queueing: each finished saga lets one in. Counts who it was.
struct Saturated {
    core: Core,
    now: Instant,
    inside: VecDeque<Priority>,
}

impl Saturated {
    fn new(config: AdmissionConfig) -> Self {
        let now = Instant::now();
        let mut core = Core::new(config);
        let mut inside = VecDeque::new();
        while core.enter(Priority::Ordinary, now, &mut nobody()) {
            inside.push_back(Priority::Ordinary);
        }
        Self { core, now, inside }
    }

    fn turns(&mut self, turns: u32, classes: &[Priority]) -> [u32; 3] {
        let mut counts = [0; 3];
        for _ in 0..turns {
            self.now += Duration::from_millis(1);
            for priority in classes {
                while self.core.occupancy().waiting[*priority as usize] < 3 {
                    self.core.queue(*priority, 0).expect("room");
                }
            }
            let ended = self.inside.pop_front().expect("full");
            let mut admitted = nobody();
            self.core.finish(ended, self.now, &mut admitted);
            let [(priority, _)] = Vec::from(admitted.waiters)[..] else { panic!("one out, one in") };
            counts[priority as usize] += 1;
            self.inside.push_back(priority);
        }
        counts
    }
}

fn weights(vip: u32, ordinary: u32, recovered: u32) -> AdmissionConfig {
    AdmissionConfig {
        in_flight_max: 100,
        weights: Weights { vip, ordinary, recovered },
        ..AdmissionConfig::default()
    }
}

#[test]
fn under_load_turns_follow_the_weights_and_nobody_starves() {
    let mut saturated = Saturated::new(AdmissionConfig { in_flight_max: 100, ..AdmissionConfig::default() });
    assert_eq!(saturated.turns(1_400, &Priority::ALL), [800, 400, 200]);
    assert_eq!(saturated.turns(28, &[Priority::Vip, Priority::Ordinary])[2], 3, "those that still waited");
    assert_eq!(saturated.turns(1_200, &[Priority::Vip, Priority::Ordinary]), [800, 400, 0]);
    assert_eq!(saturated.turns(14, &Priority::ALL)[2], 2, "those that were away have nothing to catch up on");
    let mut steep = Saturated::new(weights(1_024, 1, 1));
    assert_eq!(steep.turns(1_026 * 3, &Priority::ALL), [1_024 * 3, 3, 3]);
}

#[test]
fn a_weight_changed_at_run_time_counts_from_the_next_turns() {
    let mut saturated = Saturated::new(weights(1_000, 1, 1));
    assert_eq!(saturated.turns(10, &Priority::ALL), [8, 1, 1]);
    // Nearly a stride of weight 1 lies before ordinary: a thousand turns of VIP, were it not cut with the weight.
    saturated.core.set(weights(1_000, 1_000, 1), saturated.now, &mut nobody());
    assert_eq!(saturated.turns(100, &Priority::ALL), [50, 50, 0]);
    saturated.core.set(weights(1, 98, 1), saturated.now, &mut nobody());
    let [vip, ordinary, recovered] = saturated.turns(100, &Priority::ALL);
    assert!(ordinary >= 97 && vip >= 1 && recovered >= 1, "{vip}:{ordinary}:{recovered}");
}

#[test]
fn recovered_at_its_cap_leaves_its_turns_to_others() {
    let config = AdmissionConfig { recovered_beside_max: 5, ..weights(1, 1, 1_000) };
    let mut saturated = Saturated::new(config);
    let [vip, ordinary, recovered] = saturated.turns(100, &Priority::ALL);
    assert_eq!(recovered, 5);
    assert_eq!(vip.abs_diff(ordinary), 1, "{vip}:{ordinary}");
}

/// Places on the scheduler's books for a random history.
#[derive(Debug, Clone, Copy)]
enum Op {
    Enter(Priority),
    Leave(usize),
    Finish(usize),
    Want(u32),
    Withdraw,
    Take(u32),
    Pass(u64),
    Set(AdmissionConfig),
}

fn config() -> impl Strategy<Value = AdmissionConfig> {
    let starts =
        prop::option::of((1_u32..50, 1_u32..5).prop_map(|(per_s, burst)| StartRate { per_s, burst }));
    let weights = (1_u32..9, 1_u32..9, 1_u32..9).prop_map(|(vip, ordinary, recovered)| Weights {
        vip,
        ordinary,
        recovered,
    });
    (1_u32..8, weights, starts, 1_u32..6, 1_u32..4, 0_u32..4).prop_map(
        |(in_flight_max, weights, starts, waiting_max, recovered_beside_max, more)| AdmissionConfig {
            in_flight_max,
            weights,
            starts,
            waiting_max,
            recovered_max: recovered_beside_max + more,
            recovered_beside_max,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => prop::sample::select(Priority::ALL.to_vec()).prop_map(Op::Enter),
        2 => any::<usize>().prop_map(Op::Leave),
        6 => any::<usize>().prop_map(Op::Finish),
        2 => (0_u32..5).prop_map(Op::Want),
        1 => Just(Op::Withdraw),
        2 => (0_u32..5).prop_map(Op::Take),
        3 => (0_u64..600).prop_map(Op::Pass),
        1 => config().prop_map(Op::Set),
    ]
}

proptest! {
    #[test]
    fn books_balance_and_nobody_waits_in_vain(first in config(), ops in prop::collection::vec(op(), 1..300)) {
        prop_assert!(first.check().is_ok());
        let mut config = first;
        let mut core = Core::new(config);
        let mut now = Instant::now();
        let mut inside: Vec<Priority> = Vec::new();
        let mut queued: PerClass<VecDeque<(u64, u32)>> = PerClass::default_queues();
        let mut names = 0;
        for op in ops {
            let before = core.occupancy();
            let mut admitted = nobody();
            match op {
                Op::Enter(priority) => {
                    if core.enter(priority, now, &mut admitted) {
                        inside.push(priority);
                    } else {
                        names += 1;
                        let full = core.occupancy().waiting[priority as usize] >= config.waiting_max as usize;
                        match core.queue(priority, names) {
                            Some((place, _)) => queued[priority].push_back((place, names)),
                            None => prop_assert!(full),
                        }
                    }
                }
                Op::Leave(nth) => {
                    let priority = Priority::ALL[nth % 3];
                    let len = queued[priority].len();
                    if len > 0 {
                        let (place, name) = queued[priority].remove(nth / 3 % len).unwrap();
                        prop_assert_eq!(core.remove(priority, place), Some(name));
                        core.tick(now, &mut admitted);
                    }
                }
                Op::Finish(nth) if !inside.is_empty() => {
                    let priority = inside.swap_remove(nth % inside.len());
                    core.finish(priority, now, &mut admitted);
                }
                Op::Finish(_) => {}
                Op::Want(places) => {
                    let has = core.want(places, now, &mut admitted);
                    prop_assert_eq!(has, core.occupancy().promised > 0);
                }
                Op::Withdraw => core.withdraw(),
                Op::Take(places) => {
                    let taken = core.take(places, now, &mut admitted);
                    prop_assert!(taken <= places);
                    prop_assert_eq!(core.occupancy().promised, 0);
                    inside.extend((0..taken).map(|_| Priority::Recovered));
                }
                Op::Pass(ms) => {
                    let until = now + Duration::from_millis(ms);
                    // Time passes as it does for the one that keeps it: from wake to wake.
                    while let Some(wake) = core.next_wake(now).filter(|wake| *wake < until) {
                        prop_assert!(wake > now);
                        now = wake;
                        core.tick(now, &mut admitted);
                    }
                    now = until;
                    core.tick(now, &mut admitted);
                }
                Op::Set(new) => {
                    config = new;
                    core.set(config, now, &mut admitted);
                }
            }
            for (priority, name) in admitted.waiters {
                let head = queued[priority].pop_front().map(|(_, name)| name);
                prop_assert_eq!(head, Some(name), "first come, first served within a class");
                inside.push(priority);
            }
            let after = core.occupancy();
            for priority in Priority::ALL {
                let count = inside.iter().filter(|held| **held == priority).count();
                prop_assert_eq!(after.in_flight[priority as usize] as usize, count);
                prop_assert_eq!(after.waiting[priority as usize], queued[priority].len());
            }
            let used = |at: &Occupancy| at.in_flight.iter().sum::<u32>() + at.promised;
            prop_assert!(used(&after) <= config.in_flight_max.max(used(&before)), "only a lower limit leaves more in");
            let recovered = |at: &Occupancy| at.in_flight[2] + at.promised;
            prop_assert!(recovered(&after) <= config.recovered_max.max(recovered(&before)));
            // Free slots are not held back from anybody.
            let mut again = nobody();
            core.tick(now, &mut again);
            prop_assert!(again.waiters.is_empty() && !again.promised);
            if used(&after) < config.in_flight_max {
                prop_assert!(after.waiting[0] + after.waiting[1] == 0 || config.starts.is_some());
                prop_assert!(after.waiting[2] == 0 || recovered(&after) >= config.recovered_beside_max);
            }
        }
    }

    #[test]
    fn starts_never_exceed_burst_and_rate(
        per_s in 1_u32..100,
        burst in 1_u32..10,
        arrivals in prop::collection::vec((0_u64..50, prop::bool::ANY), 1..300),
    ) {
        let config = AdmissionConfig { starts: Some(StartRate { per_s, burst }), ..AdmissionConfig::default() };
        let mut core = Core::new(config);
        let began = Instant::now();
        let mut now = began;
        let mut started = 0_u128;
        for (ms, vip) in arrivals {
            now += Duration::from_millis(ms);
            let mut admitted = nobody();
            let priority = if vip { Priority::Vip } else { Priority::Ordinary };
            if core.enter(priority, now, &mut admitted) {
                started += 1;
            } else {
                core.queue(priority, 0);
            }
            started += admitted.waiters.len() as u128;
            let allowed = u128::from(burst) * 1_000 + (now - began).as_millis() * u128::from(per_s);
            prop_assert!(started * 1_000 <= allowed);
        }
    }
}

impl PerClass<VecDeque<(u64, u32)>> {
    fn default_queues() -> Self {
        Self([VecDeque::new(), VecDeque::new(), VecDeque::new()])
    }
}
