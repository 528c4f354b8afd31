//! One random run: several orders, two workers, a bad network and a bad journal, cancels, deadlines, crashes, freezes
//! past the lease. Then everything is healed, drains, and is looked at.

use std::{collections::BTreeMap, time::Duration};

use futures::{
    FutureExt as _,
    stream::{FuturesUnordered, StreamExt as _},
};
use saga::{
    CANCEL, SagaId, Status, Verb,
    operate::{self, Asked, Order},
    testing::{Crashed, Faults, Manners, Sim, Simulation, TraceHash, Weakened},
};
use serde_json::json;

use super::{
    promises::{self, Told},
    shop::{KIND, Shop, order},
};

const WORKERS: [&str; 2] = ["a", "b"];
/// Longer than the default lease.
const FREEZE_MOST: Duration = Duration::from_secs(14);

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub trace: TraceHash,
    pub broken: Vec<String>,
    pub told: Vec<String>,
    /// How often what was met, so that nobody takes a quiet simulation for a good one.
    pub met: BTreeMap<&'static str, u64>,
}

pub fn run(seed: u64, weakened: Weakened) -> Report {
    Simulation::new(seed).faults(Faults::MANY).weakened(weakened).run(async |sim| day(sim).await)
}

async fn day(sim: &Sim) -> Report {
    let shop = Shop::open(sim);
    let busy = Duration::from_millis(1_500);
    shop.stock.behaves(Manners { refuses: 0.05, lapses: 0.12, ..Manners::default() });
    shop.bank.behaves(Manners { refuses: 0.08, processes: 0.3, processing_most: busy, ..Manners::default() });
    for worker in WORKERS {
        sim.worker(worker, [shop.definition()]).await;
    }
    let orders: Vec<_> = (0..3 + sim.number_below(5)).map(|_| sim.saga_id()).collect();
    let mut buyers: FuturesUnordered<_> = orders.iter().map(|saga| buy(sim, *saga)).collect();
    let mut weather = Box::pin(weather(sim)).fuse();
    let mut bought = Vec::new();
    loop {
        futures::select_biased! {
            buyer = buyers.next() => match buyer {
                Some(buyer) => bought.push(buyer),
                None => break,
            },
            () = weather => {}
        }
    }
    drop(buyers);
    weather.await;
    heal(sim).await;
    let drained = sim.drained(Duration::from_secs(900)).await;

    let told: Told = bought.iter().map(|buyer| (buyer.saga, buyer.told.clone())).collect();
    let acknowledged: Vec<_> = bought.iter().filter(|buyer| buyer.begun).map(|buyer| buyer.saga).collect();
    let mut broken = promises::broken(sim, &shop, &acknowledged, &told);
    if !drained {
        broken.push("the simulation did not come to rest".to_owned());
    }
    let about = broken.first().and_then(|what| what.get(..36)).filter(|id| id.as_bytes()[8] == b'-');
    Report { trace: sim.trace(), told: sim.last(400, about), met: met(sim), broken }
}

struct Buyer {
    saga: SagaId,
    begun: bool,
    told: Vec<Status>,
}

/// Starts an order, perhaps cancels it, and waits for it now and then.
async fn buy(sim: &Sim, saga: SagaId) -> Buyer {
    let mut buyer = Buyer { saga, begun: false, told: Vec::new() };
    sim.sleep(Duration::from_millis(sim.number_below(4_000))).await;
    let patience = Duration::from_millis(300 + sim.number_below(9_000));
    let start = order(saga, Some(patience).filter(|_| sim.happens(0.7)));
    let worker = pick(sim);
    let asked = tokio::time::timeout(Duration::from_secs(20), sim.start(worker, KIND, &start)).await;
    buyer.begun = matches!(asked, Ok(Ok(Ok(()))));
    sim.note(&format!("{saga} asked of {worker}: {asked:?}"));
    for number in 0..sim.number_below(3) {
        sim.sleep(Duration::from_millis(sim.number_below(2_500))).await;
        if sim.happens(0.4) {
            cancel(sim, saga, &format!("cancel.{number}")).await;
        }
    }
    for _ in 0..3 {
        let within = Duration::from_millis(200 + sim.number_below(6_000));
        let rest = tokio::time::timeout(within * 2, sim.rest(pick(sim), saga, within)).await;
        if let Ok(Some(standing)) = rest
            && standing.status.is_end()
        {
            sim.note(&format!("{saga} is said to be {:?}", standing.status));
            buyer.told.push(standing.status);
        }
    }
    buyer
}

/// As a client does: again under the same key until somebody answers, a few times.
async fn cancel(sim: &Sim, saga: SagaId, key: &str) {
    for _ in 0..4 {
        let worker = pick(sim);
        let why = json!("a change of mind");
        let sent = sim.signal(worker, saga, key, CANCEL, &why);
        if let Ok(Ok(Ok(stored))) = tokio::time::timeout(Duration::from_secs(3), sent).await {
            sim.note(&format!("{saga} is cancelled by {key}: {stored}"));
            return;
        }
        sim.sleep(Duration::from_millis(100)).await;
    }
}

fn pick(sim: &Sim) -> &'static str {
    WORKERS[usize::from(sim.happens(0.5))]
}

/// What befalls the workers.
async fn weather(sim: &Sim) {
    for _ in 0..sim.number_below(7) {
        sim.sleep(Duration::from_millis(sim.number_below(3_000))).await;
        let worker = pick(sim);
        if sim.happens(0.5) {
            sim.crash(worker);
            sim.sleep(Duration::from_millis(sim.number_below(9_000))).await;
            again(sim, worker).await;
        } else if sim.happens(0.8) {
            sim.freeze(worker);
            let most = u64::try_from(FREEZE_MOST.as_millis()).expect("some seconds");
            sim.sleep(Duration::from_millis(sim.number_below(most))).await;
            sim.thaw(worker);
        } else {
            let within = Duration::from_millis(sim.number_below(1_000));
            let _: Result<_, Crashed> = sim.stop(worker, within).await;
            again(sim, worker).await;
        }
    }
}

async fn again(sim: &Sim, worker: &str) {
    // A registration may hang as long as the journal lets it.
    let _ = tokio::time::timeout(Duration::from_secs(30), sim.restart(worker)).await;
}

/// Everything works again, and an operator tells what is parked to go on.
async fn heal(sim: &Sim) {
    sim.faults(Faults::NONE);
    for worker in WORKERS {
        sim.thaw(worker);
        sim.restart(worker).await;
    }
    for round in 0..6 {
        sim.sleep(Duration::from_secs(20)).await;
        let parked: Vec<_> = sim
            .sagas()
            .into_iter()
            .filter(|saga| sim.standing(*saga).is_some_and(|standing| standing.status == Status::Parked))
            .collect();
        for saga in parked {
            sim.note(&format!("{saga} is parked: {:?}", sim.last_error(saga)));
            let key = format!("retry.{round}");
            let asked = Asked::new(&key, "ops", "the faults are gone").expect("it is complete");
            let order = Order::new(asked, Verb::Retry).expect("it is complete");
            let order = serde_json::to_value(order).expect("it is plain data");
            let sent = sim.signal("a", saga, &key, operate::SIGNAL, &order).await;
            sim.note(&format!("{saga} is told to go on: {sent:?}"));
        }
    }
}

fn met(sim: &Sim) -> BTreeMap<&'static str, u64> {
    let mut met = BTreeMap::new();
    let mut count = |what, is: bool| *met.entry(what).or_default() += u64::from(is);
    for saga in sim.sagas() {
        let standing = sim.standing(saga).expect("it is one of those that are there");
        let history = sim.history(saga);
        count("completed", standing.status == Status::Completed);
        count("undone", standing.status == Status::Undone);
        count("taken over", sim.epoch(saga).is_some_and(|epoch| epoch.0 > 1));
        for event in &history {
            count(event.name(), true);
            if let saga::Event::Turned { cause, .. } = event {
                count(
                    match cause {
                        saga::Cause::Refused { .. } => "turned by refusal",
                        saga::Cause::Exhausted { .. } => "turned by exhaustion",
                        saga::Cause::Deadline => "turned by deadline",
                        saga::Cause::Cancelled { .. } => "turned by cancel",
                        saga::Cause::Operator { .. } => "turned by an operator",
                    },
                    true,
                );
            }
        }
    }
    met
}
