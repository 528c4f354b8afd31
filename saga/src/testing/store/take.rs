//! What workers find and take, and signals.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::{Instance, Signal, Store};
use crate::{
    id::{Epoch, SagaId, WorkerId},
    journal::{Claimable, Claimed, Look, OpenSignal, Read, Sent, Sighting, SignalId, Status},
    operate,
};

const SIGNALS_MAX: usize = 1_000;
const OPEN_MAX: usize = 256;
const CLAIM_SLACK: TimeDelta = TimeDelta::milliseconds(50);
/// What was touched less long ago than this is not forgotten yet.
const FORGOTTEN_AFTER: TimeDelta = TimeDelta::seconds(2);

impl Store {
    pub(crate) fn scan(
        &self,
        worker: WorkerId,
        look: &Look,
        claimable: &Claimable,
        now: DateTime<Utc>,
    ) -> Vec<Sighting> {
        let limit = usize::try_from(look.limit).unwrap_or(0);
        let known: Vec<_> =
            self.instances.iter().filter(|(_, instance)| may_claim(instance, claimable)).collect();
        let mut due: Vec<_> = known
            .iter()
            .filter_map(|(saga, instance)| Some((instance.due?, **saga)))
            .filter(|(due, _)| look.due_before.is_some_and(|before| *due < before))
            .collect();
        due.sort_unstable();
        let due = due.into_iter().take(limit).map(|(due, saga)| Sighting { saga, due: Some(due) });
        let left = known.iter().filter(|(_, instance)| {
            instance.owner.is_some_and(|owner| owner != worker && !self.lives(owner, now))
        });
        let left = left.take(limit).map(|(saga, _)| Sighting { saga: **saga, due: None });
        let signalled = self.signals.values().filter(|signal| signal.taken.is_none()).filter(|signal| {
            self.instances.get(&signal.saga).is_some_and(|instance| {
                may_claim(instance, claimable)
                    && instance.owner.is_none_or(|owner| owner == worker)
                    && wakes(instance, signal)
            })
        });
        let signalled = signalled.take(limit).map(|signal| Sighting { saga: signal.saga, due: None });
        let mut found: Vec<_> = due.chain(left).chain(signalled).collect();
        if let Some(held) = &look.adopt_except {
            let held: BTreeSet<_> = held.iter().collect();
            let forgotten = self.instances.iter().filter(|(saga, instance)| {
                instance.owner == Some(worker)
                    && instance.updated < now - FORGOTTEN_AFTER
                    && !held.contains(saga)
            });
            found.extend(forgotten.take(limit).map(|(saga, _)| Sighting { saga: *saga, due: None }));
        }
        found
    }

    pub(crate) fn claim(
        &mut self,
        worker: WorkerId,
        sagas: &[SagaId],
        claimable: &Claimable,
        due_by: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        for saga in sagas {
            let Some(instance) = self.instances.get(saga) else { continue };
            let is_free = match instance.owner {
                Some(owner) if owner == worker => true,
                Some(owner) => !self.lives(owner, now),
                None if instance.due.is_some_and(|due| due <= due_by + CLAIM_SLACK) => true,
                None => self
                    .signals
                    .values()
                    .any(|signal| signal.saga == *saga && signal.taken.is_none() && wakes(instance, signal)),
            };
            if !is_free || !may_claim(instance, claimable) {
                continue;
            }
            let signals = self.open_signals_of(*saga);
            let instance = self.instances.get_mut(saga).expect("it was there a line ago");
            let interrupted = instance.owner.is_some();
            instance.owner = Some(worker);
            instance.epoch = Epoch(instance.epoch.0 + 1);
            instance.due = None;
            instance.updated = now;
            if instance.status == Status::Parked {
                (instance.claims, instance.status) = (1, Status::Running);
            } else {
                instance.claims += 1;
            }
            claimed.push(Claimed {
                saga: *saga,
                kind: instance.kind.clone(),
                version: instance.version,
                epoch: instance.epoch,
                seq: instance.seq,
                claims: instance.claims,
                interrupted,
                journal: instance.journal().map(|(events, json)| Read { events, json }),
                signals,
            });
        }
        claimed
    }

    pub(crate) fn open_signals(&self, sagas: &[SagaId]) -> BTreeMap<SagaId, Vec<OpenSignal>> {
        sagas
            .iter()
            .map(|saga| (*saga, self.open_signals_of(*saga)))
            .filter(|(_, open)| !open.is_empty())
            .collect()
    }

    fn open_signals_of(&self, saga: SagaId) -> Vec<OpenSignal> {
        let open = self.signals.iter().filter(|(_, signal)| signal.saga == saga && signal.taken.is_none());
        let mut open: Vec<_> = open
            .map(|(id, signal)| OpenSignal {
                id: *id,
                name: signal.name.clone(),
                payload: signal.payload.clone(),
            })
            .collect();
        open.sort_by_key(|signal| (signal.name != operate::SIGNAL, signal.id));
        open.truncate(OPEN_MAX);
        open.sort_by_key(|signal| signal.id);
        open
    }

    pub(crate) fn send(&mut self, saga: SagaId, key: &str, name: &str, payload: &Value) -> Sent {
        if !self.instances.contains_key(&saga) {
            return Sent::Ended;
        }
        let of_saga: Vec<_> = self.signals.values().filter(|signal| signal.saga == saga).collect();
        if of_saga.iter().any(|signal| signal.key == key) {
            return Sent::Stored;
        }
        // Operators' orders and what others send each have a limit of their own.
        let is_order = |name: &str| name == operate::SIGNAL;
        let counted = of_saga.iter().filter(|signal| is_order(&signal.name) == is_order(name)).count();
        if counted >= SIGNALS_MAX {
            return Sent::Full;
        }
        self.signals_made += 1;
        let signal = Signal {
            saga,
            key: key.to_owned(),
            name: name.to_owned(),
            payload: payload.clone(),
            taken: None,
        };
        self.signals.insert(SignalId(self.signals_made), signal);
        Sent::Stored
    }

    /// Whether the worker's lease holds.
    pub(super) fn lives(&self, worker: WorkerId, now: DateTime<Utc>) -> bool {
        self.workers.get(&worker).is_some_and(|row| row.lease_until >= now)
    }
}

fn may_claim(instance: &Instance, claimable: &Claimable) -> bool {
    claimable.knows.contains(&instance.tag()) && !claimable.paused_kinds.contains(&instance.kind)
}

/// A parked saga wakes by an operator's word only.
fn wakes(instance: &Instance, signal: &Signal) -> bool {
    instance.status != Status::Parked || signal.name == operate::SIGNAL
}
