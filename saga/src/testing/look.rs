//! What whoever runs a simulation may set and see: participants, faults, the journals on disk, chance, the chronicle.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Faults, Manners, Participant, Sim, TraceHash, Trap};
use crate::{
    event::Event,
    id::{Epoch, SagaId},
    journal::Standing,
};

impl Sim {
    /// A participant of this name, which must be unique.
    pub fn participant(&self, name: &'static str, manners: Manners) -> Participant {
        Participant::new(&self.world, name, manners)
    }

    /// What goes wrong from now on.
    pub fn faults(&self, faults: Faults) {
        *self.world.faults() = faults;
    }

    /// Sets a trap.
    pub fn trap(&self, trap: Trap) {
        self.world.set(trap);
    }

    /// Takes away the traps that nothing ran into.
    pub fn clear_traps(&self) {
        self.world.clear_traps();
    }

    /// How many traps nothing ran into.
    pub fn traps_left(&self) -> usize {
        self.world.traps_left()
    }

    /// Every saga there is, on disk.
    pub fn sagas(&self) -> Vec<SagaId> {
        self.world.store().sagas()
    }

    /// A saga's journal, on disk.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn history(&self, saga: SagaId) -> Vec<Event> {
        let journal = self.world.store().journal_of(saga).unwrap_or_else(|| Ok(Vec::new()));
        journal.unwrap_or_else(|error| panic!("the journal of {saga} cannot be read: {error}"))
    }

    /// Where a saga stands, on disk.
    pub fn standing(&self, saga: SagaId) -> Option<Standing> {
        let row = self.world.store().position(saga)?;
        Some(Standing { status: row.status, at_rest: row.owner.is_none(), seq: row.seq })
    }

    /// How often a saga changed its owner, plus one.
    pub fn epoch(&self, saga: SagaId) -> Option<Epoch> {
        self.world.store().position(saga).map(|row| row.epoch)
    }

    /// Why a saga that has not ended is parked, or what failed last.
    pub fn last_error(&self, saga: SagaId) -> Option<String> {
        self.world.store().last_error(saga)
    }

    /// A new id, from the seed.
    pub fn saga_id(&self) -> SagaId {
        SagaId(Uuid::from_u64_pair(self.world.number(), self.world.number()))
    }

    /// A number from 0 up to and without `bound`, from the seed.
    pub fn number_below(&self, bound: u64) -> u64 {
        self.world.number_below(bound)
    }

    /// Whether what happens to this share of all does happen now, from the seed.
    pub fn happens(&self, share: f64) -> bool {
        self.world.happens(share)
    }

    /// Lets virtual time pass.
    pub async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// The database's time.
    pub fn now(&self) -> DateTime<Utc> {
        self.world.now()
    }

    /// Adds an observation of the caller's own.
    pub fn note(&self, what: &str) {
        self.world.note(what);
    }

    /// What must never be and was: a broken journal, or a worker that panicked.
    pub fn violations(&self) -> Vec<String> {
        let mut violations = self.world.violations();
        violations.extend(self.panics());
        violations
    }

    /// A hash over everything observed so far, with its times.
    pub fn trace(&self) -> TraceHash {
        self.world.chronicle().hash()
    }

    /// The last observations, oldest first: those that name `about`, or all.
    pub fn last(&self, count: usize, about: Option<&str>) -> Vec<String> {
        self.world.chronicle().last(count, about)
    }
}
