//! Starts sagas: with the writer's next flush, together with all others that start then, or in the caller's own
//! transaction. Either way a saga that was acknowledged is on disk before any of its steps runs.

use std::{any::Any, collections::BTreeMap, sync::Arc, time::Duration};

use serde::Serialize;
use sqlx::PgConnection;
use tokio::sync::oneshot;

use super::{Engine, Held};
use crate::{
    admission::{Overloaded, Priority, Slot},
    definition::Definition,
    drive::Drive,
    event::Event,
    id::{Epoch, SagaId, Seq},
    journal::{JournalError, postgres},
    side_rows::{SideRows, no_row},
    state::State,
    tail::{Cut, Tail},
};

/// A saga could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Too many run or wait already; nothing was begun.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    /// No definition of this kind was given to the engine.
    #[error("no saga is of kind {0:?}")]
    UnknownKind(&'static str),
    /// The definition takes rows of another type.
    #[error("sagas of kind {0:?} begin with rows of another type")]
    WrongRow(&'static str),
    /// The engine stops.
    #[error("the engine stops")]
    Stopping,
    /// The database refused the saga or its row. Nothing was begun.
    #[error("the saga, or the row it begins with, was refused")]
    Refused,
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What a saga is started with.
#[derive(Debug, Clone)]
pub struct Start<I> {
    /// Its id, chosen by the caller and never used before.
    pub saga: SagaId,
    /// What its steps read.
    pub input: I,
    /// How long the steps before the pivot may take, from now.
    pub patience: Option<Duration>,
    /// Names for it, searchable, and attributes of its spans.
    pub attributes: BTreeMap<String, String>,
    /// W3C trace context its steps belong to.
    pub traceparent: Option<String>,
    /// Whose turn it is under load.
    pub priority: Priority,
}

/// How a start ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The saga is on disk and runs.
    Yes,
    /// The definition's side rows did not accept the row, because it is there already. No saga began.
    Declined,
}

/// A saga in its caller's transaction, which begins to run when that is known to be committed. Dropped without that, it
/// is found in the journal if the transaction was committed all the same.
#[must_use = "call `run` once the transaction is committed"]
pub struct Started {
    engine: Engine,
    work: Drive,
}

impl Started {
    /// Begins to run it. Its transaction must be committed.
    pub fn run(self) {
        self.engine.begin(self.work);
    }
}

impl Engine {
    /// Starts a saga whose definition has no side rows. It is on disk when this returns.
    ///
    /// Not answered (the caller was dropped) means unknown: it may run. Do not ask again under the same id, here or of
    /// another worker: what has ended meanwhile would run once more. Who must be able to ask again starts it with a
    /// row ([`Engine::start_with`]), which is declined when it is there.
    pub async fn start<I: Serialize + Sync>(
        &self,
        kind: &'static str,
        start: &Start<I>,
    ) -> Result<(), StartError> {
        let begun =
            self.start_row(kind, start, no_row(), |definition, _| definition.side_rows.is_none()).await?;
        // Without side rows nobody declines.
        if begun == Begun::Yes { Ok(()) } else { Err(StartError::Refused) }
    }

    /// Starts a saga together with the row that its definition's side rows write. Both are on disk when this returns.
    pub async fn start_with<S: SideRows, I: Serialize + Sync>(
        &self,
        kind: &'static str,
        start: &Start<I>,
        row: S::Row,
    ) -> Result<Begun, StartError> {
        let fits = |definition: &Definition, row: &(dyn Any + Send + Sync)| {
            definition.side_rows.as_ref().is_some_and(|side_rows| side_rows.takes(row))
        };
        self.start_row(kind, start, Arc::new(row), fits).await
    }

    async fn start_row<I: Serialize + Sync>(
        &self,
        kind: &'static str,
        start: &Start<I>,
        row: Arc<dyn Any + Send + Sync>,
        fits: impl Fn(&Definition, &(dyn Any + Send + Sync)) -> bool,
    ) -> Result<Begun, StartError> {
        let definition = self.shared.latest.get(kind).ok_or(StartError::UnknownKind(kind))?.clone();
        if !fits(&definition, row.as_ref()) {
            return Err(StartError::WrongRow(kind));
        }
        let slot = self.admit(start.priority, ADMISSION_PATIENCE).await?;
        let (first, state) = self.first(start)?;
        let tail = Arc::new(Tail::beginning(start.saga, definition, Arc::clone(&state), first, row));
        let held = Arc::new(Held::new(Arc::clone(&tail), slot));
        // Held before it is on disk, so that nobody claims it in between.
        let guard = self.hold(&held).ok_or(StartError::Refused)?;
        let (told, begun) = oneshot::channel();
        // Its own task also waits for the disk: a caller who leaves takes nothing with him.
        self.run_held(guard, Drive { begun: Some(told), ..Drive::of(held, state) });
        match begun.await.map_err(|_| StartError::Stopping)? {
            // Lost: it was committed, and somebody was quick to take it over.
            Ok(()) | Err(Cut::Lost) => Ok(Begun::Yes),
            Err(Cut::Declined) => Ok(Begun::Declined),
            Err(Cut::Parked) => Err(StartError::Refused),
        }
    }

    /// Starts a saga in the caller's transaction. Call [`Started::run`] after the commit. Side rows are the caller's. Does not
    /// wait for its turn: without a free slot it is [`StartError::Overloaded`] at once.
    pub async fn start_in<I: Serialize + Sync>(
        &self,
        connection: &mut PgConnection,
        kind: &'static str,
        start: &Start<I>,
    ) -> Result<Started, StartError> {
        let definition = self.shared.latest.get(kind).ok_or(StartError::UnknownKind(kind))?.clone();
        // The caller's transaction holds locks: whoever is not let in now comes again.
        let slot = self.admit(start.priority, Duration::ZERO).await?;
        let (first, state) = self.first(start)?;
        let owner = self.shared.journal.owner();
        let json = postgres::start_in(connection, owner, start.saga, &definition, &first, &state).await?;
        let tail = Tail::at(start.saga, Epoch(1), Seq(1), definition, Arc::clone(&state), json);
        let held = Arc::new(Held::new(Arc::new(tail), slot));
        let work = Drive::of(held, state);
        Ok(Started { engine: self.clone(), work })
    }

    async fn admit(&self, priority: Priority, within: Duration) -> Result<Slot, StartError> {
        if self.shared.stop.is_cancelled() {
            return Err(StartError::Stopping);
        }
        Ok(self.shared.admission.enter(priority, within).await?)
    }

    fn first<I: Serialize>(&self, start: &Start<I>) -> Result<(Event, Arc<State>), StartError> {
        let now = self.now();
        let first = Event::Started {
            at: now,
            input: serde_json::to_value(&start.input).map_err(JournalError::from)?,
            deadline: start
                .patience
                .and_then(|patience| now.checked_add_signed(chrono::TimeDelta::from_std(patience).ok()?)),
            traceparent: start.traceparent.clone(),
            attributes: start.attributes.clone(),
        };
        let state = State::start(&first).expect("it is Started");
        Ok((first, Arc::new(state)))
    }
}

/// How long a start waits for its turn under load before it is refused.
const ADMISSION_PATIENCE: Duration = Duration::from_secs(2);
