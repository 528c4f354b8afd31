//! A double of whoever a saga's steps call, with the manners the engine counts on: it records the outcome under the
//! caller's id and answers it again; an undo covers a whole scope and leaves a tombstone, so that nothing of it
//! happens afterwards, however late it arrives. The way to it loses, doubles, delays and reorders.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::sync::oneshot;

use super::{trap::When, world::World};

/// How a participant answers, as shares of all new requests.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Manners {
    /// It refuses for good.
    pub refuses: f64,
    /// It needs time: meanwhile the answer is [`Reply::Pending`].
    pub processes: f64,
    /// How much time at most.
    pub processing_most: Duration,
    /// What it holds has lapsed when somebody wants to settle it.
    pub lapses: f64,
}

/// What a caller hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It is so, by this call or an earlier one of this id.
    Done,
    /// It is being processed.
    Pending,
    /// It is not so and never will be.
    Refused(&'static str),
    /// Nobody knows.
    NoAnswer,
}

/// What became of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It is being processed.
    Processing,
    /// It is in force, and can be revoked.
    Held,
    /// It is in force for ever.
    Settled,
    /// It was in force, until it lapsed.
    Lapsed,
    /// It was refused.
    Refused,
    /// It was revoked.
    Revoked,
}

/// Why something was refused whose scope was revoked.
pub const REVOKED: &str = "REVOKED";
/// Why something cannot be settled that is not held any more.
pub const LAPSED: &str = "LAPSED";
/// Why a participant refuses when the seed says so.
pub const REFUSED: &str = "REFUSED";

/// A participant. Cheap to clone; clones are one and the same.
#[derive(Clone)]
pub struct Participant {
    name: &'static str,
    world: Arc<World>,
    books: Arc<Mutex<Books>>,
}

#[derive(Debug)]
struct Books {
    manners: Manners,
    effects: BTreeMap<String, (Effect, DateTime<Utc>)>,
    /// How often each effect came into force. More than once is a broken participant.
    executions: BTreeMap<String, u32>,
    /// Scopes that were revoked.
    tombstones: Vec<String>,
    /// How often each was asked for, by `<verb> <id>`, repeated requests included.
    calls: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Ask,
    Settle,
    Revoke,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Settle => "settle",
            Self::Revoke => "revoke",
        }
    }
}

impl Participant {
    pub(crate) fn new(world: &Arc<World>, name: &'static str, manners: Manners) -> Self {
        let books = Books {
            manners,
            effects: BTreeMap::new(),
            executions: BTreeMap::new(),
            tombstones: Vec::new(),
            calls: BTreeMap::new(),
        };
        Self { name, world: Arc::clone(world), books: Arc::new(Mutex::new(books)) }
    }

    /// Asks for the effect `id`.
    pub async fn ask(&self, id: &str) -> Reply {
        self.call(Verb::Ask, id).await
    }

    /// Makes the effect `id` final: from then on it cannot be revoked.
    pub async fn settle(&self, id: &str) -> Reply {
        self.call(Verb::Settle, id).await
    }

    /// Makes sure that nothing of `scope` is in force, or ever will be: the id itself, and all that begin with it and
    /// a dot.
    pub async fn revoke(&self, scope: &str) -> Reply {
        self.call(Verb::Revoke, scope).await
    }

    /// From now on it answers like this.
    pub fn behaves(&self, manners: Manners) {
        self.books().manners = manners;
    }

    /// What became of every effect of `scope`.
    pub fn effects(&self, scope: &str) -> Vec<(String, Effect)> {
        let now = self.world.now();
        let mut books = self.books();
        let ids: Vec<_> = books.effects.keys().filter(|id| covers(scope, id)).cloned().collect();
        ids.into_iter()
            .map(|id| (id.clone(), books.effect(&id, now).expect("it was there a line ago")))
            .collect()
    }

    /// How many effects of `scope` are `effect`.
    pub fn count(&self, scope: &str, effect: Effect) -> usize {
        self.effects(scope).iter().filter(|(_, known)| *known == effect).count()
    }

    /// How often each effect came into force: once or never.
    pub fn executions(&self) -> BTreeMap<String, u32> {
        self.books().executions.clone()
    }

    /// How often each request arrived, by `<verb> <id>`, repeated ones included.
    pub fn calls(&self) -> BTreeMap<String, u32> {
        self.books().calls.clone()
    }

    async fn call(&self, verb: Verb, id: &str) -> Reply {
        let world = &self.world;
        let faults = world.faults().network.clone();
        let (there, back) = (world.time_up_to(faults.slowest), world.time_up_to(faults.slowest));
        let (lost, unanswered, delayed, duplicated) = (
            world.happens(faults.lost),
            world.happens(faults.unanswered),
            world.happens(faults.delayed),
            world.happens(faults.duplicated),
        );
        // Who hears nothing hears it at once (the connection broke), or only its own timeout.
        let is_silent = world.happens(0.5);
        let late = world.time_up_to(faults.latest);
        let label = format!("{} {} {id}", self.name, verb.name());
        let (answer, answered) = oneshot::channel();
        let mut answer = Some(answer).filter(|_| !(lost || unanswered || delayed));
        if lost {
            world.note(&format!("{label} is lost"));
        } else {
            let this = self.clone();
            let label = label.clone();
            let id = id.to_owned();
            world.send(async move {
                tokio::time::sleep(if delayed { there + late } else { there }).await;
                let answer = answer.take();
                let Some(reply) = this.arrive(verb, &id, &label) else {
                    // Whoever waits hears that the connection broke.
                    return;
                };
                if unanswered || delayed {
                    return;
                }
                tokio::time::sleep(back).await;
                if let Some(answer) = answer {
                    // Whoever asked may be gone.
                    let _ = answer.send(reply);
                }
            });
        }
        if duplicated {
            let this = self.clone();
            let id = id.to_owned();
            world.send(async move {
                tokio::time::sleep(there + late).await;
                this.arrive(verb, &id, &format!("{label}, again"));
            });
        }
        if !(lost || unanswered || delayed) {
            return answered.await.unwrap_or(Reply::NoAnswer);
        }
        if is_silent {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(there + back).await;
        Reply::NoAnswer
    }

    /// A request arrives. `None`: nobody is told what became of it.
    fn arrive(&self, verb: Verb, id: &str, label: &str) -> Option<Reply> {
        if self.world.spring(label, When::Before) {
            return None;
        }
        let now = self.world.now();
        let reply = {
            let mut books = self.books();
            *books.calls.entry(format!("{} {id}", verb.name())).or_default() += 1;
            match verb {
                Verb::Ask => books.ask(id, now, &self.world),
                Verb::Settle => books.settle(id, now, &self.world),
                Verb::Revoke => books.revoke(id, now, !self.world.weakened.tombstones),
            }
        };
        self.world.note(&format!("{label}: {reply:?}"));
        if self.world.spring(label, When::After) {
            return None;
        }
        Some(reply)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn ask(&mut self, id: &str, now: DateTime<Utc>, world: &World) -> Reply {
        if let Some(known) = self.effect(id, now) {
            return match known {
                Effect::Held | Effect::Settled => Reply::Done,
                Effect::Processing => Reply::Pending,
                Effect::Lapsed => Reply::Refused(LAPSED),
                Effect::Refused => Reply::Refused(REFUSED),
                Effect::Revoked => Reply::Refused(REVOKED),
            };
        }
        if self.tombstones.iter().any(|scope| covers(scope, id)) {
            return Reply::Refused(REVOKED);
        }
        let (refuses, processes) =
            (world.happens(self.manners.refuses), world.happens(self.manners.processes));
        let until = now + world.time_up_to(self.manners.processing_most);
        if refuses {
            self.effects.insert(id.to_owned(), (Effect::Refused, now));
            return Reply::Refused(REFUSED);
        }
        if processes {
            self.effects.insert(id.to_owned(), (Effect::Processing, until));
            return Reply::Pending;
        }
        self.comes_into_force(id, now);
        Reply::Done
    }

    fn settle(&mut self, id: &str, now: DateTime<Utc>, world: &World) -> Reply {
        let lapses = world.happens(self.manners.lapses);
        match self.effect(id, now) {
            Some(Effect::Settled) => Reply::Done,
            Some(Effect::Held) if !lapses => {
                self.effects.insert(id.to_owned(), (Effect::Settled, now));
                Reply::Done
            }
            Some(Effect::Revoked) => Reply::Refused(REVOKED),
            Some(Effect::Refused) => Reply::Refused(REFUSED),
            // What is not held has lapsed, and stays so: an old outcome is never revived.
            Some(Effect::Held | Effect::Processing | Effect::Lapsed) | None => {
                self.effects.insert(id.to_owned(), (Effect::Lapsed, now));
                Reply::Refused(LAPSED)
            }
        }
    }

    fn revoke(&mut self, scope: &str, now: DateTime<Utc>, leaves_tombstone: bool) -> Reply {
        let ids: Vec<_> = self.effects.keys().filter(|id| covers(scope, id)).cloned().collect();
        let known: Vec<_> = ids.into_iter().filter_map(|id| Some((self.effect(&id, now)?, id))).collect();
        if known.iter().any(|(effect, _)| *effect == Effect::Settled) {
            return Reply::Refused("SETTLED");
        }
        for (effect, id) in known {
            if matches!(effect, Effect::Held | Effect::Processing) {
                self.effects.insert(id, (Effect::Revoked, now));
            }
        }
        if leaves_tombstone && !self.tombstones.iter().any(|known| known == scope) {
            self.tombstones.push(scope.to_owned());
        }
        Reply::Done
    }

    fn effect(&mut self, id: &str, now: DateTime<Utc>) -> Option<Effect> {
        let (effect, since) = *self.effects.get(id)?;
        if effect == Effect::Processing && since <= now {
            self.comes_into_force(id, since);
            return Some(Effect::Held);
        }
        Some(effect)
    }

    fn comes_into_force(&mut self, id: &str, since: DateTime<Utc>) {
        self.effects.insert(id.to_owned(), (Effect::Held, since));
        *self.executions.entry(id.to_owned()).or_default() += 1;
    }
}

fn covers(scope: &str, id: &str) -> bool {
    id.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
