//! Where sagas stand, for those who ask and those who wait for it. What this process drives tells at once; for the rest
//! the row is read. Only what is on disk is ever told.

use std::{
    collections::{BTreeMap, HashMap},
    ops::{Deref, DerefMut},
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::{sync::watch, time::Instant};

use super::Engine;
use crate::{
    id::SagaId,
    journal::{Entry, JournalError, Position, Standing, Status},
};

/// How often a waiting caller reads the row of a saga that another process may drive.
const POLL: Duration = Duration::from_millis(250);

/// When a saga is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Where it stands.
    pub status: Status,
    /// Some worker runs it now.
    pub is_held: bool,
    /// When it wants to run again, while it waits.
    pub due: Option<DateTime<Utc>>,
    /// Until when the steps before the pivot may take, while that applies.
    pub deadline: Option<DateTime<Utc>>,
}

impl Engine {
    /// Waits until the saga's standing satisfies `enough`, at most `within`; gives the last standing seen. `None`:
    /// there is no such saga.
    pub async fn wait_for(
        &self,
        saga: SagaId,
        within: Duration,
        enough: impl Fn(&Standing) -> bool,
    ) -> Result<Option<Standing>, JournalError> {
        let end = Instant::now() + within;
        let mut changes = self.subscribe(saga);
        loop {
            let told = *changes.borrow_and_update();
            // Not the saga itself: it would keep its slot for as long as somebody waits.
            let held = self.held().get(&saga).map(|held| held.tail.standing());
            let seen = told.or(held.flatten());
            if let Some(standing) = seen.filter(|standing| enough(standing)) {
                return Ok(Some(standing));
            }
            // What this process drives tells at once; the row is read for what another one drives.
            let is_over = Instant::now() >= end;
            if is_over || held.is_none() {
                match self.standing(saga).await {
                    Ok(standing) if is_over || standing.is_none_or(|standing| enough(&standing)) => {
                        return Ok(standing);
                    }
                    // A read that failed is repeated as long as there is patience.
                    Err(error) if is_over => return Err(error),
                    Ok(_) | Err(_) => {}
                }
            }
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(end.min(Instant::now() + POLL)) => {}
            }
        }
    }

    /// Where a saga stands on disk.
    pub async fn standing(&self, saga: SagaId) -> Result<Option<Standing>, JournalError> {
        let positions = self.shared.journal.positions(&[saga]).await?;
        Ok(positions.get(&saga).map(|row| Standing {
            status: row.status,
            at_rest: row.owner.is_none(),
            seq: row.seq,
        }))
    }

    /// When these sagas are to be looked at, as far as they are known; for a second look at what depends on them.
    pub async fn schedules(&self, sagas: &[SagaId]) -> Result<BTreeMap<SagaId, Schedule>, JournalError> {
        let positions = self.shared.journal.positions(sagas).await?;
        let schedule = |row: &Position| Schedule {
            status: row.status,
            is_held: row.owner.is_some(),
            due: row.due,
            deadline: row.deadline,
        };
        Ok(positions.iter().map(|(saga, row)| (*saga, schedule(row))).collect())
    }

    /// Tells those who wait for a saga what is on disk of it.
    pub(super) fn publish(&self, entry: &Entry) {
        let mut watchers = self.watchers();
        let Some(watcher) = watchers.get(&entry.saga) else { return };
        if watcher.send(Some(entry.standing())).is_err() {
            watchers.remove(&entry.saga);
        }
    }

    fn subscribe(&self, saga: SagaId) -> Subscription<'_> {
        let receiver = self.watchers().entry(saga).or_insert_with(|| watch::channel(None).0).subscribe();
        Subscription { engine: self, saga, receiver }
    }

    fn watchers(&self) -> MutexGuard<'_, HashMap<SagaId, watch::Sender<Option<Standing>>>> {
        self.shared.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits for a saga. The map of watchers holds only sagas somebody waits for.
struct Subscription<'e> {
    engine: &'e Engine,
    saga: SagaId,
    receiver: watch::Receiver<Option<Standing>>,
}

impl Deref for Subscription<'_> {
    type Target = watch::Receiver<Option<Standing>>;

    fn deref(&self) -> &Self::Target {
        &self.receiver
    }
}

impl DerefMut for Subscription<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.receiver
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        let mut watchers = self.engine.watchers();
        // This one still counts.
        if watchers.get(&self.saga).is_some_and(|watcher| watcher.receiver_count() <= 1) {
            watchers.remove(&self.saga);
        }
    }
}
