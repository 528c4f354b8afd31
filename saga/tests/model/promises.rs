//! What must hold in every state, and what must be reachable for that to mean anything.
//!
//! Since whatever was ever sent may still arrive in the next step, "in every state" includes "and stays so whatever
//! arrives afterwards".

use stateright::{Model as _, Property};

use crate::{
    bounds::{Bounds, Faults},
    journal::{End, Event, Round, Standing},
    participants::{Hold, Money, Request, Shop},
    run::{Flush, Run},
    world::{Saga, World},
};

pub(crate) const COMPLETED_IS_TRUE: &str = "completed: sold once, one payment kept";
pub(crate) const UNDONE_IS_TRUE: &str = "undone: nothing held or sold, no money kept";
pub(crate) const NEVER_SOLD_AND_REFUNDED: &str = "never sold and refunded";
pub(crate) const NEVER_SOLD_UNPAID: &str = "never sold before it was paid";
pub(crate) const CHARGED_ONCE: &str = "money moves at most once";
pub(crate) const NEVER_OVERSOLD: &str = "held and sold never exceed the stock";
pub(crate) const ONE_ANSWER: &str = "what was told is never taken back";
pub(crate) const LEGAL: &str = "every journal can be read";
pub(crate) const NO_EARLY_UNDO: &str = "no undo before its turn is on disk";
pub(crate) const NO_EARLY_PIVOT: &str = "no pivot before its record is on disk";
pub(crate) const COMES_TO_REST: &str = "every history comes to rest";

pub(crate) const COMPLETES: &str = "a saga completes";
pub(crate) const IS_UNDONE: &str = "a saga is undone";
pub(crate) const ZOMBIE_IS_REFUSED: &str = "a zombie's flush is refused";
pub(crate) const SECOND_ROUND_IS_SOLD: &str = "a hold acquired anew is sold";

/// What must be reachable, lest the promises be kept by a model in which nothing happens.
pub(crate) fn reachable(faults: Faults) -> Vec<&'static str> {
    let mut names = vec![COMPLETES];
    if faults.turns + faults.refusals + faults.lapses > 0 {
        names.push(IS_UNDONE);
    }
    if faults.takeovers > 0 {
        names.push(ZOMBIE_IS_REFUSED);
    }
    if faults.lapses > 0 {
        names.push(SECOND_ROUND_IS_SOLD);
    }
    names
}

/// All of them.
pub(crate) fn all() -> Vec<Property<Bounds>> {
    vec![
        Property::always(COMPLETED_IS_TRUE, |bounds, world| {
            each(world, |saga| !ended(saga, End::Completed) || completed(saga.shop, bounds.finish))
        }),
        Property::always(UNDONE_IS_TRUE, |_, world| {
            each(world, |saga| !ended(saga, End::Undone) || nothing_left(saga.shop))
        }),
        Property::always(NEVER_SOLD_AND_REFUNDED, |_, world| {
            each(world, |saga| !saga.shop.sold() || !matches!(saga.shop.money, Money::Refunded | Money::Void))
        }),
        Property::always(NEVER_SOLD_UNPAID, |_, world| {
            each(world, |saga| !saga.shop.sold() || saga.shop.money != Money::Unknown)
        }),
        Property::always(CHARGED_ONCE, |_, world| {
            each(world, |saga| !matches!(saga.shop.money, Money::Captured(2..)))
        }),
        Property::always(NEVER_OVERSOLD, |bounds: &Bounds, world: &World| {
            let taken = |hold: &&Hold| matches!(hold, Hold::Held | Hold::Sold);
            let holds = world.sagas.iter().flat_map(|saga| &saga.shop.holds).filter(taken).count();
            holds + usize::from(world.stock) == usize::from(bounds.stock)
        }),
        Property::always(ONE_ANSWER, |_, world| each(world, one_answer)),
        Property::always(LEGAL, |_, world| {
            each(world, |saga| saga.row.log.len() == 0 || Standing::of(saga.row.log).is_ok())
        }),
        Property::always(NO_EARLY_UNDO, |_, world| {
            each(world, |saga| {
                let asked =
                    [Request::Release(Round::First), Request::Release(Round::Second), Request::CancelPayment];
                !asked.iter().any(|request| saga.sent.has(*request)) || saga.row.log.has(Event::Turned)
            })
        }),
        Property::always(NO_EARLY_PIVOT, |_, world| {
            each(world, |saga| {
                let asked = [Round::First, Round::Second].map(Request::Confirm);
                !asked.iter().any(|request| saga.sent.has(*request)) || saga.row.log.has(Event::PivotBegun)
            })
        }),
        Property::always(COMES_TO_REST, |bounds, world| at_rest(world) || goes_on(bounds, world)),
        Property::sometimes(COMPLETES, |_, world| any(world, |saga| saga.told.completed)),
        Property::sometimes(IS_UNDONE, |_, world| any(world, |saga| saga.told.undone)),
        Property::sometimes(ZOMBIE_IS_REFUSED, |_, world| {
            any(world, |saga| {
                let refused =
                    |run: &Run| matches!(run.flush, Flush::Unknown(_)) && run.epoch < saga.row.epoch;
                saga.runs.iter().flatten().any(refused)
            })
        }),
        Property::sometimes(SECOND_ROUND_IS_SOLD, |_, world| {
            any(world, |saga| saga.told.completed && saga.shop.holds == [Hold::Lapsed, Hold::Sold])
        }),
    ]
}

fn each(world: &World, holds: impl Fn(&Saga) -> bool) -> bool {
    world.sagas.iter().all(holds)
}

fn any(world: &World, holds: impl Fn(&Saga) -> bool) -> bool {
    world.sagas.iter().any(holds)
}

/// Told, or written where anybody can read it.
fn ended(saga: &Saga, end: End) -> bool {
    let told = match end {
        End::Completed => saga.told.completed,
        End::Undone => saga.told.undone,
    };
    told || saga.end() == Some(end)
}

fn completed(shop: Shop, finish: bool) -> bool {
    let sold = shop.holds.iter().filter(|hold| **hold == Hold::Sold).count();
    let held = shop.holds.contains(&Hold::Held);
    sold == 1 && !held && shop.money == Money::Captured(1) && (shop.finished || !finish)
}

fn nothing_left(shop: Shop) -> bool {
    !shop.sold() && !shop.holds.contains(&Hold::Held) && !matches!(shop.money, Money::Captured(_))
}

fn one_answer(saga: &Saga) -> bool {
    match (saga.told.completed, saga.told.undone) {
        (false, false) => true,
        (true, false) => saga.end() == Some(End::Completed),
        (false, true) => saga.end() == Some(End::Undone),
        (true, true) => false,
    }
}

/// Every saga ended, or never began and nothing was done in its name; and no worker holds anything.
fn at_rest(world: &World) -> bool {
    let rests =
        |saga: &Saga| saga.end().is_some() || (saga.row.log.len() == 0 && saga.shop == Shop::default());
    each(world, |saga| rests(saga) && saga.runs.iter().all(Option::is_none))
}

/// Whether anything may still happen. No step of the model leads back, so a world where something may always go on until
/// nothing may is a world that comes to rest.
fn goes_on(bounds: &Bounds, world: &World) -> bool {
    let mut actions = Vec::new();
    bounds.actions(world, &mut actions);
    actions.into_iter().any(|action| bounds.next_state(world, action).is_some())
}
