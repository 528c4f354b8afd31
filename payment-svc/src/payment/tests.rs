//! The whole transition matrix as one table, and refund arithmetic under random sequences.

use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

fn units(n: i64) -> MinorUnits {
    MinorUnits::new(n).unwrap()
}

fn standing(state: State, wish: Wish, captured: i64, refunded: i64, pending: i64) -> Standing {
    Standing {
        state,
        wish,
        amount: units(100),
        captured: units(captured),
        refunded: units(refunded),
        refund_pending: units(pending),
    }
}

/// Every standing that differs in what it allows.
fn standings() -> Vec<Standing> {
    use {State::*, Wish::*};
    vec![
        standing(Processing, Keep, 0, 0, 0),
        standing(Processing, GiveBack, 0, 0, 0),
        standing(Captured, Keep, 100, 0, 0),
        standing(Captured, Keep, 100, 40, 60),
        standing(Captured, Keep, 100, 100, 0),
        standing(Captured, GiveBack, 100, 0, 0),
        standing(Captured, GiveBack, 100, 40, 60),
        standing(Declined, Keep, 0, 0, 0),
        standing(Declined, GiveBack, 0, 0, 0),
        standing(Cancelled, Keep, 0, 0, 0),
        standing(Cancelled, GiveBack, 0, 0, 0),
        standing(Cancelled, GiveBack, 100, 100, 0),
    ]
}

fn show(s: &Standing) -> String {
    format!("{:?}/{:?} {}-{}-{}", s.state, s.wish, s.captured.get(), s.refunded.get(), s.refund_pending.get())
}

#[test]
fn the_whole_transition_matrix() {
    let events = [
        Event::Captured,
        Event::Declined,
        Event::Cancelled,
        Event::CancelRequested,
        Event::RefundReserved(units(60)),
        Event::RefundDone(units(60)),
        Event::RefundFailed(units(60)),
    ];
    let mut matrix = String::from("state/wish captured-refunded-pending\n");
    for before in standings() {
        writeln!(matrix, "{}", show(&before)).unwrap();
        for event in events {
            let outcome = match before.apply(event) {
                Ok(after) if after == before => "=".to_owned(),
                Ok(after) => match before.report(&after) {
                    Some(report) => format!("{} !{report:?}", show(&after)),
                    None => show(&after),
                },
                Err(Illegal::Contradiction { .. }) => "contradiction".to_owned(),
                Err(Illegal::RefundExceedsCaptured { .. }) => "exceeds".to_owned(),
                Err(Illegal::NotReserved { .. }) => "not reserved".to_owned(),
            };
            let event = format!("{event:?}").replace("MinorUnits(60)", "60");
            writeln!(matrix, "  {event:<18} {outcome}").unwrap();
        }
    }
    let known = include_str!("matrix.txt");
    assert_eq!(matrix, known, "\n{matrix}");
}

#[test]
fn a_payment_that_pays_after_cancel_owes_its_money() {
    let cancelled = standing(State::Cancelled, Wish::GiveBack, 0, 0, 0);
    let paid = cancelled.apply(Event::Captured).unwrap();
    assert_eq!(paid.state, State::Captured);
    assert!(paid.is_open());
    assert_eq!(paid.left_for_callers(), MinorUnits::ZERO);
    let returned =
        paid.apply(Event::RefundReserved(paid.left())).unwrap().apply(Event::RefundDone(units(100))).unwrap();
    assert_eq!(returned.state, State::Cancelled);
    assert!(!returned.is_open());
    assert_eq!(returned.apply(Event::Captured), Ok(returned));
}

fn event() -> impl Strategy<Value = Event> {
    let amount = (0i64..=130).prop_map(units);
    prop_oneof![
        3 => Just(Event::Captured),
        1 => Just(Event::Declined),
        1 => Just(Event::Cancelled),
        1 => Just(Event::CancelRequested),
        4 => amount.clone().prop_map(Event::RefundReserved),
        4 => amount.clone().prop_map(Event::RefundDone),
        2 => amount.prop_map(Event::RefundFailed),
    ]
}

proptest! {
    #[test]
    fn money_is_conserved_whatever_happens(events in prop::collection::vec(event(), 0..60)) {
        let mut now = standing(State::Processing, Wish::Keep, 0, 0, 0);
        let mut reports = Vec::new();
        for event in events {
            let Ok(next) = now.apply(event) else { continue };
            reports.extend(now.report(&next));
            // Once captured, always captured; never refunded more; a wish is never taken back.
            prop_assert!(next.captured >= now.captured && next.refunded >= now.refunded);
            prop_assert!(now.wish == Wish::Keep || next.wish == Wish::GiveBack);
            prop_assert!(next.captured.is_zero() || next.captured == next.amount);
            prop_assert!(next.refunded.get() + next.refund_pending.get() <= next.captured.get());
            prop_assert_eq!(next.left().get(), next.captured.get() - next.refunded.get() - next.refund_pending.get());
            prop_assert_eq!(next.state == State::Captured && next.captured.is_zero(), false);
            if matches!(next.state, State::Declined | State::Cancelled | State::Processing) {
                prop_assert_eq!(next.captured, next.refunded);
            }
            prop_assert_eq!(next.is_open() || next.wish == Wish::Keep || next.captured == next.refunded, true);
            now = next;
        }
        let captured_reports = reports.iter().filter(|r| **r == Report::Captured).count();
        prop_assert!(captured_reports <= 1 && reports.len() <= 2);
        prop_assert_eq!(captured_reports == 1, !now.captured.is_zero());
    }
}
