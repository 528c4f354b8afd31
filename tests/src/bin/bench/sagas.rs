//! The sagas that are measured: their participants are in this process and do nothing, so what is measured is the
//! engine.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use saga::{Context, Definition, Engine, Outcome, SagaId, Start, Status, Step, Undo};
use serde::{Deserialize, Serialize};

use crate::load::Durations;

/// Three steps: two that can be undone and the pivot.
pub(crate) const THREE: &str = "three";
/// One step that waits until it is due, and the pivot.
pub(crate) const WAITING: &str = "waiting";
/// How long a caller waits for the end of a saga.
const END_WITHIN: Duration = Duration::from_secs(60);

/// Two undoable steps and a pivot that are done at once.
pub(crate) fn three() -> Definition {
    Definition::new::<()>(THREE, 1).step(First).step(Second).pivot(Pivot).build()
}

/// Runs one saga of three steps from its start to its durable end.
pub(crate) async fn once(engine: &Engine) -> Result<()> {
    let saga = SagaId::generate();
    engine.start(THREE, &start_of(saga)).await?;
    let standing = engine.wait_for(saga, END_WITHIN, |standing| standing.status.is_final()).await?;
    let status = standing.context("a saga vanished")?.status;
    ensure!(status == Status::Completed, "a saga ended as {status:?}");
    Ok(())
}

/// The start of a saga without input, names or trace.
pub(crate) fn start_of(saga: SagaId) -> Start<()> {
    Start {
        saga,
        input: (),
        patience: None,
        attributes: BTreeMap::new(),
        traceparent: None,
        priority: saga::Priority::default(),
    }
}

/// An undoable step that is done at once.
pub(crate) struct First;
struct Second;

impl Step for First {
    type Input = ();
    type Output = ();
    const NAME: &'static str = "first";

    async fn run(&self, _: &Context<'_, ()>) -> Outcome<()> {
        Outcome::Done(())
    }

    async fn undo(&self, _: &Context<'_, ()>) -> Undo {
        Undo::Done
    }
}

impl Step for Second {
    type Input = ();
    type Output = ();
    const NAME: &'static str = "second";

    async fn run(&self, _: &Context<'_, ()>) -> Outcome<()> {
        Outcome::Done(())
    }

    async fn undo(&self, _: &Context<'_, ()>) -> Undo {
        Undo::Done
    }
}

/// The pivot of sagas without input.
pub(crate) struct Pivot;

impl Step for Pivot {
    type Input = ();
    type Output = ();
    const NAME: &'static str = "pivot";

    async fn run(&self, _: &Context<'_, ()>) -> Outcome<()> {
        Outcome::Done(())
    }

    async fn undo(&self, _: &Context<'_, ()>) -> Undo {
        Undo::Done
    }
}

/// What a waiting saga was started with.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Waited {
    /// When it is due, in microseconds since 1970.
    pub(crate) due_us: i64,
    /// Which group of waiting sagas it belongs to.
    pub(crate) group: usize,
    /// Whether its lateness counts; it does not during the warm-up.
    pub(crate) counts: bool,
}

/// What the steps of waiting sagas saw.
#[derive(Default)]
pub(crate) struct Seen {
    engine: OnceLock<Engine>,
    groups: [Group; GROUPS],
}

/// Groups of waiting sagas that are told apart.
pub(crate) const GROUPS: usize = 6;

#[derive(Default)]
struct Group {
    entered: AtomicU64,
    pivots: AtomicU64,
    late: Mutex<Durations>,
}

impl Seen {
    /// Whose clock lateness is measured with.
    pub(crate) fn by(&self, engine: &Engine) {
        assert!(self.engine.set(engine.clone()).is_ok(), "there is one engine");
    }

    /// How many of a group woke.
    pub(crate) fn entered(&self, group: usize) -> u64 {
        self.groups[group].entered.load(Ordering::Relaxed)
    }

    /// How many of a group had their pivot run.
    pub(crate) fn pivots(&self, group: usize) -> u64 {
        self.groups[group].pivots.load(Ordering::Relaxed)
    }

    /// How late those of a group woke.
    pub(crate) fn late(&self, group: usize) -> Durations {
        self.groups[group].late.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn woke(&self, waited: Waited) {
        let group = &self.groups[waited.group];
        // The first may wake while the engine is still being opened; nobody measures their lateness.
        if waited.counts
            && let Some(engine) = self.engine.get()
        {
            let late = engine.now().timestamp_micros() - waited.due_us;
            let late = Duration::from_micros(u64::try_from(late).unwrap_or_default());
            group.late.lock().unwrap_or_else(PoisonError::into_inner).record(late);
        }
        group.entered.fetch_add(1, Ordering::Relaxed);
    }
}

/// A step that waits, then the pivot, then the end.
pub(crate) fn waiting(seen: &Arc<Seen>) -> Definition {
    Definition::new::<Waited>(WAITING, 1)
        .step(Wait(Arc::clone(seen)))
        .pivot(WaitedPivot(Arc::clone(seen)))
        .build()
}

struct Wait(Arc<Seen>);
struct WaitedPivot(Arc<Seen>);

impl Step for Wait {
    type Input = Waited;
    type Output = ();
    const NAME: &'static str = "wait";

    /// Its first answer stands in the journal already: this one is given when it is due.
    async fn run(&self, context: &Context<'_, Waited>) -> Outcome<()> {
        self.0.woke(*context.input);
        Outcome::Done(())
    }

    async fn undo(&self, _: &Context<'_, Waited>) -> Undo {
        Undo::Done
    }
}

impl Step for WaitedPivot {
    type Input = Waited;
    type Output = ();
    const NAME: &'static str = "pivot";

    async fn run(&self, context: &Context<'_, Waited>) -> Outcome<()> {
        self.0.groups[context.input.group].pivots.fetch_add(1, Ordering::Relaxed);
        Outcome::Done(())
    }

    async fn undo(&self, _: &Context<'_, Waited>) -> Undo {
        Undo::Done
    }
}
