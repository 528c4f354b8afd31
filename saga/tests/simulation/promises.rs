//! What must hold of every run once everything has drained: the promises, as far as the engine is answerable for them.

use std::collections::BTreeMap;

use saga::{
    Event, SagaId, State, Status,
    state::Phase,
    testing::{Effect, Sim},
};

use super::shop::Shop;

/// What was told to whoever waited for a saga, when that was said to be final.
pub(crate) type Told = BTreeMap<SagaId, Vec<Status>>;

/// Every promise that was broken, in words. `sagas` were acknowledged: they must be there.
pub(crate) fn broken(sim: &Sim, shop: &Shop, sagas: &[SagaId], told: &Told) -> Vec<String> {
    let mut broken = sim.violations();
    for saga in sagas.iter().filter(|saga| sim.standing(**saga).is_none()) {
        broken.push(format!("{saga} was acknowledged and is not there"));
    }
    for saga in sim.sagas() {
        let found = of_saga(sim, shop, saga, told.get(&saga).map_or(&[], Vec::as_slice));
        broken.extend(found.into_iter().map(|what| format!("{saga} {what}")));
    }
    for (name, participant) in [("stock", &shop.stock), ("bank", &shop.bank), ("post", &shop.post)] {
        let twice = participant.executions().into_iter().filter(|(_, times)| *times > 1);
        broken.extend(twice.map(|(id, times)| format!("{name} did {id} {times} times")));
    }
    broken
}

fn of_saga(sim: &Sim, shop: &Shop, saga: SagaId, told: &[Status]) -> Vec<String> {
    let mut broken = Vec::new();
    let standing = sim.standing(saga).expect("it is one of those that are there");
    let (scope, reserved, paid, told_post) =
        (saga.to_string(), format!("{saga}.reserve"), format!("{saga}.pay"), format!("{saga}.tell"));
    let held = shop.stock.count(&reserved, Effect::Held);
    let sold = shop.stock.count(&reserved, Effect::Settled);
    let kept = shop.bank.count(&paid, Effect::Held) + shop.bank.count(&paid, Effect::Processing);
    let posted = shop.post.count(&told_post, Effect::Held);
    let facts = format!("{:?}, held {held}, sold {sold}, kept {kept}, told {posted}", standing.status);
    match standing.status {
        _ if !standing.at_rest => broken.push(format!("does not rest: {facts}")),
        Status::Completed if (held, sold, kept, posted) != (0, 1, 1, 1) => {
            broken.push(format!("is completed and the books are wrong: {facts}"));
        }
        Status::Undone if (held, sold, kept, posted) != (0, 0, 0, 0) => {
            broken.push(format!("is undone and something is left: {facts}"));
        }
        // It would wait for an operator, who was there: everything works again, and nobody can do more.
        Status::Parked => broken.push(format!("stays parked ({:?}): {facts}", sim.last_error(saga))),
        Status::Running | Status::Undoing => broken.push(format!("hangs: {facts}")),
        _ => {}
    }
    if let Some(wrong) = told.iter().find(|told| **told != standing.status) {
        broken.push(format!("was said to be {wrong:?} and is {:?}", standing.status));
    }
    let history = sim.history(saga);
    if i64::try_from(history.len()).ok() != Some(standing.seq.0) {
        broken.push(format!("has {} events at seq {}", history.len(), standing.seq.0));
    }
    match State::replay(&history) {
        Ok(state) => {
            let ends_as = match state.phase {
                Phase::Completed => Some(Status::Completed),
                Phase::Undone => Some(Status::Undone),
                Phase::Forward | Phase::Undoing => None,
            };
            if standing.status.is_end() && ends_as != Some(standing.status) {
                broken.push(format!("is {:?} and its history ends as {:?}", standing.status, state.phase));
            }
            let cancelled = history
                .iter()
                .position(|event| matches!(event, Event::Signalled { name, .. } if name == saga::CANCEL));
            let pivoted = history.iter().position(|event| matches!(event, Event::PivotBegun { .. }));
            if standing.status == Status::Completed
                && cancelled.is_some_and(|cancelled| pivoted.is_none_or(|pivoted| cancelled < pivoted))
            {
                broken.push("was cancelled before its pivot and is completed".to_owned());
            }
        }
        Err(illegal) => broken.push(format!("has a history that cannot be: {illegal}")),
    }
    let foreign = shop.stock.effects(&scope).len() - shop.stock.effects(&reserved).len();
    if foreign > 0 {
        broken.push(format!("has {foreign} effects in stock that are no reservation"));
    }
    broken
}
