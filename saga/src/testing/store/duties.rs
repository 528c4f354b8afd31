//! Workers and their leases, and what is mended seldom.

use std::{collections::BTreeSet, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::{Instance, Store, Worker};
use crate::{
    id::{Epoch, SagaId, Seq, WorkerId},
    journal::{Audit, Beat, ClockOrder, Status},
    operate,
};

/// What sleeps past its deadline by more than this was forgotten.
const OVERSLEEPING: TimeDelta = TimeDelta::seconds(5);
const UNKNOWN_AFTER: TimeDelta = TimeDelta::minutes(1);
const UNKNOWN: &str = "no live worker knows ";

impl Store {
    /// A worker of this name takes the place of its predecessor. `known_again` is the operators' word to what was
    /// parked because nobody knew its version.
    pub(crate) fn register(
        &mut self,
        name: &str,
        lease: Duration,
        knows: &[String],
        known_again: &Value,
        now: DateTime<Utc>,
    ) -> (WorkerId, Beat) {
        self.revive(knows, known_again);
        self.workers.retain(|_, worker| worker.name != name);
        self.workers_made += 1;
        let id = WorkerId(self.workers_made);
        let worker =
            Worker { name: name.to_owned(), lease_until: now + lease, knows: knows.to_vec(), fence: 0 };
        self.workers.insert(id, worker);
        (id, self.beat(now))
    }

    /// `None`: replaced by a newer process of the same name.
    pub(crate) fn heartbeat(
        &mut self,
        worker: WorkerId,
        lease: Duration,
        now: DateTime<Utc>,
    ) -> Option<Beat> {
        self.workers.get_mut(&worker)?.lease_until = now + lease;
        Some(self.beat(now))
    }

    fn beat(&self, now: DateTime<Utc>) -> Beat {
        Beat { now, pauses: self.pauses.clone(), clock_order: ClockOrder::default() }
    }

    /// Starts that this worker sent under a lower number are refused from now on.
    pub(crate) fn raise_fence(&mut self, worker: WorkerId, number: i64) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.fence = worker.fence.max(number);
        }
    }

    pub(crate) fn quarantine(
        &mut self,
        worker: WorkerId,
        saga: SagaId,
        epoch: Epoch,
        reason: &str,
        now: DateTime<Utc>,
    ) {
        if let Some(instance) = self.instances.get_mut(&saga)
            && instance.owner == Some(worker)
            && instance.epoch == epoch
        {
            instance.status = Status::Parked;
            instance.owner = None;
            instance.due = None;
            instance.last_error = Some(reason.to_owned());
            instance.updated = now;
            let orders = self.signals.values_mut().filter(|signal| signal.saga == saga);
            for order in orders.filter(|signal| signal.taken.is_none() && signal.name == operate::SIGNAL) {
                order.taken = Some(Seq(0));
            }
        }
    }

    pub(crate) fn audit(
        &mut self,
        worker: WorkerId,
        known_again: &Value,
        due_by: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Audit {
        let mut audit = Audit::default();
        // Who asks is alive whatever its lease says; others may be about to come back.
        let about: BTreeSet<_> = self.live(now - UNKNOWN_AFTER).chain([worker]).collect();
        let known = self.known(&about);
        for instance in self.instances.values_mut() {
            let sleeps_past = instance
                .deadline
                .is_some_and(|deadline| instance.due.is_some_and(|due| due > deadline + OVERSLEEPING));
            if instance.owner.is_none() && instance.status != Status::Parked && sleeps_past {
                instance.due = instance.deadline;
                audit.oversleeping += 1;
            }
        }
        for instance in self.instances.values_mut() {
            let is_overdue = instance.due.is_some_and(|due| due < due_by - UNKNOWN_AFTER);
            let is_left = instance.owner.is_some_and(|owner| !about.contains(&owner))
                && instance.updated < due_by - UNKNOWN_AFTER;
            if (is_overdue || is_left) && !known.contains(&instance.tag()) {
                instance.status = Status::Parked;
                instance.owner = None;
                instance.due = None;
                instance.updated = now;
                instance.epoch = Epoch(instance.epoch.0 + 1);
                instance.last_error =
                    Some(format!("{UNKNOWN}{} of version {}", instance.kind, instance.version));
                audit.unknown += 1;
            }
        }
        let live: BTreeSet<_> = self.live(now).collect();
        let revivable = self.known(&live.iter().copied().chain([worker]).collect());
        self.revive(&revivable, known_again);
        let known = self.known(&live);
        for instance in self.instances.values() {
            let is_overdue = instance.due.is_some_and(|due| due < due_by - OVERSLEEPING);
            if is_overdue && !self.pauses.kinds.contains(&instance.kind) && known.contains(&instance.tag()) {
                audit.overdue += 1;
            }
        }
        audit
    }

    /// Tells what was parked because nobody knew its version that somebody does.
    fn revive(&mut self, knows: &[String], known_again: &Value) {
        let is_revived = |instance: &Instance| {
            instance.status == Status::Parked
                && instance.last_error.as_ref().is_some_and(|error| error.starts_with(UNKNOWN))
                && knows.contains(&instance.tag())
        };
        let revived: Vec<_> = self
            .instances
            .iter()
            .filter(|(_, instance)| is_revived(instance))
            .map(|(saga, instance)| (*saga, instance.epoch))
            .collect();
        for (saga, epoch) in revived {
            self.send(saga, &format!("revived.{}", epoch.0), operate::SIGNAL, known_again);
        }
    }

    /// Workers whose lease held at this time, or was renewed since.
    fn live(&self, at: DateTime<Utc>) -> impl Iterator<Item = WorkerId> {
        self.workers.iter().filter(move |(_, worker)| worker.lease_until >= at).map(|(id, _)| *id)
    }

    /// What these workers have the definitions of.
    fn known(&self, workers: &BTreeSet<WorkerId>) -> Vec<String> {
        let these = self.workers.iter().filter(|(id, _)| workers.contains(id));
        these.flat_map(|(_, worker)| worker.knows.clone()).collect()
    }

    /// An orderly end: everything the worker owns is due at once for whoever comes.
    pub(crate) fn resign(&mut self, worker: WorkerId, now: DateTime<Utc>) {
        self.workers.remove(&worker);
        for instance in self.instances.values_mut().filter(|instance| instance.owner == Some(worker)) {
            instance.owner = None;
            instance.due = Some(now);
            instance.claims = 0;
            instance.updated = now;
        }
    }
}
