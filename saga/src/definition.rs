//! What a kind of saga consists of.

use std::{collections::HashSet, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    context::{Context, Unreadable},
    decide::{Answer, AtDeadline, DeadlinePolicy, DeadlineView, Shape, StepShape},
    event::Progress,
    id::{Epoch, SagaId},
    retry::Retry,
    side_rows::{ErasedSideRows, SideRows},
    state::State,
};

/// What a step answers. Steps run at least once: the same attempt may be repeated under the same ids, by another
/// process, after an answer was lost.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<T> {
    /// It had its effect.
    Done(T),
    /// Not decided yet: ask again. Counts as no failure.
    Pending {
        /// After this long, or at the deadline, or when a signal arrives.
        ask_again_after: Duration,
        /// Whether something is under way; a deadline policy may care.
        progress: Progress,
    },
    /// It failed, or nobody knows: try again under the same ids.
    Retry {
        /// For the operator.
        reason: String,
    },
    /// The participant refused: it had no effect and never will. Unknown is never this.
    Abort {
        /// The participant's stable reason.
        reason: String,
        /// What else it said.
        detail: Value,
    },
    /// A bug or a broken promise that no retry and no undo mends: an operator must look.
    Park {
        /// For the operator.
        reason: String,
    },
    /// From the pivot only: run the earlier step `at` anew under new ids, at most `max` times in all, then come back.
    Restart {
        /// That step's name.
        at: &'static str,
        /// How often at most; past it, this is a refusal.
        max: u32,
        /// For the operator, and the refusal's reason.
        reason: String,
    },
}

/// What an undo answers. An undo of something that never happened succeeds, and makes sure it never will.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Nothing of any round of the step is left.
    Done,
    /// Failed, or nobody knows: try again.
    Retry {
        /// For the operator.
        reason: String,
    },
}

impl<T> From<Unreadable> for Outcome<T> {
    /// No retry makes it readable.
    fn from(unreadable: Unreadable) -> Self {
        Self::Park { reason: unreadable.to_string() }
    }
}

impl From<Unreadable> for Undo {
    /// Its attempts run out, which parks the saga when everything else is undone.
    fn from(unreadable: Unreadable) -> Self {
        Self::Retry { reason: unreadable.to_string() }
    }
}

/// One step of a saga and its undo.
pub trait Step: Send + Sync + 'static {
    /// What the saga was started with.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What later steps may read.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// Unique in the definition; stands in the journal and in traces.
    const NAME: &'static str;
    /// Who is called: steps of all kinds that name the same participant share its circuit breaker, its budget of
    /// retries, and its pauses.
    const PARTICIPANT: &'static str = Self::NAME;

    /// One attempt.
    fn run(&self, context: &Context<'_, Self::Input>) -> impl Future<Output = Outcome<Self::Output>> + Send;

    /// One attempt to undo every round of it. Called whenever the step may have run.
    fn undo(&self, context: &Context<'_, Self::Input>) -> impl Future<Output = Undo> + Send;
}

/// A step without its types, as the engine runs it.
pub(crate) trait ErasedStep: Send + Sync {
    fn run<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Answer>;
    fn undo<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Undo>;
}

/// A [`Context`] before its input is read.
pub(crate) struct Attempt<'a> {
    pub(crate) saga: SagaId,
    pub(crate) epoch: Epoch,
    pub(crate) round: u32,
    pub(crate) number: u32,
    pub(crate) last_ask: bool,
    pub(crate) now: DateTime<Utc>,
    pub(crate) state: &'a State,
}

impl<'a> Attempt<'a> {
    fn context<I>(&self, input: &'a I) -> Context<'a, I> {
        Context {
            saga: self.saga,
            epoch: self.epoch,
            input,
            round: self.round,
            attempt: self.number,
            last_ask: self.last_ask,
            now: self.now,
            deadline: self.state.deadline,
            state: self.state,
        }
    }

    fn input<I: DeserializeOwned>(&self) -> Result<I, String> {
        I::deserialize(&*self.state.input)
            .map_err(|error| format!("the saga's input cannot be read: {error}"))
    }
}

impl<S: Step> ErasedStep for S {
    fn run<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let input = match attempt.input::<S::Input>() {
                Ok(input) => input,
                // Nothing that is tried again changes what was recorded.
                Err(reason) => return Answer::Park(reason),
            };
            match Step::run(self, &attempt.context(&input)).await {
                Outcome::Done(output) => match serde_json::to_value(output) {
                    Ok(output) => Answer::Done(output),
                    Err(error) => Answer::Park(format!("the step's output cannot be written: {error}")),
                },
                Outcome::Pending { ask_again_after, progress } => {
                    Answer::Pending { ask_again_after, progress }
                }
                Outcome::Retry { reason } => Answer::Retry(reason),
                Outcome::Abort { reason, detail } => Answer::Abort { reason, detail },
                Outcome::Park { reason } => Answer::Park(reason),
                Outcome::Restart { at, max, reason } => Answer::Restart { at, max, reason },
            }
        })
    }

    fn undo<'a>(&'a self, attempt: &'a Attempt<'a>) -> BoxFuture<'a, Undo> {
        Box::pin(async move {
            match attempt.input::<S::Input>() {
                Ok(input) => Step::undo(self, &attempt.context(&input)).await,
                Err(reason) => Undo::Retry { reason },
            }
        })
    }
}

/// A kind of saga in one version. In-flight sagas finish on the version they began with.
#[derive(Clone)]
pub struct Definition {
    pub(crate) kind: &'static str,
    pub(crate) version: i32,
    pub(crate) shape: Arc<Shape>,
    pub(crate) steps: Arc<[Arc<dyn ErasedStep>]>,
    pub(crate) side_rows: Option<Arc<dyn ErasedSideRows>>,
    /// Names of the steps' spans: do, then undo.
    pub(crate) span_names: Arc<[(String, String)]>,
}

impl Definition {
    /// `kind@version`, as workers register what they know.
    pub(crate) fn tag(&self) -> String {
        format!("{}@{}", self.kind, self.version)
    }

    /// Begins a definition of sagas that are started with an `I`.
    #[expect(clippy::new_ret_no_self, reason = "a definition is built step by step")]
    pub fn new<I>(kind: &'static str, version: i32) -> Builder<I> {
        Builder {
            kind,
            version,
            shapes: Vec::new(),
            steps: Vec::new(),
            pivot: None,
            at_deadline: DeadlinePolicy(Arc::new(|_| AtDeadline::Turn)),
            side_rows: None,
            input: PhantomData,
        }
    }
}

/// A [`Definition`] in the making.
pub struct Builder<I> {
    kind: &'static str,
    version: i32,
    shapes: Vec<StepShape>,
    steps: Vec<Arc<dyn ErasedStep>>,
    pivot: Option<usize>,
    at_deadline: DeadlinePolicy,
    side_rows: Option<Arc<dyn ErasedSideRows>>,
    input: PhantomData<fn(I)>,
}

impl<I: 'static> Builder<I> {
    /// A step. Before the pivot it can be undone; after it, it is tried until it succeeds, or parked.
    #[must_use]
    pub fn step<S: Step<Input = I>>(self, step: S) -> Self {
        let retry = if self.pivot.is_some() { Retry::MUST } else { Retry::STEP };
        let undoable = self.pivot.is_none();
        self.push(step, retry, undoable)
    }

    /// The step after which the saga only goes forward. It has no undo. One per definition.
    #[must_use]
    pub fn pivot<S: Step<Input = I>>(mut self, step: S) -> Self {
        assert!(self.pivot.is_none(), "a definition has one pivot");
        self.pivot = Some(self.steps.len());
        self.push(step, Retry::MUST, false)
    }

    /// Other retry limits for the step that was added last.
    #[must_use]
    pub fn retry(mut self, retry: Retry, undo_retry: Retry) -> Self {
        let step = self.shapes.last_mut().expect("a step was added before its retry limits");
        (step.retry, step.undo_retry) = (retry, undo_retry);
        self
    }

    /// The step that was added last does not begin before everything the saga recorded is on disk: for one whose effect
    /// others see and whose undo costs them something.
    #[must_use]
    pub fn durable_before(mut self) -> Self {
        self.shapes.last_mut().expect("a step was added before it is made to wait").durable_before = true;
        self
    }

    /// What happens when the deadline has passed and the step at work answered once more. Without it: undo.
    #[must_use]
    pub fn deadline(mut self, policy: impl Fn(DeadlineView) -> AtDeadline + Send + Sync + 'static) -> Self {
        self.at_deadline = DeadlinePolicy(Arc::new(policy));
        self
    }

    /// Rows of the caller that change in the transaction that records a change of the saga.
    #[must_use]
    pub fn side_rows(mut self, side_rows: impl SideRows) -> Self {
        self.side_rows = Some(Arc::new(side_rows));
        self
    }

    /// The definition.
    ///
    /// # Panics
    /// Without steps, or when two steps have one name.
    pub fn build(self) -> Definition {
        assert!(!self.steps.is_empty(), "a definition has at least one step");
        let names: HashSet<_> = self.shapes.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), self.shapes.len(), "step names are unique in a definition");
        let span_names = self
            .shapes
            .iter()
            .map(|step| (format!("saga {}", step.name), format!("saga undo {}", step.name)))
            .collect();
        let shape = Shape { steps: self.shapes, pivot: self.pivot, at_deadline: self.at_deadline };
        Definition {
            kind: self.kind,
            version: self.version,
            shape: Arc::new(shape),
            steps: self.steps.into(),
            side_rows: self.side_rows,
            span_names,
        }
    }

    fn push<S: Step<Input = I>>(mut self, step: S, retry: Retry, undoable: bool) -> Self {
        self.shapes.push(StepShape {
            name: S::NAME,
            participant: S::PARTICIPANT,
            retry,
            undo_retry: Retry::MUST,
            undoable,
            durable_before: false,
        });
        self.steps.push(Arc::new(step));
        self
    }
}
