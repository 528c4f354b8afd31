//! Signals: what anybody but its owner may tell a saga. They are durable rows, stored once per key; the owner takes
//! them in. Reads of many sagas go out together.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{EXTEND, Engine, Extension},
    id::SagaId,
    journal::{JournalError, OpenSignal, Sent, postgres},
};

/// Most sagas whose signals are read in one statement.
const BATCH: usize = 256;
const PAUSE: Duration = Duration::from_millis(200);

/// Reads open signals for the sagas that are driven here: each asks at most once at a time.
#[derive(Default)]
pub(crate) struct SignalReader {
    asked: Mutex<BTreeMap<SagaId, oneshot::Sender<Vec<OpenSignal>>>>,
    wake: Notify,
}

/// The engine stops.
pub(crate) struct Stopping;

impl SignalReader {
    /// The signals nobody has taken in yet, oldest first.
    pub(crate) async fn read(
        &self,
        saga: SagaId,
        stop: &CancellationToken,
    ) -> Result<Vec<OpenSignal>, Stopping> {
        let (answer, signals) = oneshot::channel();
        self.asked().insert(saga, answer);
        self.wake.notify_one();
        tokio::select! {
            biased;
            signals = signals => signals.map_err(|_| Stopping),
            // Who asks after the reader has ended is not answered.
            () = stop.cancelled() => Err(Stopping),
        }
    }

    /// Answers, until the engine stops.
    pub(crate) async fn run(&self, engine: &Engine) {
        loop {
            tokio::select! {
                biased;
                () = engine.shared.stop.cancelled() => break,
                () = self.wake.notified() => {}
            }
            loop {
                let mut batch = BTreeMap::new();
                {
                    let mut asked = self.asked();
                    while batch.len() < BATCH
                        && let Some((saga, answer)) = asked.pop_first()
                    {
                        batch.insert(saga, answer);
                    }
                }
                if batch.is_empty() {
                    break;
                }
                let sagas: Vec<_> = batch.keys().copied().collect();
                let mut signals = loop {
                    match engine.shared.journal.open_signals(&sagas).await {
                        Ok(signals) => break signals,
                        Err(error) => tracing::warn!(%error, "signals cannot be read"),
                    }
                    tokio::select! {
                        biased;
                        () = engine.shared.stop.cancelled() => return self.asked().clear(),
                        () = tokio::time::sleep(PAUSE) => {}
                    }
                };
                for (saga, answer) in batch {
                    // A saga that does not wait any more needs no answer.
                    let _ = answer.send(signals.remove(&saga).unwrap_or_default());
                }
            }
        }
        // Whoever still waits learns that nobody will answer.
        self.asked().clear();
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<SagaId, oneshot::Sender<Vec<OpenSignal>>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Sends a signal: durable when this returns, once per `key`. `false`: the saga has ended or does not exist.
    pub async fn signal(
        &self,
        saga: SagaId,
        key: &str,
        name: &str,
        payload: &Value,
    ) -> Result<bool, JournalError> {
        let sent = self.shared.journal.send(saga, key, name, payload).await?;
        let is_stored = stored(saga, sent)?;
        if is_stored {
            self.nudge(saga);
        }
        Ok(is_stored)
    }

    /// Gives a waiting saga more time: its deadline is not before `until` from here on. `false`: it has ended. Whether it
    /// came in time its journal says: an extension that comes after the turn or the pivot changes nothing.
    pub async fn extend(&self, saga: SagaId, key: &str, until: DateTime<Utc>) -> Result<bool, JournalError> {
        let payload = serde_json::to_value(Extension { until })?;
        self.signal(saga, key, EXTEND, &payload).await
    }

    /// Sends a signal in the caller's transaction, as [`Engine::signal`] does. Call [`Engine::nudge`] after the commit,
    /// so that it is taken in at once.
    pub async fn send(
        &self,
        connection: &mut PgConnection,
        saga: SagaId,
        key: &str,
        name: &str,
        payload: &Value,
    ) -> Result<bool, JournalError> {
        stored(saga, postgres::send(connection, saga, key, name, payload).await?)
    }

    /// Says that a signal was sent. Only a hint: without it the next scan finds the signal.
    pub fn nudge(&self, saga: SagaId) {
        if let Some(held) = self.held().get(&saga) {
            held.nudge();
            return;
        }
        self.shared.claims.want([saga]);
        // Another worker may drive it.
        self.shared.writer.hint(saga);
    }
}

fn stored(saga: SagaId, sent: Sent) -> Result<bool, JournalError> {
    match sent {
        Sent::Stored => Ok(true),
        Sent::Ended => Ok(false),
        Sent::Full => Err(JournalError::TooManySignals(saga)),
    }
}
