//! The whole table of a reservation, and walks over it.

use proptest::prelude::*;

use super::*;
use State::{Confirmed, Expired, Held, Refused, Released};

const CALLS: [Call; 5] =
    [Call::Reserve(Stock::Suffices), Call::Reserve(Stock::Falls), Call::Confirm, Call::Release, Call::Expire];

#[test]
fn the_whole_table() {
    // Rows: state before. Columns: reserve (enough), reserve (not enough), confirm, release, expire.
    let table = [
        (None, Time::Left, [Some(Held), Some(Refused), Some(Expired), Some(Released), None]),
        (Some(Held), Time::Left, [Some(Held), Some(Held), Some(Confirmed), Some(Released), Some(Held)]),
        (
            Some(Held),
            Time::Over,
            [Some(Expired), Some(Expired), Some(Expired), Some(Released), Some(Expired)],
        ),
        (Some(Confirmed), Time::Over, [Some(Confirmed); 5]),
        (Some(Released), Time::Over, [Some(Released); 5]),
        (
            Some(Expired),
            Time::Over,
            [Some(Expired), Some(Expired), Some(Expired), Some(Released), Some(Expired)],
        ),
        (
            Some(Refused),
            Time::Left,
            [Some(Refused), Some(Refused), Some(Expired), Some(Released), Some(Refused)],
        ),
    ];
    for (state, time, after) in table {
        for (call, expected) in CALLS.into_iter().zip(after) {
            assert_eq!(next(state, call, time), expected, "{state:?} {call:?} {time:?}");
        }
    }
}

fn record(state: State) -> Record {
    let refusal = (state == Refused).then(|| Refusal { reason: RefusalReason::UnknownSku, skus: Vec::new() });
    let fingerprint = Some(Fingerprint::of(&["asked"]));
    Record { state, fingerprint, movement: None, lines: Lines::default(), expires_ms: None, refusal }
}

#[test]
fn answers_follow_the_state() {
    let asked = Fingerprint::of(&["asked"]);
    let refusal = || Refusal { reason: RefusalReason::UnknownSku, skus: Vec::new() };
    let table = [
        (Held, Ok(()), Err(Denied::Expired), Ok(())),
        (Confirmed, Ok(()), Ok(()), Err(Denied::Confirmed)),
        (Released, Err(Denied::Released), Err(Denied::Released), Ok(())),
        (Expired, Err(Denied::Expired), Err(Denied::Expired), Ok(())),
        (Refused, Err(Denied::Refused(refusal())), Err(Denied::Expired), Ok(())),
    ];
    for (state, reserve, confirm, release) in table {
        assert_eq!(record(state).answer_reserve(&asked).map(drop), reserve, "{state:?}");
        assert_eq!(record(state).answer_confirm().map(drop), confirm, "{state:?}");
        assert_eq!(record(state).answer_release().map(drop), release, "{state:?}");
        let other = Fingerprint::of(&["other"]);
        assert_eq!(record(state).answer_reserve(&other).map(drop), Err(Denied::Reused), "{state:?}");
    }
    let tombstone = Record { fingerprint: None, ..record(Released) };
    assert_eq!(tombstone.answer_reserve(&asked), Err(Denied::Released));
}

#[test]
fn a_fingerprint_is_of_the_meaning() {
    let lines = |text| Lines::from_text(text).unwrap();
    let customer = CallerId::parse("c-1").unwrap();
    let first = Fingerprint::of_reservation(Some(&customer), &lines("A=1\nB=2"));
    assert_eq!(first, Fingerprint::of_reservation(Some(&customer), &lines("A=1\nB=2")));
    assert_ne!(first, Fingerprint::of_reservation(None, &lines("A=1\nB=2")));
    assert_ne!(first, Fingerprint::of_reservation(Some(&customer), &lines("A=1\nB=3")));
}

fn any_call() -> impl Strategy<Value = Call> {
    prop::sample::select(&CALLS[..])
}

proptest! {
    /// Units go out of a hold at most once, and never both sold and given back.
    #[test]
    fn a_hold_ends_at_most_once(calls in prop::collection::vec((any_call(), any::<bool>()), 0..30)) {
        let (mut state, mut begun, mut ended) = (None, 0, 0);
        let mut time = Time::Left;
        for (call, over) in calls {
            if over { time = Time::Over; }
            let after = next(state, call, time);
            begun += i32::from(state != Some(Held) && after == Some(Held));
            ended += i32::from(state == Some(Held) && after != Some(Held));
            if let Some(Confirmed | Released) = state { prop_assert_eq!(after, state); }
            prop_assert!(state.is_none() || after.is_some());
            state = after;
        }
        prop_assert!(begun <= 1 && ended <= begun);
        prop_assert_eq!(begun - ended, i32::from(state == Some(Held)));
    }
}
