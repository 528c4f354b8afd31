//! Taking sagas over, and putting their journals together from their rows. Absent: which ones, and what follows.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use sqlx::{Row as _, postgres::PgRow};

use super::{PgJournal, ids, sql};
use crate::{
    event::Event,
    id::{Epoch, SagaId, Seq},
    journal::{Claimable, Claimed, Journal as _, JournalError, OpenSignal, Read},
    operate,
};

/// Timers fire by a clock that is a little off.
const CLAIM_SLACK: TimeDelta = TimeDelta::milliseconds(50);

/// How often, and after what pause, claimed sagas are read again.
const READ_AGAIN_MAX: u32 = 20;
const READ_AGAIN: Duration = Duration::from_millis(100);

/// What flushes recorded, with the seq of its first event.
type Parts = HashMap<SagaId, Vec<(i64, String)>>;
type Signals = BTreeMap<SagaId, Vec<OpenSignal>>;

impl PgJournal {
    pub(super) async fn take(
        &self,
        sagas: &[SagaId],
        claimable: &Claimable,
        now: DateTime<Utc>,
    ) -> Result<Vec<Claimed>, JournalError> {
        let claim = sqlx::query(sql::CLAIM)
            .bind(self.owner().0)
            .bind(ids(sagas))
            .bind(now + CLAIM_SLACK)
            .bind(&claimable.knows)
            .bind(&claimable.paused_kinds)
            .bind(operate::SIGNAL);
        let rows = self.read(claim).await?;
        let taken: Vec<_> = rows.iter().map(|row| row.try_get("id").map(SagaId)).collect::<Result<_, _>>()?;
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        // They are ours from here on: a read that failed is repeated, since nobody else looks at them for seconds.
        let mut tries = 0;
        let (mut parts, mut signals) = loop {
            match self.parts_and_signals(&taken).await {
                Ok(read) => break read,
                Err(error) if tries == READ_AGAIN_MAX => return Err(error),
                Err(error) => tracing::warn!(%error, sagas = taken.len(), "claimed sagas cannot be read yet"),
            }
            tries += 1;
            tokio::time::sleep(READ_AGAIN).await;
        };
        let claimed = |row: &PgRow| -> Result<Claimed, sqlx::Error> {
            let saga = SagaId(row.try_get("id")?);
            Ok(Claimed {
                saga,
                kind: row.try_get("kind")?,
                version: row.try_get("version")?,
                epoch: Epoch(row.try_get("epoch")?),
                seq: Seq(row.try_get("seq")?),
                claims: row.try_get("claims")?,
                interrupted: row.try_get("interrupted")?,
                journal: read(row.try_get("started")?, parts.remove(&saga).unwrap_or_default()),
                signals: signals.remove(&saga).unwrap_or_default(),
            })
        };
        Ok(rows.iter().map(claimed).collect::<Result<_, _>>()?)
    }

    async fn parts_and_signals(&self, sagas: &[SagaId]) -> Result<(Parts, Signals), JournalError> {
        let mut parts = Parts::with_capacity(sagas.len());
        for row in self.read(sqlx::query(sql::EVENTS).bind(ids(sagas))).await? {
            let part = (row.try_get("seq")?, row.try_get("events")?);
            parts.entry(SagaId(row.try_get("saga_id")?)).or_default().push(part);
        }
        Ok((parts, self.open_signals(sagas).await?))
    }
}

/// Puts a journal together. `Err`: why it cannot be.
pub(super) fn read(started: String, parts: Vec<(i64, String)>) -> Result<Read, String> {
    let unreadable = |seq: i64, error: &serde_json::Error| format!("event {seq} cannot be read: {error}");
    let first: Event = serde_json::from_str(&started).map_err(|error| unreadable(1, &error))?;
    let mut journal = Read { events: vec![first], json: started };
    for (seq, part) in parts {
        let expected = Seq::default().plus(journal.events.len() + 1).0;
        if seq != expected {
            return Err(format!("event {expected} is missing"));
        }
        let events: Vec<Value> = serde_json::from_str(&part).map_err(|error| unreadable(seq, &error))?;
        for (event, seq) in events.into_iter().zip(seq..) {
            journal.events.push(serde_json::from_value(event).map_err(|error| unreadable(seq, &error))?);
        }
        journal.json.push(',');
        journal.json.push_str(part.trim().trim_start_matches('[').trim_end_matches(']'));
    }
    Ok(journal)
}
