//! The breakers' behaviour as a caller sees it: tables for what is fixed, random callers for what must never be.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;

const NAME: &str = "inventory";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn go(breakers: &Breakers, now: Instant) -> Ticket {
    match breakers.permit(NAME, Attempt::First, now, 0.0) {
        Permit::Go(ticket) => ticket,
        Permit::Wait(wait) => panic!("told to wait {wait:?}"),
    }
}

fn waits(breakers: &Breakers, now: Instant, jitter: f64) -> Duration {
    match breakers.permit(NAME, Attempt::First, now, jitter) {
        Permit::Wait(wait) => wait,
        Permit::Go(_) => panic!("let through"),
    }
}

fn call(breakers: &Breakers, ended: Ended, now: Instant) {
    breakers.report(go(breakers, now), ended, now);
}

fn circuit(breakers: &Breakers, now: Instant) -> CircuitState {
    breakers.health(now)[0].circuit
}

fn opened() -> (Breakers, Instant) {
    let breakers = Breakers::new(BreakerConfig::default());
    let now = Instant::now();
    (0..10).for_each(|_| call(&breakers, Ended::Failed, now));
    assert_eq!(circuit(&breakers, now), CircuitState::Open { remaining: ms(500) });
    (breakers, now)
}

#[test]
fn half_of_twenty_opens_and_fewer_do_not() {
    let breakers = Breakers::new(BreakerConfig::default());
    let now = Instant::now();
    for _ in 0..9 {
        call(&breakers, Ended::Answered, now);
        call(&breakers, Ended::Failed, now);
    }
    call(&breakers, Ended::Answered, now);
    assert_eq!(circuit(&breakers, now), CircuitState::Closed);
    call(&breakers, Ended::Failed, now);
    assert_eq!(circuit(&breakers, now), CircuitState::Open { remaining: ms(500) });
}

#[test]
fn failures_far_apart_do_not_add_up() {
    let breakers = Breakers::new(BreakerConfig::default());
    let mut now = Instant::now();
    for _ in 0..50 {
        call(&breakers, Ended::Failed, now);
        call(&breakers, Ended::Answered, now);
        now += ms(1_500);
    }
    assert_eq!(circuit(&breakers, now), CircuitState::Closed);
}

#[test]
fn another_participant_is_not_held_liable() {
    let (breakers, now) = opened();
    assert!(matches!(breakers.permit("payment", Attempt::First, now, 0.0), Permit::Go(_)));
}

#[test]
fn three_probes_go_and_their_answers_close() {
    let (breakers, now) = opened();
    assert_eq!(waits(&breakers, now + ms(100), 0.5), ms(450), "the rest of the pause and a part of 100 ms");
    let now = now + ms(500);
    let probes = [go(&breakers, now), go(&breakers, now), go(&breakers, now)];
    assert_eq!(waits(&breakers, now, 0.5), ms(200));
    let [one, two, three] = probes;
    breakers.report(one, Ended::Answered, now);
    breakers.report(two, Ended::Answered, now);
    assert_eq!(circuit(&breakers, now), CircuitState::HalfOpen { in_flight: 1, answered: 2 });
    breakers.report(three, Ended::Answered, now);
    assert_eq!(circuit(&breakers, now), CircuitState::Closed);
}

#[test]
fn a_failed_probe_doubles_the_pause_up_to_five_seconds() {
    let (breakers, mut now) = opened();
    let mut pause = ms(500);
    for expected in [1_000, 2_000, 4_000, 5_000, 5_000] {
        now += pause;
        call(&breakers, Ended::Failed, now);
        pause = ms(expected);
        assert_eq!(circuit(&breakers, now), CircuitState::Open { remaining: pause });
    }
}

#[test]
fn one_that_falls_over_right_after_closing_pauses_longer() {
    let (breakers, now) = opened();
    let now = now + ms(500);
    (0..3).for_each(|_| call(&breakers, Ended::Answered, now));
    (0..10).for_each(|_| call(&breakers, Ended::Failed, now));
    assert_eq!(circuit(&breakers, now), CircuitState::Open { remaining: ms(1_000) });
    let now = now + ms(1_000);
    (0..3).for_each(|_| call(&breakers, Ended::Answered, now));
    let now = now + ms(10_000);
    (0..10).for_each(|_| call(&breakers, Ended::Failed, now));
    assert_eq!(
        circuit(&breakers, now),
        CircuitState::Open { remaining: ms(500) },
        "ten good seconds forgive"
    );
}

#[test]
fn a_ticket_dropped_unreported_gives_its_place_back() {
    let (breakers, now) = opened();
    let now = now + ms(500);
    for _ in 0..100 {
        drop(go(&breakers, now));
    }
    assert_eq!(circuit(&breakers, now), CircuitState::HalfOpen { in_flight: 0, answered: 0 });
}

#[test]
fn calls_from_before_it_opened_decide_nothing() {
    let breakers = Breakers::new(BreakerConfig::default());
    let now = Instant::now();
    let stale: Vec<_> = (0..6).map(|_| go(&breakers, now)).collect();
    (0..10).for_each(|_| call(&breakers, Ended::Failed, now));
    let now = now + ms(500);
    let probe = go(&breakers, now);
    for (nth, ticket) in stale.into_iter().enumerate() {
        let ended = if nth % 2 == 0 { Ended::Answered } else { Ended::Failed };
        breakers.report(ticket, ended, now);
    }
    assert_eq!(circuit(&breakers, now), CircuitState::HalfOpen { in_flight: 1, answered: 0 });
    drop(probe);
}

#[test]
fn a_retry_without_a_token_waits_and_one_that_was_answered_costs_nothing() {
    let breakers = Breakers::new(BreakerConfig { failed_in_row_max: 1_000, ..BreakerConfig::default() });
    let now = Instant::now();
    let retry = || breakers.permit(NAME, Attempt::Again, now, 1.0);
    let mut under_way = Vec::new();
    let wait = loop {
        match retry() {
            Permit::Go(ticket) => under_way.push(ticket),
            Permit::Wait(wait) => break wait,
        }
    };
    assert_eq!((under_way.len(), wait), (100, ms(300)));
    for ticket in under_way.drain(..) {
        breakers.report(ticket, Ended::Answered, now);
    }
    assert_eq!(breakers.health(now)[0].retry_tokens, 100);
    assert_eq!(breakers.health(now)[0].waits_total, 1);
}

/// What random callers do.
#[derive(Debug, Clone, Copy)]
enum Op {
    Ask(Attempt),
    End(usize, Ended),
    Drop(usize),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => prop_oneof![Just(Attempt::First), Just(Attempt::Again)].prop_map(Op::Ask),
        4 => any::<usize>().prop_map(|nth| Op::End(nth, Ended::Failed)),
        3 => any::<usize>().prop_map(|nth| Op::End(nth, Ended::Answered)),
        1 => any::<usize>().prop_map(Op::Drop),
        2 => (0_u64..700).prop_map(Op::Pass),
    ]
}

proptest! {
    #[test]
    fn nothing_goes_through_an_open_breaker_and_few_through_a_half_open_one(
        ops in prop::collection::vec((op(), 0.0..=1.0_f64), 1..400),
    ) {
        let config = BreakerConfig { failed_in_row_max: 3, calls_min: 6, ..BreakerConfig::default() };
        let breakers = Breakers::new(config);
        let mut now = Instant::now();
        let mut under_way: Vec<Ticket> = Vec::new();
        let mut open_until = None;
        for (op, jitter) in ops {
            match op {
                Op::Pass(by) => now += ms(by),
                Op::Drop(nth) if !under_way.is_empty() => {
                    drop(under_way.swap_remove(nth % under_way.len()));
                }
                Op::End(nth, ended) if !under_way.is_empty() => {
                    let ticket = under_way.swap_remove(nth % under_way.len());
                    breakers.report(ticket, ended, now);
                }
                Op::Ask(attempt) => match breakers.permit(NAME, attempt, now, jitter) {
                    Permit::Go(ticket) => {
                        prop_assert!(open_until.is_none_or(|until| now >= until), "through an open breaker");
                        under_way.push(ticket);
                    }
                    Permit::Wait(wait) => {
                        prop_assert!(wait > Duration::ZERO);
                        if let Some(until) = open_until && now < until {
                            prop_assert!(now + wait >= until, "told to come back too early");
                        }
                    }
                },
                Op::Drop(_) | Op::End(..) => {}
            }
            match breakers.health(now).first().map(|health| health.circuit) {
                Some(CircuitState::Open { remaining }) => open_until = Some(now + remaining),
                Some(CircuitState::HalfOpen { in_flight, .. }) => {
                    let term = breakers.0.lock()[NAME].circuit.term();
                    let probes = under_way.iter().filter(|ticket| ticket.term == term).count();
                    prop_assert!(in_flight <= config.probes);
                    prop_assert_eq!(u32::try_from(probes).unwrap(), in_flight, "no place is lost or made up");
                }
                Some(CircuitState::Closed) | None => {}
            }
        }
    }

    #[test]
    fn retries_that_do_not_help_stay_within_the_budget(
        asks in prop::collection::vec((any::<bool>(), any::<bool>(), 0_u64..40), 1..2_000),
    ) {
        // The breaker is kept closed: the budget alone has to bound them.
        let config = BreakerConfig { failed_in_row_max: u32::MAX, failed_percent: 101, ..BreakerConfig::default() };
        let breakers = Breakers::new(config);
        let began = Instant::now();
        let mut now = began;
        let (mut first, mut failed) = (0_u128, 0_u128);
        for (again, helps, by) in asks {
            now += ms(by);
            let attempt = if again { Attempt::Again } else { Attempt::First };
            let Permit::Go(ticket) = breakers.permit(NAME, attempt, now, 0.5) else { continue };
            let ended = if helps { Ended::Answered } else { Ended::Failed };
            breakers.report(ticket, ended, now);
            first += u128::from(!again);
            failed += u128::from(again && !helps);
            let earned_ms = 100_000 + first * 200 + (now - began).as_millis() * 10;
            prop_assert!(failed * 1_000 <= earned_ms, "{failed} retries after {first} first attempts");
        }
    }
}
