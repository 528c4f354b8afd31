//! The journal's tables in memory, under the conditions that `journal/postgres/sql.rs` puts on each statement. A call
//! is carried out at one instant. Absent: side rows, which are the caller's SQL.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::{
    event::Event,
    id::{Epoch, SagaId, Seq, WorkerId},
    journal::{Entry, Fate, Pauses, Position, SignalId, Status},
    state::State,
};

mod duties;
mod take;

/// All tables.
#[derive(Debug, Default)]
pub(crate) struct Store {
    workers: BTreeMap<WorkerId, Worker>,
    workers_made: i64,
    instances: BTreeMap<SagaId, Instance>,
    finished: BTreeMap<SagaId, Finished>,
    signals: BTreeMap<SignalId, Signal>,
    signals_made: i64,
    pub(crate) pauses: Pauses,
    /// What must never be in a journal, and was.
    pub(crate) broken: Vec<String>,
}

#[derive(Debug)]
struct Worker {
    name: String,
    lease_until: DateTime<Utc>,
    knows: Vec<String>,
    fence: i64,
}

#[derive(Debug)]
struct Instance {
    kind: String,
    version: i32,
    status: Status,
    seq: Seq,
    epoch: Epoch,
    owner: Option<WorkerId>,
    due: Option<DateTime<Utc>>,
    deadline: Option<DateTime<Utc>>,
    claims: i32,
    last_error: Option<String>,
    started: String,
    events: Vec<Part>,
    updated: DateTime<Utc>,
}

#[derive(Debug)]
struct Part {
    seq: i64,
    json: String,
}

#[derive(Debug)]
struct Finished {
    status: Status,
    seq: Seq,
    epoch: Epoch,
    history: String,
}

#[derive(Debug)]
struct Signal {
    saga: SagaId,
    key: String,
    name: String,
    payload: Value,
    taken: Option<Seq>,
}

/// One entry of a flush, as it travels to the database.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) saga: SagaId,
    epoch: Epoch,
    after: Seq,
    end: Seq,
    status: Status,
    releases: bool,
    due: Option<DateTime<Utc>>,
    deadline: Option<DateTime<Utc>>,
    last_error: Option<String>,
    json: String,
    history: Option<String>,
    signals: Vec<(SignalId, Seq)>,
    begins: bool,
    kind: &'static str,
    version: i32,
    /// What it writes, each as `journal <saga> <event> <step>`.
    pub(crate) labels: Vec<String>,
}

impl Row {
    pub(crate) fn of(entry: &Entry) -> Self {
        let status = Status::of(&entry.state);
        let label = |event: &Event| format!("journal {} {} {}", entry.saga, event.name(), step_of(event));
        Self {
            saga: entry.saga,
            epoch: entry.epoch,
            after: entry.after,
            end: entry.end(),
            status,
            releases: entry.releases(),
            due: entry.release.filter(|_| !status.is_final()),
            deadline: entry.state.deadline,
            last_error: error_of(&entry.state),
            json: entry.json.clone(),
            history: entry.history.clone(),
            signals: entry.signals.clone(),
            begins: entry.begins.is_some(),
            kind: entry.definition.kind,
            version: entry.definition.version,
            labels: entry.events.iter().map(label).collect(),
        }
    }

    /// In the fewest words.
    pub(crate) fn short(&self) -> String {
        let events: Vec<_> =
            self.labels.iter().filter_map(|label| label.splitn(3, ' ').nth(2)).map(str::trim).collect();
        let release = if self.releases { " released" } else { "" };
        format!("{} e{} {}+[{}]{release}", self.saga, self.epoch.0, self.after.0, events.join(", "))
    }
}

fn error_of(state: &State) -> Option<String> {
    state.parked_reason().map(str::to_owned).or_else(|| state.last_error.clone())
}

fn step_of(event: &Event) -> &str {
    match event {
        Event::StepDone { step, .. }
        | Event::StepWaiting { step, .. }
        | Event::StepFailed { step, .. }
        | Event::PivotBegun { step }
        | Event::UndoDone { step }
        | Event::UndoFailed { step, .. } => step,
        Event::Restarted { at, .. } => at,
        Event::Signalled { name, .. } => name,
        _ => "",
    }
}

/// A journal as JSON, without its brackets.
fn events(json: &str) -> Result<Vec<Event>, serde_json::Error> {
    serde_json::from_str(&format!("[{json}]"))
}

impl Store {
    /// One flush of this worker. `is_locked`: this row is held by somebody else at the moment.
    pub(crate) fn flush(
        &mut self,
        owner: WorkerId,
        fence: i64,
        rows: &[Row],
        mut is_locked: impl FnMut(&Row) -> bool,
        now: DateTime<Utc>,
    ) -> Vec<Fate> {
        rows.iter()
            .map(|row| if is_locked(row) { Fate::Unknown } else { self.write(owner, fence, row, now) })
            .collect()
    }

    fn write(&mut self, owner: WorkerId, fence: i64, row: &Row, now: DateTime<Utc>) -> Fate {
        if row.begins {
            let is_fenced_off = self.workers.get(&owner).is_none_or(|worker| worker.fence > fence);
            if is_fenced_off || self.instances.contains_key(&row.saga) {
                return Fate::Unknown;
            }
            if self.finished.contains_key(&row.saga) {
                self.broken.push(format!("{} begins again after its end", row.saga));
                return Fate::Unknown;
            }
            let instance = Instance {
                kind: row.kind.to_owned(),
                version: row.version,
                status: Status::Running,
                seq: Seq(1),
                epoch: Epoch(1),
                owner: Some(owner),
                due: None,
                deadline: row.deadline,
                claims: 0,
                last_error: None,
                started: row.json.clone(),
                events: Vec::new(),
                updated: now,
            };
            self.instances.insert(row.saga, instance);
            return Fate::Written;
        }
        let is_there = self.instances.get(&row.saga).is_some_and(|instance| {
            instance.owner == Some(owner) && instance.epoch == row.epoch && instance.seq == row.after
        });
        if !is_there {
            return Fate::Unknown;
        }
        if row.history.is_some() { self.end(row) } else { self.append(row, now) }
    }

    fn append(&mut self, row: &Row, now: DateTime<Utc>) -> Fate {
        let instance = self.instances.get_mut(&row.saga).expect("the caller found it");
        let owner = instance.owner.filter(|_| !row.releases);
        // The table's constraints.
        let is_parked = row.status == Status::Parked;
        if is_parked && (owner.is_some() || row.due.is_some()) {
            return Fate::Refused("rest_is_free".into());
        }
        if !is_parked && owner.is_none() && row.due.is_none() {
            return Fate::Refused("live_is_seen".into());
        }
        if !row.json.is_empty() {
            instance.events.push(Part { seq: row.after.0 + 1, json: row.json.clone() });
        }
        instance.seq = row.end;
        instance.status = row.status;
        instance.owner = owner;
        instance.due = row.due;
        instance.deadline = row.deadline;
        instance.last_error.clone_from(&row.last_error);
        instance.claims = 0;
        instance.updated = now;
        for (id, seq) in &row.signals {
            if let Some(signal) = self.signals.get_mut(id) {
                signal.taken.get_or_insert(*seq);
            }
        }
        Fate::Written
    }

    fn end(&mut self, row: &Row) -> Fate {
        let history = row.history.clone().expect("the caller looked");
        let known = self.journal_of(row.saga).expect("the caller found it");
        match (known, events(&history)) {
            (Ok(known), Ok(all)) => {
                let length = i64::try_from(all.len()).expect("a journal is short");
                if !all.starts_with(&known) || length != row.end.0 {
                    self.broken.push(format!("{} ends with another history than it had", row.saga));
                }
            }
            (known, all) => self.broken.push(format!("{}: {known:?} {all:?}", row.saga)),
        }
        let finished = Finished { status: row.status, seq: row.end, epoch: row.epoch, history };
        self.instances.remove(&row.saga);
        self.finished.insert(row.saga, finished);
        self.signals.retain(|_, signal| signal.saga != row.saga);
        Fate::Written
    }

    pub(crate) fn positions(&self, sagas: &[SagaId]) -> BTreeMap<SagaId, Position> {
        sagas.iter().filter_map(|saga| Some((*saga, self.position(*saga)?))).collect()
    }

    pub(crate) fn position(&self, saga: SagaId) -> Option<Position> {
        let live = self.instances.get(&saga).map(|instance| Position {
            owner: instance.owner,
            epoch: instance.epoch,
            seq: instance.seq,
            status: instance.status,
            due: instance.due,
            deadline: instance.deadline,
        });
        live.or_else(|| {
            let row = self.finished.get(&saga)?;
            Some(Position {
                owner: None,
                epoch: row.epoch,
                seq: row.seq,
                status: row.status,
                due: None,
                deadline: None,
            })
        })
    }

    /// All events of a saga. `Some(Err)`: its journal cannot be read.
    pub(crate) fn journal_of(&self, saga: SagaId) -> Option<Result<Vec<Event>, String>> {
        let text = |error: serde_json::Error| error.to_string();
        if let Some(row) = self.finished.get(&saga) {
            return Some(events(&row.history).map_err(text));
        }
        Some(self.instances.get(&saga)?.journal().map(|(events, _)| events))
    }

    /// Every saga there is.
    pub(crate) fn sagas(&self) -> Vec<SagaId> {
        let mut sagas: Vec<_> = self.instances.keys().chain(self.finished.keys()).copied().collect();
        sagas.sort_unstable();
        sagas
    }

    /// Why a saga that has not ended failed last, or why it is parked.
    pub(crate) fn last_error(&self, saga: SagaId) -> Option<String> {
        self.instances.get(&saga)?.last_error.clone()
    }
}

impl Instance {
    fn tag(&self) -> String {
        format!("{}@{}", self.kind, self.version)
    }

    /// Its events, and the same as JSON.
    fn journal(&self) -> Result<(Vec<Event>, String), String> {
        let mut json = self.started.clone();
        let mut expected = 2_i64;
        for part in &self.events {
            if part.seq != expected {
                return Err(format!("event {expected} is missing"));
            }
            let count = events(&part.json).map_err(|error| error.to_string())?.len();
            expected += i64::try_from(count).expect("a part is short");
            json.push(',');
            json.push_str(&part.json);
        }
        let all = events(&json).map_err(|error| error.to_string())?;
        Ok((all, json))
    }
}
