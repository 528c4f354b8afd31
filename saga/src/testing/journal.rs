//! A worker's way to the journal in memory: every call takes virtual time, and may fail, go unanswered, or be carried
//! out after its answer, as the seed says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{
    store::{Row, Store},
    trap::When,
    world::World,
};
use crate::{
    id::{Epoch, SagaId, WorkerId},
    journal::{
        Audit, Beat, Claimable, Claimed, Entry, Fate, Journal, JournalError, Look, OpenSignal, Position,
        Sent, Sighting,
    },
    operate,
};

/// Hints that wait to be heard; more are lost, as hints may be.
const HINTS_MAX: usize = 64;

/// One worker's journal.
pub(crate) struct MemoryJournal {
    world: Arc<World>,
    name: String,
    owner: OnceLock<WorkerId>,
    fence: AtomicI64,
    ear: Mutex<mpsc::Receiver<Vec<SagaId>>>,
}

/// No answer came.
struct Lost;

/// How a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Answered,
    /// Nothing happens.
    Failed,
    /// It is carried out, and nobody is told.
    Unanswered,
    /// It is carried out this much after its caller gave up.
    Late(Duration),
}

impl MemoryJournal {
    pub(crate) fn new(world: &Arc<World>, name: &str) -> Self {
        let (mouth, ear) = mpsc::channel(HINTS_MAX);
        world.hears(mouth);
        Self {
            world: Arc::clone(world),
            name: name.to_owned(),
            owner: OnceLock::new(),
            fence: AtomicI64::new(0),
            ear: Mutex::new(ear),
        }
    }

    fn course(&self) -> Course {
        let faults = self.world.faults().journal.clone();
        let (failed, unknown, late) = (
            self.world.happens(faults.failed),
            self.world.happens(faults.unknown),
            self.world.happens(faults.late),
        );
        let executed = self.world.happens(0.5);
        let latest = self.world.time_up_to(faults.latest);
        match (failed, unknown, late) {
            (true, ..) => Course::Failed,
            (_, true, _) => {
                if executed {
                    Course::Unanswered
                } else {
                    Course::Failed
                }
            }
            (.., true) => Course::Late(latest),
            _ => Course::Answered,
        }
    }

    /// Sends a call on its way and waits for its answer. Once sent, it arrives whatever becomes of this worker.
    async fn ask<T: Send + 'static>(
        &self,
        what: &str,
        call: impl FnOnce(&World, &mut Store, DateTime<Utc>) -> T + Send + 'static,
    ) -> Result<T, Lost> {
        let slowest = self.world.faults().journal.slowest;
        let (there, back) = (self.world.time_up_to(slowest), self.world.time_up_to(slowest));
        let course = self.course();
        let what = format!("{}: {what}", self.name);
        if course != Course::Answered {
            self.world.note(&format!("{what} is to be {course:?}"));
        }
        let world = Arc::clone(&self.world);
        let (answer, answered) = oneshot::channel();
        if course != Course::Failed {
            let sent = async move {
                tokio::time::sleep(there).await;
                if let Course::Late(by) = course {
                    tokio::time::sleep(by).await;
                    world.note(&format!("{what}, late"));
                }
                let result = {
                    let mut store = world.store();
                    let result = call(&world, &mut store, world.now());
                    for broken in std::mem::take(&mut store.broken) {
                        world.violation(broken);
                    }
                    result
                };
                if course == Course::Answered {
                    tokio::time::sleep(back).await;
                    // Whoever asked may be gone.
                    let _ = answer.send(result);
                }
            };
            if matches!(course, Course::Late(_)) {
                self.world.send(sent);
            } else {
                // Heartbeats and scans are always on their way: nobody waits for them.
                tokio::spawn(sent);
            }
        }
        if course == Course::Answered {
            return answered.await.map_err(|_| Lost);
        }
        tokio::time::sleep(there + back).await;
        Err(Lost)
    }

    async fn read<T: Send + 'static>(
        &self,
        what: &str,
        call: impl FnOnce(&World, &mut Store, DateTime<Utc>) -> T + Send + 'static,
    ) -> Result<T, JournalError> {
        self.ask(what, call).await.map_err(|Lost| lost())
    }
}

fn lost() -> JournalError {
    JournalError::Database(sqlx::Error::Io(std::io::Error::other("simulated")))
}

impl Journal for MemoryJournal {
    fn owner(&self) -> WorkerId {
        *self.owner.get().expect("an engine registers before it does anything else")
    }

    fn register<'a>(
        &'a self,
        lease: Duration,
        knows: &'a [String],
    ) -> BoxFuture<'a, Result<Beat, JournalError>> {
        Box::pin(async move {
            let known_again = serde_json::to_value(operate::Order::known_again())?;
            let (name, knows) = (self.name.clone(), knows.to_vec());
            let register = move |world: &World, store: &mut Store, now| {
                let (id, beat) = store.register(&name, lease, &knows, &known_again, now);
                world.note(&format!("{name} is worker {}", id.0));
                (id, beat)
            };
            let (id, beat) = self.read("register", register).await?;
            let _ = self.owner.set(id);
            Ok(beat)
        })
    }

    fn heartbeat(&self, lease: Duration) -> BoxFuture<'_, Result<Beat, JournalError>> {
        Box::pin(async move {
            let owner = self.owner();
            let beat =
                self.read("heartbeat", move |_, store, now| store.heartbeat(owner, lease, now)).await?;
            beat.ok_or_else(|| JournalError::Replaced(self.name.clone()))
        })
    }

    fn flush<'a>(&'a self, entries: &'a [Entry]) -> BoxFuture<'a, Vec<Fate>> {
        Box::pin(async move {
            let owner = self.owner();
            let rows: Vec<_> = entries.iter().map(Row::of).collect();
            let unknown = vec![Fate::Unknown; rows.len()];
            let fence = self.fence.load(Ordering::Acquire);
            let locked = self.world.faults().journal.locked;
            let name = self.name.clone();
            let flush = move |world: &World, store: &mut Store, now| {
                let labels: Vec<_> = rows.iter().flat_map(|row| &row.labels).collect();
                if labels.iter().any(|label| world.spring(label, When::Before)) {
                    return vec![Fate::Unknown; rows.len()];
                }
                let fates = store.flush(owner, fence, &rows, |_| world.happens(locked), now);
                for (row, fate) in rows.iter().zip(&fates) {
                    world.note(&format!("{name} flushes {}: {fate:?}", row.short()));
                    if let Fate::Refused(reason) = fate {
                        world.violation(format!("{} broke {reason}", row.saga));
                    }
                }
                if labels.iter().any(|label| world.spring(label, When::After)) {
                    return vec![Fate::Unknown; rows.len()];
                }
                fates
            };
            self.ask("flush", flush).await.unwrap_or(unknown)
        })
    }

    fn fence_off(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let (owner, fence) = (self.owner(), self.fence.load(Ordering::Acquire) + 1);
            self.read("fence off", move |_, store, _| store.raise_fence(owner, fence)).await?;
            self.fence.fetch_max(fence, Ordering::AcqRel);
            Ok(())
        })
    }

    fn positions<'a>(
        &'a self,
        sagas: &'a [SagaId],
    ) -> BoxFuture<'a, Result<BTreeMap<SagaId, Position>, JournalError>> {
        let sagas = sagas.to_vec();
        Box::pin(async move { self.read("positions", move |_, store, _| store.positions(&sagas)).await })
    }

    fn scan<'a>(
        &'a self,
        look: &'a Look,
        claimable: &'a Claimable,
    ) -> BoxFuture<'a, Result<Vec<Sighting>, JournalError>> {
        let (look, claimable) = (look.clone(), claimable.clone());
        Box::pin(async move {
            let owner = self.owner();
            let name = self.name.clone();
            let scan = move |world: &World, store: &mut Store, now| {
                let found = store.scan(owner, &look, &claimable, now);
                if !found.is_empty() {
                    world.note(&format!("{name} finds {}", found.len()));
                }
                found
            };
            self.read("scan", scan).await
        })
    }

    fn claim<'a>(
        &'a self,
        sagas: &'a [SagaId],
        claimable: &'a Claimable,
        now: DateTime<Utc>,
    ) -> BoxFuture<'a, Result<Vec<Claimed>, JournalError>> {
        let (sagas, claimable, due_by) = (sagas.to_vec(), claimable.clone(), now);
        Box::pin(async move {
            let owner = self.owner();
            let name = self.name.clone();
            let claim = move |world: &World, store: &mut Store, now| {
                let claimed = store.claim(owner, &sagas, &claimable, due_by, now);
                for row in &claimed {
                    world.note(&format!("{name} claims {} e{} at {}", row.saga, row.epoch.0, row.seq.0));
                }
                claimed
            };
            self.read("claim", claim).await
        })
    }

    fn open_signals<'a>(
        &'a self,
        sagas: &'a [SagaId],
    ) -> BoxFuture<'a, Result<BTreeMap<SagaId, Vec<OpenSignal>>, JournalError>> {
        let sagas = sagas.to_vec();
        Box::pin(
            async move { self.read("open signals", move |_, store, _| store.open_signals(&sagas)).await },
        )
    }

    fn quarantine<'a>(
        &'a self,
        saga: SagaId,
        epoch: Epoch,
        reason: &'a str,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let reason = reason.to_owned();
        Box::pin(async move {
            let owner = self.owner();
            let quarantine = move |world: &World, store: &mut Store, now| {
                world.note(&format!("{saga} e{} is quarantined: {reason}", epoch.0));
                store.quarantine(owner, saga, epoch, &reason, now);
            };
            self.read("quarantine", quarantine).await
        })
    }

    fn send<'a>(
        &'a self,
        saga: SagaId,
        key: &'a str,
        name: &'a str,
        payload: &'a Value,
    ) -> BoxFuture<'a, Result<Sent, JournalError>> {
        let (key, name, payload) = (key.to_owned(), name.to_owned(), payload.clone());
        Box::pin(async move {
            let send = move |world: &World, store: &mut Store, _| {
                let sent = store.send(saga, &key, &name, &payload);
                world.note(&format!("signal {name} to {saga}: {sent:?}"));
                sent
            };
            self.read("send", send).await
        })
    }

    fn hint<'a>(&'a self, sagas: &'a [SagaId]) -> BoxFuture<'a, Result<(), JournalError>> {
        let sagas = sagas.to_vec();
        Box::pin(async move { self.read("hint", move |world, _, _| world.hint(&sagas)).await })
    }

    fn hinted(&self) -> BoxFuture<'_, Result<Vec<SagaId>, JournalError>> {
        Box::pin(async move { self.ear.lock().await.recv().await.ok_or_else(lost) })
    }

    fn audit(&self, due_by: DateTime<Utc>, _retain_days: u32) -> BoxFuture<'_, Result<Audit, JournalError>> {
        Box::pin(async move {
            let (owner, known_again) = (self.owner(), serde_json::to_value(operate::Order::known_again())?);
            let audit =
                move |_: &World, store: &mut Store, now| store.audit(owner, &known_again, due_by, now);
            self.read("audit", audit).await
        })
    }

    fn resign(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let owner = self.owner();
            self.read("resign", move |_, store, now| store.resign(owner, now)).await
        })
    }
}
