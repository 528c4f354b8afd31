//! One table without gaps: every step of the shop, done and undone, hit at every moment of its life by an error and by a
//! crash of its worker.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use saga::{
    SagaId, Status,
    testing::{Harm, Manners, Participant, Sim, Simulation, Trap, When},
};

use super::{
    promises::{self, Told},
    shop::{KIND, Shop, order},
};

/// What is hit.
#[derive(Debug, Clone, Copy)]
struct Place {
    name: &'static str,
    /// The call, without the saga: `{}` stands for it.
    call: &'static str,
    /// The record of its success.
    record: &'static str,
    /// The saga is undone.
    undo: bool,
}

const PLACES: [Place; 6] = [
    Place { name: "reserve", call: "stock ask {}.reserve.1", record: "step_done reserve", undo: false },
    Place { name: "pay", call: "bank ask {}.pay.1", record: "step_done pay", undo: false },
    Place { name: "sell", call: "stock settle {}.reserve.1", record: "step_done sell", undo: false },
    Place { name: "tell", call: "post ask {}.tell", record: "step_done tell", undo: false },
    Place { name: "undo pay", call: "bank revoke {}.pay", record: "undo_done pay", undo: true },
    Place { name: "undo reserve", call: "stock revoke {}.reserve", record: "undo_done reserve", undo: true },
];

#[derive(Debug, Clone, Copy)]
enum Moment {
    BeforeEffect,
    AfterEffect,
    AfterJournal,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BeforeEffect => "before effect",
            Self::AfterEffect => "after effect",
            Self::AfterJournal => "after journal",
        })
    }
}

/// The table, one line per cell, and what was broken in any of them.
pub(crate) fn draw() -> (String, Vec<String>) {
    let mut table = format!(
        "{:<13}{:<15}{:<7}{:<10}{:<6}{}\n",
        "step", "when", "what", "ends", "epoch", "calls that arrived"
    );
    let mut broken = Vec::new();
    for place in PLACES {
        for moment in [Moment::BeforeEffect, Moment::AfterEffect, Moment::AfterJournal] {
            for harm in [Harm::Error, Harm::Crash("a".to_owned())] {
                let what = if harm == Harm::Error { "error" } else { "crash" };
                let cell = Simulation::new(7).run(async |sim| cell(sim, place, moment, harm.clone()).await);
                let (line, found) = cell;
                writeln!(table, "{:<13}{moment:<15}{what:<7}{line}", place.name).expect("it is a string");
                broken.extend(found.into_iter().map(|found| format!("{place:?} {moment} {what}: {found}")));
            }
        }
    }
    (table, broken)
}

async fn cell(sim: &Sim, place: Place, moment: Moment, harm: Harm) -> (String, Vec<String>) {
    let shop = Shop::open(sim);
    let patience = place.undo.then_some(Duration::from_secs(1));
    if place.undo {
        // The payment takes longer than anybody waits.
        let for_ever = Duration::from_hours(1);
        shop.bank.behaves(Manners { processes: 1.0, processing_most: for_ever, ..Manners::default() });
    }
    let saga = sim.saga_id();
    let call = place.call.replace("{}", &saga.to_string());
    let record = format!("journal {saga} {}", place.record);
    let (label, when) = match moment {
        Moment::BeforeEffect => (call, When::Before),
        Moment::AfterEffect => (call, When::After),
        Moment::AfterJournal => (record, When::After),
    };
    let crashes = matches!(harm, Harm::Crash(_));
    sim.worker("a", [shop.definition()]).await;
    sim.trap(Trap { label, when, harm });
    sim.start("a", KIND, &order(saga, patience))
        .await
        .expect("no crash before its start")
        .expect("it starts");
    if crashes {
        sim.ended("a").await;
        sim.restart("a").await;
    }
    let told = sim.rest("a", saga, Duration::from_secs(120)).await;
    let mut broken = Vec::new();
    if !sim.drained(Duration::from_secs(60)).await {
        broken.push("it does not drain".to_owned());
    }
    if sim.traps_left() > 0 {
        broken.push("nothing ran into the trap".to_owned());
    }
    let expected = if place.undo { Status::Undone } else { Status::Completed };
    if told.map(|standing| standing.status) != Some(expected) {
        broken.push(format!("it should be {expected:?} and is {told:?}"));
    }
    let told = told.map_or_else(Told::new, |standing| Told::from([(saga, vec![standing.status])]));
    broken.extend(promises::broken(sim, &shop, &[saga], &told));
    let status = sim.standing(saga).map_or("nothing", |standing| standing.status.as_str());
    let epoch = sim.epoch(saga).map_or(0, |epoch| epoch.0);
    (format!("{status:<10}{epoch:<6}{}", calls(&shop, saga)), broken)
}

fn calls(shop: &Shop, saga: SagaId) -> String {
    let scope = format!("{saga}.");
    let all = [&shop.stock, &shop.bank, &shop.post];
    let calls = all.into_iter().flat_map(Participant::calls);
    let calls: Vec<_> = calls.map(|(call, times)| format!("{} ×{times}", call.replace(&scope, ""))).collect();
    calls.join(", ")
}
