//! The ledger's compare-and-append, and what several processes make of it.

use std::sync::Arc;

use inventory_svc::{
    ledger::{AppendError, Ledger, Raise},
    movement::{Act, Break, Change, Kind, Movement, StockChange},
    partition::{Head, Nonce, Position, Seq},
    reservation::{CallerId, State},
    sku::{Lines, Sku},
};
use tokio::task::JoinSet;

use crate::{service::Service, stores::Stores};

/// A ledger at its first generation, and a chain to lengthen.
struct Chain {
    ledger: Ledger,
    end: Head,
}

impl Chain {
    async fn open(stores: &Stores) -> Self {
        let ledger = stores.ledger().await;
        let genesis = ledger.partition().await.unwrap().head;
        let Raise::Raised(end) = ledger.raise(&genesis, "test").await.unwrap() else {
            panic!("nobody else raises")
        };
        assert_eq!(ledger.raise(&genesis, "test").await.unwrap(), Raise::Moved);
        Self { ledger, end }
    }

    /// The next movement, linked to the one before.
    fn link(&mut self, kind: Kind) -> Movement {
        let position = Position { generation: self.end.generation, seq: self.end.seq.next() };
        let movement =
            Movement { position, nonce: Nonce::random(), prev: self.end.chain.clone(), at_ms: 1_000, kind };
        self.end = Head { generation: position.generation, seq: position.seq, chain: movement.nonce.clone() };
        movement
    }

    fn receive(&mut self, request: &str, units: i64) -> Movement {
        self.link(Kind::Stock(StockChange {
            request_id: CallerId::parse(request).unwrap(),
            act: Act::Receive,
            sku: Sku::parse("A").unwrap(),
            delta: units,
            fingerprint: "f".into(),
            reason: "PURCHASE".into(),
            counters: [units, 0, 0],
        }))
    }

    fn change(&mut self, id: &str, from: Option<State>, to: State, units: i64) -> Movement {
        let lines = if units == 0 { String::new() } else { format!("A={units}") };
        self.link(Kind::Reservation(Change {
            id: CallerId::parse(id).unwrap(),
            from,
            to,
            lines: Lines::from_text(&lines).unwrap(),
            fingerprint: Some("f".into()),
            customer: None,
            expires_ms: Some(60_000),
        }))
    }

    async fn balance(&self) -> [i64; 3] {
        let found = self.ledger.balances(&["A".to_owned()]).await.unwrap();
        let counters = &found["A"].counters;
        [counters.received, counters.held, counters.sold]
    }
}

#[tokio::test]
async fn a_run_is_appended_once_and_sums_up() {
    let stores = Stores::start().await;
    let mut chain = Chain::open(&stores).await;
    let run = [
        chain.receive("in", 10),
        chain.change("r", None, State::Held, 3),
        chain.change("s", None, State::Held, 2),
        chain.change("r", Some(State::Held), State::Confirmed, 3),
        chain.change("t", None, State::Released, 0),
    ];
    assert_eq!(chain.ledger.append(&run[..3]).await.unwrap().seq, run[2].position.seq);
    assert_eq!(chain.balance().await, [10, 5, 0]);
    // Repeated, and overlapping: what is there is passed over.
    assert_eq!(chain.ledger.append(&run[..3]).await.unwrap().seq, run[2].position.seq);
    assert_eq!(chain.ledger.append(&run).await.unwrap(), chain.end);
    assert_eq!(chain.ledger.append(&run[..1]).await.unwrap(), chain.end);
    assert_eq!(chain.balance().await, [10, 2, 3]);
    let expired = [chain.change("s", Some(State::Held), State::Expired, 2)];
    chain.ledger.append(&expired).await.unwrap();
    let released = [chain.change("s", Some(State::Expired), State::Released, 0)];
    chain.ledger.append(&released).await.unwrap();
    assert_eq!(chain.balance().await, [10, 0, 3]);
    let recorded =
        chain.ledger.reservations(&["r".into(), "s".into(), "t".into(), "u".into()]).await.unwrap();
    assert_eq!(recorded.len(), 3);
    assert_eq!((recorded["r"].state, recorded["r"].lines.to_text().as_str()), (State::Confirmed, "A=3"));
    assert_eq!((recorded["s"].state, recorded["s"].lines.to_text().as_str()), (State::Released, "A=2"));
    assert!(recorded["t"].lines.is_empty());
    stores.check_ledger().await;
}

#[tokio::test]
async fn whatever_does_not_continue_the_chain_is_void() {
    let stores = Stores::start().await;
    let mut chain = Chain::open(&stores).await;
    let first = [chain.receive("in", 10)];
    chain.ledger.append(&first).await.unwrap();
    let end = chain.end.clone();
    let lost = chain.change("lost", None, State::Held, 1);
    let after_a_gap = [chain.change("gap", None, State::Held, 1)];
    let broken = async |movements: &[Movement]| match chain.ledger.append(movements).await {
        Err(AppendError::Broken(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(matches!(broken(&after_a_gap).await, Break::Gap { .. }));
    let fork = [Movement { prev: Nonce("other".into()), ..lost.clone() }];
    assert!(matches!(broken(&fork).await, Break::Chain(_)));
    let other_at_head = [Movement { nonce: Nonce("other".into()), ..first[0].clone() }];
    assert!(matches!(broken(&other_at_head).await, Break::Chain(_)));
    let Raise::Raised(raised) = chain.ledger.raise(&end, "test").await.unwrap() else { panic!("raised") };
    assert_eq!(broken(&[lost]).await, Break::Generation(raised.generation));
    assert_eq!(raised.seq, Seq(end.seq.0 + 1));
    assert_eq!(chain.balance().await, [10, 0, 0]);
    stores.check_ledger().await;
}

#[tokio::test]
async fn what_the_ledger_contradicts_is_void() {
    let stores = Stores::start().await;
    let mut chain = Chain::open(&stores).await;
    let run = [chain.receive("in", 10), chain.change("r", None, State::Held, 3)];
    chain.ledger.append(&run).await.unwrap();
    let end = chain.end.clone();
    let unknown_sku = Lines::from_text("B=1").unwrap();
    let mut of_unknown_sku = chain.change("b", None, State::Held, 1);
    chain.end = end.clone();
    if let Kind::Reservation(change) = &mut of_unknown_sku.kind {
        change.lines = unknown_sku;
    }
    let mut tries = vec![("unknown SKU", vec![of_unknown_sku])];
    let mut attempt = |what, build: &dyn Fn(&mut Chain) -> Vec<Movement>| {
        let movements = build(&mut chain);
        chain.end = end.clone();
        tries.push((what, movements));
    };
    attempt("known reservation", &|chain| vec![chain.change("r", None, State::Held, 1)]);
    attempt("known request", &|chain| vec![chain.receive("in", 1)]);
    attempt("oversold", &|chain| vec![chain.change("s", None, State::Held, 8)]);
    attempt("not in the state before", &|chain| {
        vec![chain.change("r", Some(State::Expired), State::Released, 0)]
    });
    attempt("unknown reservation", &|chain| vec![chain.change("x", Some(State::Held), State::Confirmed, 3)]);
    attempt("ended twice in one run", &|chain| {
        vec![
            chain.change("r", Some(State::Held), State::Released, 3),
            chain.change("r", Some(State::Held), State::Released, 3),
        ]
    });
    for (what, movements) in tries {
        let answer = chain.ledger.append(&movements).await;
        assert!(matches!(answer, Err(AppendError::Broken(Break::Contradiction(_)))), "{what}: {answer:?}");
        assert_eq!(chain.ledger.partition().await.unwrap().head, end, "{what}");
    }
    assert_eq!(chain.balance().await, [10, 3, 0]);
    stores.check_ledger().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processes_share_one_ledger() {
    let stores = Stores::start().await;
    let services = [Arc::new(Service::start(&stores).await), Arc::new(Service::start(&stores).await)];
    services[0].receive("in", "A", 400).await.unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..400 {
        let (first, second) = (services[caller % 2].clone(), services[(caller + 1) % 2].clone());
        callers.spawn(async move {
            let id = format!("r{caller}");
            first.reserve(&id, &[("A", 1)]).await.unwrap();
            match caller % 4 {
                0 => drop(second.confirm(&id).await.unwrap()),
                1 => drop(second.release(&id).await.unwrap()),
                _ => assert_eq!(second.reserve(&id, &[("A", 1)]).await.unwrap().reservation_id, id),
            }
        });
    }
    callers.join_all().await;
    for service in &services {
        assert_eq!(service.counters("A").await, [100, 200, 100, 400]);
    }
    assert_eq!(stores.count("select count(*) from inventory.movements where kind = 'OPEN'").await, 1);
    stores.check_ledger().await;
    stores.check_redis().await;
}
