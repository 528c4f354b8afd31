//! The scripts against the pure table: from every state, every call leaves in Redis what `reservation::next` says.

use inventory_svc::{
    movement::Act,
    partition::{Head, Nonce, Seq},
    reservation::{Call, CallerId, Fingerprint, Record, State, Stock, Time, next},
    sku::{Lines, Sku},
    stock::{ChangeReply, ChangeStock, Ending, Fence, Gate, Loaded, Read, ReservationReply, Reserve, Word},
};

use crate::stores::{PARTITION, Stores};

const NOW_MS: i64 = 1_000_000;
const EXPIRES_MS: i64 = NOW_MS + 60_000;

/// An open generation without a ledger behind it.
struct Bare {
    gate: Gate,
    fence: Fence,
}

impl Bare {
    async fn open(stores: &Stores) -> Self {
        let head = Head { generation: generation(1), seq: Seq(0), chain: Nonce("first".into()) };
        let gate = stores.gate();
        let opened = gate.begin_load(head.generation).await.unwrap().open(&head).await.unwrap();
        assert_eq!(opened, Loaded::Opened);
        Self { gate, fence: Fence { generation: head.generation, floor: Seq(0), now_ms: NOW_MS } }
    }

    fn at(&self, now_ms: i64) -> Fence {
        Fence { now_ms, ..self.fence.clone() }
    }

    async fn receive(&self, sku: &str, units: i64) {
        let change = ChangeStock {
            request_id: id(&format!("in-{sku}-{units}")),
            act: Act::Receive,
            sku: Sku::parse(sku).unwrap(),
            delta: units,
            reason: "PURCHASE".into(),
        };
        let reply = self.gate.change(&self.fence, &change, Word::None, Word::None).await.unwrap();
        assert!(matches!(reply, ChangeReply::Changed(..)), "{reply:?}");
    }

    async fn reserve_at(&self, fence: &Fence, name: &str, lines: &str) -> ReservationReply {
        let lines = Lines::from_text(lines).unwrap();
        let order = Reserve {
            id: id(name),
            fingerprint: Fingerprint::of_reservation(None, &lines),
            lines,
            customer: None,
            expires_ms: EXPIRES_MS,
        };
        self.gate.reserve(fence, &order, Word::None, Word::None).await.unwrap()
    }

    async fn end_at(&self, fence: &Fence, ending: Ending, name: &str) -> ReservationReply {
        let first = self.gate.end(fence, ending, &id(name), &Lines::default(), Word::None).await.unwrap();
        let ReservationReply::Lines(lines) = first else { return first };
        self.gate.end(fence, ending, &id(name), &lines, Word::None).await.unwrap()
    }

    /// What is recorded, and available and held of A.
    async fn look(&self, name: &str) -> (Option<Record>, i64, i64) {
        let recorded = match self.gate.recorded(self.fence.generation, &id(name)).await.unwrap() {
            Read::Found(record) => Some(record),
            Read::Missing => None,
            Read::Fenced(why) => panic!("{why:?}"),
        };
        let Read::Found(counters) =
            self.gate.counters(self.fence.generation, &Sku::parse("A").unwrap()).await.unwrap()
        else {
            panic!("A has no counters")
        };
        (recorded, counters.available(), counters.held)
    }

    /// Brings an id into a state.
    async fn bring(&self, name: &str, state: Option<State>) {
        let fence = &self.fence;
        let reply = match state {
            None => return,
            Some(State::Refused) => self.reserve_at(fence, name, "A=3\nB=1").await,
            Some(_) => self.reserve_at(fence, name, "A=3").await,
        };
        assert!(matches!(reply, ReservationReply::Record(_)), "{reply:?}");
        match state {
            Some(State::Confirmed) => drop(self.end_at(fence, Ending::Confirm, name).await),
            Some(State::Released) => drop(self.end_at(fence, Ending::Release, name).await),
            Some(State::Expired) => drop(self.end_at(&self.at(EXPIRES_MS), Ending::Expire, name).await),
            _ => {}
        }
    }
}

fn generation(number: i64) -> inventory_svc::partition::Generation {
    inventory_svc::partition::Generation(number)
}

fn id(name: &str) -> CallerId {
    CallerId::parse(name).unwrap()
}

#[tokio::test]
async fn the_scripts_keep_the_table() {
    let stores = Stores::start().await;
    let bare = Bare::open(&stores).await;
    bare.receive("A", 1_000).await;
    bare.receive("B", 1).await;
    // B is sold out for whoever comes later.
    drop(bare.reserve_at(&bare.fence, "takes-b", "B=1").await);
    let befores = [None].into_iter().chain(State::ALL.map(Some));
    let calls = [
        Call::Reserve(Stock::Suffices),
        Call::Reserve(Stock::Falls),
        Call::Confirm,
        Call::Release,
        Call::Expire,
    ];
    let mut cases = 0;
    for before in befores {
        for call in calls {
            for time in [Time::Left, Time::Over] {
                // A repeat means the same as the original, so only a new id can fall short where others sufficed.
                if before.is_some() && call == Call::Reserve(Stock::Falls) {
                    continue;
                }
                cases += 1;
                let name = format!("case-{cases}");
                bare.bring(&name, before).await;
                let (recorded, available, held) = bare.look(&name).await;
                assert_eq!(recorded.as_ref().map(|record| record.state), before);

                let fence = bare.at(if time == Time::Left { NOW_MS } else { EXPIRES_MS });
                let reply = match call {
                    Call::Reserve(Stock::Suffices) if before == Some(State::Refused) => {
                        bare.reserve_at(&fence, &name, "A=3\nB=1").await
                    }
                    Call::Reserve(Stock::Suffices) => bare.reserve_at(&fence, &name, "A=3").await,
                    Call::Reserve(Stock::Falls) => bare.reserve_at(&fence, &name, "A=3\nB=1").await,
                    Call::Confirm => bare.end_at(&fence, Ending::Confirm, &name).await,
                    Call::Release => bare.end_at(&fence, Ending::Release, &name).await,
                    Call::Expire => bare.end_at(&fence, Ending::Expire, &name).await,
                };
                let what = format!("{before:?} {call:?} {time:?} -> {reply:?}");
                let expected = next(before, call, time);
                let (recorded, available_after, held_after) = bare.look(&name).await;
                assert_eq!(recorded.as_ref().map(|record| record.state), expected, "{what}");
                if let ReservationReply::Record(told) = &reply {
                    assert_eq!(recorded.as_ref(), Some(told), "{what}");
                }
                let holds = |state: Option<State>| if state == Some(State::Held) { 3 } else { 0 };
                let sells = before == Some(State::Held) && expected == Some(State::Confirmed);
                assert_eq!(held_after - held, holds(expected) - holds(before), "{what}");
                let back = holds(before) - holds(expected) - if sells { 3 } else { 0 };
                assert_eq!(available_after - available, back, "{what}");
            }
        }
    }
    assert_eq!(cases, 2 * (5 + 5 * 4));
}

#[tokio::test]
async fn a_refused_call_changes_nothing_at_all() {
    let stores = Stores::start().await;
    let bare = Bare::open(&stores).await;
    bare.receive("A", 10).await;
    bare.receive("B", 1).await;
    drop(bare.reserve_at(&bare.fence, "held", "A=2").await);
    let before: (Vec<String>, i64) = dump(&stores).await;

    // Enough of A, not of B: no line is held, and no seq is taken.
    let ReservationReply::Record(refused) = bare.reserve_at(&bare.fence, "short", "A=2\nB=2").await else {
        panic!("not a record")
    };
    assert_eq!(refused.state, State::Refused);
    let stale = Fence { generation: generation(2), ..bare.fence.clone() };
    let ahead = Fence { floor: Seq(99), ..bare.fence.clone() };
    for fence in [stale, ahead] {
        assert!(matches!(bare.reserve_at(&fence, "x", "A=1").await, ReservationReply::Fenced(_)));
        for ending in [Ending::Confirm, Ending::Release, Ending::Expire] {
            assert!(matches!(bare.end_at(&fence, ending, "held").await, ReservationReply::Fenced(_)));
        }
    }
    assert_eq!(dump(&stores).await, before);
}

/// Head and counters, and how long the stream is.
async fn dump(stores: &Stores) -> (Vec<String>, i64) {
    let mut fields = stores.command::<Vec<String>>("HMGET hf:{p0}:head generation seq chain").await;
    for sku in ["A", "B"] {
        fields.extend(
            stores.command::<Vec<String>>(&format!("HMGET hf:{{p0}}:1:stock:{sku} received held sold")).await,
        );
    }
    (fields, stores.command("XLEN hf:{p0}:1:stream").await)
}

#[tokio::test]
async fn a_lost_key_is_a_doubt_and_never_a_zero() {
    let stores = Stores::start().await;
    let bare = Bare::open(&stores).await;
    bare.receive("A", 10).await;
    drop(bare.reserve_at(&bare.fence, "r", "A=2").await);
    let _gone: i64 = stores.command("DEL hf:{p0}:1:stock:A").await;
    for ending in [Ending::Confirm, Ending::Release] {
        let reply = bare.end_at(&bare.fence, ending, "r").await;
        assert!(matches!(reply, ReservationReply::Fenced(_)), "{reply:?}");
    }
    let order = Reserve {
        id: id("s"),
        lines: Lines::from_text("A=1").unwrap(),
        fingerprint: Fingerprint::of_reservation(None, &Lines::from_text("A=1").unwrap()),
        customer: None,
        expires_ms: EXPIRES_MS,
    };
    let asks = bare.gate.reserve(&bare.fence, &order, Word::None, Word::Unasked).await.unwrap();
    assert!(matches!(asks, ReservationReply::Missing(places) if places == [1]));
    let told = bare.gate.reserve(&bare.fence, &order, Word::None, Word::Known).await.unwrap();
    assert!(matches!(told, ReservationReply::Fenced(_)));
    let held = bare.gate.reserve(&bare.fence, &order, Word::Known, Word::Unasked).await.unwrap();
    assert!(matches!(held, ReservationReply::Fenced(_)));
}

#[tokio::test]
async fn scripts_survive_a_flush_of_scripts_and_a_full_memory() {
    let stores = Stores::start().await;
    let bare = Bare::open(&stores).await;
    bare.receive("A", 10).await;
    drop(bare.reserve_at(&bare.fence, "r", "A=2").await);
    let _flushed: String = stores.command("SCRIPT FLUSH").await;
    assert!(matches!(bare.reserve_at(&bare.fence, "s", "A=1").await, ReservationReply::Record(_)));

    let before = bare.look("t").await;
    let _set: String = stores.command("CONFIG SET maxmemory 1").await;
    let lines = Lines::from_text("A=1").unwrap();
    let order = Reserve {
        id: id("t"),
        fingerprint: Fingerprint::of_reservation(None, &lines),
        lines,
        customer: None,
        expires_ms: EXPIRES_MS,
    };
    assert!(bare.gate.reserve(&bare.fence, &order, Word::None, Word::None).await.is_err());
    let ReservationReply::Record(released) = bare.end_at(&bare.fence, Ending::Release, "r").await else {
        panic!("a release works on a full Redis")
    };
    assert_eq!(released.state, State::Released);
    let _set: String = stores.command("CONFIG SET maxmemory 0").await;
    assert_eq!(bare.look("t").await, (None, before.1 + 2, before.2 - 2));
}

#[tokio::test]
async fn a_backlog_has_a_bound() {
    let stores = Stores::start().await;
    let bare = Bare::open(&stores).await;
    bare.receive("A", 10_000).await;
    let mut held = 0;
    loop {
        match bare.reserve_at(&bare.fence, &format!("r{held}"), "A=1").await {
            ReservationReply::Record(_) => held += 1,
            ReservationReply::Backlogged => break,
            other => panic!("{other:?}"),
        }
    }
    // The receipt is in the stream too.
    assert_eq!(held, 999);
    let backlogged = bare.end_at(&bare.fence, Ending::Release, "r0").await;
    assert!(matches!(backlogged, ReservationReply::Backlogged));
    assert!(matches!(bare.reserve_at(&bare.fence, "r0", "A=1").await, ReservationReply::Record(_)));
    assert_eq!(bare.look("r0").await.2, 999);
    assert_eq!(inventory_svc::keys::head(PARTITION), "hf:{p0}:head");
}
