//! One random run: several orders, two workers, a bad network and a bad journal, cancels, deadlines, crashes, freezes
//! past the lease. Then everything is healed, drains, and is looked at.

use std::{collections::BTreeMap, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt as _};
use saga::{
    CANCEL, SagaId, Status, Verb,
    operate::{self, Asked, Order},
    testing::{Faults, Harm, Manners, Sim, Simulation, TraceHash, Trap, Weakened, When},
};
use serde_json::{Value, json};

use super::{
    promises::{self, Told},
    shop::{KIND, Shop, order},
};

const WORKERS: [&str; 2] = ["a", "b"];
/// Longer than the default lease.
const FREEZE_MOST_MS: u64 = 14_000;

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) trace: TraceHash,
    pub(crate) broken: Vec<String>,
    pub(crate) told: Vec<String>,
    /// How often what was met, so that nobody takes a quiet simulation for a good one.
    pub(crate) met: BTreeMap<&'static str, u64>,
}

pub(crate) fn run(seed: u64, weakened: Weakened) -> Report {
    Simulation::new(seed).faults(Faults::MANY).weakened(weakened).run(async |sim| day(sim).await)
}

async fn day(sim: &Sim) -> Report {
    let shop = Shop::open(sim);
    let busy = Duration::from_millis(1_500);
    shop.stock.behaves(Manners { refuses: 0.05, lapses: 0.12, ..Manners::default() });
    shop.bank.behaves(Manners { refuses: 0.08, processes: 0.3, processing_most: busy, ..Manners::default() });
    let climate = climate(sim);
    sim.faults(climate.clone());
    for worker in WORKERS {
        sim.worker(worker, [shop.definition()]).await;
    }
    let orders: Vec<_> = (0..3 + sim.number_below(5)).map(|_| sim.saga_id()).collect();
    let buyers: FuturesUnordered<_> = orders.iter().map(|saga| buy(sim, *saga)).collect();
    let (bought, ()) = futures::join!(buyers.collect::<Vec<_>>(), weather(sim, &orders, &climate));
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
    let patience = soon(sim, 9_000);
    let start = order(saga, Some(patience).filter(|_| sim.happens(0.7)));
    let worker = pick(sim);
    // Not answered, it is not asked again: an id without a side row is used once.
    let asked = tokio::time::timeout(Duration::from_secs(20), sim.start(worker, KIND, &start)).await;
    buyer.begun = matches!(asked, Ok(Ok(Ok(()))));
    sim.note(&format!("{saga} asked of {worker}: {asked:?}"));
    for number in 0..sim.number_below(3) {
        sim.sleep(soon(sim, 2_500)).await;
        match sim.number_below(10) {
            0..4 => tell(sim, saga, &format!("cancel.{number}"), CANCEL, &json!("a change of mind")).await,
            4 => operate(sim, saga, &format!("compensate.{number}"), Verb::Compensate).await,
            5 => operate(sim, saga, &format!("pause.{number}"), Verb::Pause).await,
            6 => operate(sim, saga, &format!("resume.{number}"), Verb::Resume).await,
            _ => {}
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
async fn tell(sim: &Sim, saga: SagaId, key: &str, name: &str, payload: &Value) {
    for _ in 0..4 {
        let sent = sim.signal(pick(sim), saga, key, name, payload);
        if let Ok(Ok(Ok(stored))) = tokio::time::timeout(Duration::from_secs(3), sent).await {
            sim.note(&format!("{saga} is told {key}: {stored}"));
            return;
        }
        sim.sleep(Duration::from_millis(100)).await;
    }
}

async fn operate(sim: &Sim, saga: SagaId, key: &str, verb: Verb) {
    let asked = Asked::new(key, "ops", "the seed says so").expect("it is complete");
    let order = Order::new(asked, verb).expect("it is short");
    tell(sim, saga, key, operate::SIGNAL, &serde_json::to_value(order).expect("it is plain data")).await;
}

fn pick(sim: &Sim) -> &'static str {
    WORKERS[usize::from(sim.happens(0.5))]
}

/// A time that is as likely below a tenth of `most_ms` as above.
fn soon(sim: &Sim, most_ms: u64) -> Duration {
    let most = if sim.happens(0.5) { most_ms / 10 } else { most_ms };
    Duration::from_millis(20 + sim.number_below(most))
}

/// How bad a day it is, and how slow.
fn climate(sim: &Sim) -> Faults {
    let mut faults = if sim.happens(0.8) { Faults::MANY } else { Faults::NONE };
    let slow = [1, 1, 4, 20][usize::try_from(sim.number_below(4)).expect("it is below four")];
    faults.network.slowest *= slow;
    faults.journal.slowest *= [1, slow][usize::from(sim.happens(0.3))];
    faults
}

/// What befalls the workers.
async fn weather(sim: &Sim, orders: &[SagaId], climate: &Faults) {
    for _ in 0..2 + sim.number_below(6) {
        sim.sleep(soon(sim, 2_500)).await;
        let worker = pick(sim);
        match sim.number_below(10) {
            0..2 => {
                sim.crash(worker);
                sim.sleep(soon(sim, 9_000)).await;
                again(sim, worker).await;
            }
            2..4 => {
                sim.freeze(worker);
                sim.sleep(soon(sim, FREEZE_MOST_MS)).await;
                sim.thaw(worker);
            }
            4 => {
                // Frozen, it does not stop.
                let within = soon(sim, 1_000);
                if tokio::time::timeout(within * 3, sim.stop(worker, within)).await.is_err() {
                    sim.crash(worker);
                }
                again(sim, worker).await;
            }
            // One place is hit exactly, if the order comes by there.
            5..8 => {
                sim.trap(place(sim, orders, worker));
                sim.sleep(soon(sim, FREEZE_MOST_MS)).await;
                if sim.is_alive(worker) {
                    sim.thaw(worker);
                } else {
                    again(sim, worker).await;
                }
            }
            8 => {
                let mut journal_away = climate.clone();
                journal_away.journal.failed = 1.0;
                sim.faults(journal_away);
                sim.sleep(soon(sim, 4_000)).await;
                sim.faults(climate.clone());
            }
            _ => {
                let mut all_away = climate.clone();
                all_away.network.lost = 1.0;
                sim.faults(all_away);
                sim.sleep(soon(sim, 20_000)).await;
                sim.faults(climate.clone());
            }
        }
    }
}

/// One exact place in the life of one of the orders.
fn place(sim: &Sim, orders: &[SagaId], worker: &str) -> Trap {
    let any = |count: usize| {
        let count = u64::try_from(count).expect("a few");
        usize::try_from(sim.number_below(count)).expect("it is below a few")
    };
    let saga = orders[any(orders.len())];
    let places = [
        format!("stock ask {saga}"),
        format!("stock settle {saga}"),
        format!("stock revoke {saga}"),
        format!("bank ask {saga}"),
        format!("bank revoke {saga}"),
        format!("post ask {saga}"),
        format!("journal {saga} started"),
        format!("journal {saga} step_done"),
        format!("journal {saga} pivot_begun"),
        format!("journal {saga} turned"),
        format!("journal {saga} undo_done"),
    ];
    let label = places[any(places.len())].clone();
    let when = if sim.happens(0.5) { When::Before } else { When::After };
    let harm = if sim.happens(0.5) { Harm::Crash(worker.into()) } else { Harm::Freeze(worker.into()) };
    Trap { label, when, harm }
}

async fn again(sim: &Sim, worker: &str) {
    // A registration may hang as long as the journal lets it.
    let _ = tokio::time::timeout(Duration::from_secs(30), sim.restart(worker)).await;
}

/// Everything works again, and an operator tells what is parked to go on.
async fn heal(sim: &Sim) {
    sim.faults(Faults::NONE);
    sim.clear_traps();
    for worker in WORKERS {
        sim.thaw(worker);
        sim.restart(worker).await;
    }
    for round in 0..6 {
        sim.sleep(Duration::from_secs(20)).await;
        // A registration that was late stopped a healthy worker of that name. Whoever watches over it starts it anew.
        for worker in WORKERS.into_iter().filter(|worker| !sim.is_alive(worker)) {
            sim.restart(worker).await;
        }
        let parked: Vec<_> = sim
            .sagas()
            .into_iter()
            .filter(|saga| sim.standing(*saga).is_some_and(|standing| standing.status == Status::Parked))
            .collect();
        for saga in parked {
            sim.note(&format!("{saga} is parked: {:?}", sim.last_error(saga)));
            operate(sim, saga, &format!("resume at last.{round}"), Verb::Resume).await;
            operate(sim, saga, &format!("retry at last.{round}"), Verb::Retry).await;
        }
    }
}

fn met(sim: &Sim) -> BTreeMap<&'static str, u64> {
    let mut met = BTreeMap::new();
    let mut count = |what, is: bool| *met.entry(what).or_default() += u64::from(is);
    for saga in sim.sagas() {
        let history = sim.history(saga);
        count("taken_over", sim.epoch(saga).is_some_and(|epoch| epoch.0 > 1));
        for event in &history {
            count(event.name(), true);
            if let saga::Event::Turned { cause, .. } = event {
                count(
                    match cause {
                        saga::Cause::Refused { .. } => "turned_by_refusal",
                        saga::Cause::Exhausted { .. } => "turned_by_exhaustion",
                        saga::Cause::Deadline => "turned_by_deadline",
                        saga::Cause::Cancelled { .. } => "turned_by_cancel",
                        saga::Cause::Operator { .. } => "turned_by_operator",
                    },
                    true,
                );
            }
        }
    }
    met
}
