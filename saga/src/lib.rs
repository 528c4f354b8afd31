//! A durable saga engine on Postgres: several steps in several services, all done or all undone, whatever dies in
//! between.
//!
//! # The idea
//!
//! To open a bank account, one asks for an account number, has the customer's identity checked, and opens the
//! account. Three services, no transaction around them. Any of them, and the process that asks, may die at any
//! moment, after it did its part and before anybody heard so.
//!
//! A *saga* is such a list of [`Step`]s, each with an undo. What a step answered is an [`Event`] in the saga's
//! *journal* in Postgres. Where a saga stands is a fold over its events ([`State`]), and what it does next is a
//! pure function of that ([`decide`](decide::decide)). So any process that reads the journal can go on, forwards or
//! backwards, and the code that recovers is the code that runs.
//!
//! What the engine adds: it owns sagas by lease and fences those that lost theirs; it retries, waits, wakes, sheds
//! load; and one commit carries the records of all sagas that run in a process.
//!
//! # A first saga
//!
//! This runs as it stands: [a simulation](#testing-your-own) with two workers, one of which dies, participants that
//! lose, double and delay what they are asked, and virtual time.
//!
//! ```
//! use std::{collections::BTreeMap, time::Duration};
//! use saga::{Context, Definition, Outcome, Priority, Progress, Start, Status, Step, Undo};
//! use saga::testing::{Effect, Faults, Manners, Participant, Reply, Simulation};
//! use serde::{Deserialize, Serialize};
//!
//! /// What the saga is started with, and every step may read.
//! #[derive(Clone, Serialize, Deserialize)]
//! struct Application {
//!     customer: String,
//! }
//!
//! /// An account number, held for us until it is used or given back.
//! struct Number(Participant);
//!
//! impl Step for Number {
//!     type Input = Application;
//!     type Output = String;
//!     const NAME: &'static str = "number";
//!
//!     async fn run(&self, context: &Context<'_, Application>) -> Outcome<String> {
//!         // Named by us, so that asking twice is asking once.
//!         let id = format!("{}.number.{}", context.saga, context.round);
//!         match self.0.ask(&id).await {
//!             Reply::Done => Outcome::Done(id),
//!             reply => not_done(reply),
//!         }
//!     }
//!
//!     /// Covers every round of the step, and succeeds when there is nothing to undo.
//!     async fn undo(&self, context: &Context<'_, Application>) -> Undo {
//!         undone(self.0.revoke(&format!("{}.number", context.saga)).await)
//!     }
//! }
//!
//! /// Somebody looks at the customer's papers, which may take a while.
//! struct Identity(Participant);
//!
//! impl Step for Identity {
//!     type Input = Application;
//!     type Output = ();
//!     const NAME: &'static str = "identity";
//!
//!     async fn run(&self, context: &Context<'_, Application>) -> Outcome<()> {
//!         match self.0.ask(&format!("{}.identity.{}", context.saga, context.round)).await {
//!             Reply::Done => Outcome::Done(()),
//!             reply => not_done(reply),
//!         }
//!     }
//!
//!     async fn undo(&self, context: &Context<'_, Application>) -> Undo {
//!         undone(self.0.revoke(&format!("{}.identity", context.saga)).await)
//!     }
//! }
//!
//! /// The pivot: an open account is not taken back.
//! struct Open(Participant);
//!
//! impl Step for Open {
//!     type Input = Application;
//!     type Output = ();
//!     const NAME: &'static str = "open";
//!
//!     async fn run(&self, context: &Context<'_, Application>) -> Outcome<()> {
//!         let number = match context.output_of::<Number>() {
//!             Ok(Some(number)) => number,
//!             Ok(None) => return Outcome::Park { reason: "there is no number to open".into() },
//!             Err(unreadable) => return unreadable.into(),
//!         };
//!         match self.0.settle(&number).await {
//!             Reply::Done => Outcome::Done(()),
//!             reply => not_done(reply),
//!         }
//!     }
//!
//!     /// Never called: there is no way back behind a pivot.
//!     async fn undo(&self, _: &Context<'_, Application>) -> Undo {
//!         Undo::Done
//!     }
//! }
//!
//! fn not_done<T>(reply: Reply) -> Outcome<T> {
//!     match reply {
//!         // Their own word that it did not happen and never will.
//!         Reply::Refused(reason) => Outcome::Abort { reason: reason.into(), detail: ().into() },
//!         Reply::Pending => Outcome::Pending {
//!             ask_again_after: Duration::from_secs(1),
//!             progress: Progress::Processing,
//!         },
//!         // Nobody knows: never a refusal.
//!         reply => Outcome::Retry { reason: format!("{reply:?}") },
//!     }
//! }
//!
//! fn undone(reply: Reply) -> Undo {
//!     match reply {
//!         Reply::Done => Undo::Done,
//!         reply => Undo::Retry { reason: format!("{reply:?}") },
//!     }
//! }
//!
//! for seed in 0..20 {
//!     Simulation::new(seed).run(async |sim| {
//!         let bank = sim.participant("bank", Manners::default());
//!         let office = sim.participant("office", Manners {
//!             refuses: 0.3,
//!             processes: 0.5,
//!             processing_most: Duration::from_secs(20),
//!             ..Manners::default()
//!         });
//!         let account = Definition::new::<Application>("account", 1)
//!             .step(Number(bank.clone()))
//!             .step(Identity(office.clone()))
//!             .pivot(Open(bank.clone()))
//!             .build();
//!         sim.worker("a", [account.clone()]).await;
//!         sim.worker("b", [account]).await;
//!         sim.faults(Faults::MANY); // From here on, about one call in five goes wrong.
//!
//!         let start = Start {
//!             saga: sim.saga_id(),
//!             input: Application { customer: "Ada".into() },
//!             patience: Some(Duration::from_secs(60)),
//!             attributes: BTreeMap::from([("customer".into(), "Ada".into())]),
//!             traceparent: None,
//!             priority: Priority::Ordinary,
//!         };
//!         sim.start("a", "account", &start).await.expect("it lives").expect("it is on disk");
//!         sim.sleep(Duration::from_millis(50)).await;
//!         sim.crash("a"); // As by kill -9: b takes over when the lease has run out.
//!
//!         let end = sim.rest("b", start.saga, Duration::from_secs(600)).await.expect("it ends");
//!         assert!(sim.drained(Duration::from_secs(60)).await, "all that was late has arrived");
//!         let of_saga = start.saga.to_string();
//!         match end.status {
//!             Status::Completed => assert_eq!(bank.count(&of_saga, Effect::Settled), 1),
//!             Status::Undone => assert_eq!(bank.count(&of_saga, Effect::Settled), 0),
//!             status => panic!("{status:?}: {:?}", sim.history(start.saga)),
//!         }
//!         assert_eq!(bank.count(&of_saga, Effect::Held), 0, "nothing is left behind");
//!     });
//! }
//! ```
//!
//! The same definition on Postgres:
//!
//! ```no_run
//! # use std::{collections::BTreeMap, time::Duration};
//! # use saga::{Definition, Engine, EngineConfig, Priority, SagaId, Start, Status};
//! # async fn open(pool: sqlx::PgPool, account: Definition) -> Result<(), Box<dyn std::error::Error>> {
//! saga::migrate(&pool).await?;
//! // A restarted process keeps its worker's name, and takes over its own work at once.
//! let engine = Engine::open(pool, EngineConfig::named("bank-1"), [account]).await?;
//! let start = Start {
//!     saga: SagaId::generate(),
//!     input: serde_json::json!({ "customer": "Ada" }),
//!     patience: Some(Duration::from_secs(3_600)),
//!     attributes: BTreeMap::new(),
//!     traceparent: None,
//!     priority: Priority::Ordinary,
//! };
//! // On disk when this returns. From here on it will end, whatever dies.
//! engine.start("account", &start).await?;
//! let seen = engine
//!     .wait_for(start.saga, Duration::from_secs(5), |standing| standing.status.is_final())
//!     .await?;
//! if seen.is_some_and(|standing| standing.status == Status::Completed) {
//!     println!("the account is open");
//! }
//! engine.stop(Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A longer one, with participants in Postgres, is in `examples/move_tenant`: a tenant's database moves to another
//! host, one move is refused half-way, another is finished by a second process after the first one died in the
//! middle.
//!
//! # What a step promises, and what it may rely on
//!
//! - Every attempt, of a step and of its undo, runs **at least once**: an answer may be lost, by anyone, and the
//!   attempt is repeated under the same ids, by this process or another one, perhaps while the first is still under
//!   way.
//! - So **the caller names every effect**: `<saga>.<step>.<round>`, from [`Context::saga`] and [`Context::round`],
//!   and never from the attempt, the epoch or a clock. The participant records its answer under that name, in the
//!   transaction that has the effect, and answers the same when it is asked again.
//! - An undo covers **all rounds** of its step, whether they answered, were asked, or were not. An undo of
//!   something that never happened succeeds and leaves a **tombstone**: the request that arrives later is refused.
//!   Recorded answers and tombstones must be kept for as long as a request may still arrive.
//! - **Unknown is never failure.** A timeout, a broken connection, an internal error: [`Outcome::Retry`]. Only the
//!   participant's own word that nothing happened and never will is [`Outcome::Abort`].
//! - A step has no say in what runs when, and keeps nothing in memory that matters: it is given the input, what
//!   earlier steps gave ([`Context::output_of`]), the signals ([`Context::signals`]) and the database's time
//!   ([`Context::now`]).
//!
//! # What a step may answer
//!
//! | [`Outcome`] | it means | what follows before the pivot | at the pivot | after it |
//! |---|---|---|---|---|
//! | `Done(output)` | it had its effect | the next step | the next step | the next step, or the end |
//! | `Pending { .. }` | not decided yet; no failure | asked again then, at the deadline, or when a signal arrives | asked again then, or when a signal arrives | likewise |
//! | `Retry { .. }` | failed, or nobody knows | again with growing pauses; out of attempts: undo | again; out of attempts: parked | likewise |
//! | `Abort { .. }` | refused: no effect, ever | undo | undo | parked |
//! | `Restart { .. }` | what was held has lapsed | parked | an earlier step runs anew as its next round, under new ids, at most `max` times; then it is a refusal | parked |
//! | `Park { .. }` | a bug, or a broken promise | parked | parked | parked |
//!
//! An undo answers [`Undo::Done`] or [`Undo::Retry`]. Undos of all steps run side by side, so a stuck one holds up
//! no other; out of attempts it parks the saga when nothing else is left to undo. *Parked* means that the saga
//! waits for [an operator](#operators), with a reason, and holds neither a worker nor memory.
//!
//! There is one loop of retries, this one: a client beneath a step that retries too multiplies attempts. How often
//! and how long is [`Retry`], per step ([`Builder::retry`]). Beside it stand a circuit breaker and a budget of
//! retries for each [participant](Step::PARTICIPANT), shared by all sagas of a process ([`breaker`]); what they
//! make wait is no attempt.
//!
//! # The pivot
//!
//! The step after which nothing can be taken back ([`Builder::pivot`]). Steps before it need an undo, those after
//! it are tried until they succeed or are parked. Before each of its attempts [`Event::PivotBegun`] is on disk, and
//! from the first one on no cancel and no deadline turns the saga: only the pivot's own answer does. A definition
//! without a pivot can be undone until its last step is done.
//!
//! # Deadlines
//!
//! [`Start::patience`] is the time for the steps before the pivot, from milliseconds to centuries. When it is over
//! and nothing is under way, the saga turns. A step that waits or failed is asked once more
//! ([`Context::last_ask`]), and then [`Builder::deadline`] decides: [`AtDeadline::Proceed`],
//! [`Extend`](AtDeadline::Extend) or, without a policy, [`Turn`](AtDeadline::Turn). Undo has no deadline.
//!
//! A saga that waits longer than [`hold_max`](EngineConfig::hold_max) is a row with a due time and nothing else: no
//! task, no memory, no lease. Each worker keeps what is due within the next seconds in a timer of its own, so what
//! waits costs a row each, and what is due fires precisely. The only clock is the database's; between readings it
//! is carried on by the monotonic clock, so a local clock that is set changes nothing. Should the database's own
//! clock jump, nothing that is due is released until [`Engine::accept_time`] or an operator says that the new time
//! is right.
//!
//! # Signals
//!
//! Only its owner writes a saga's journal; everybody else sends it signals: [`Engine::signal`], or [`Engine::send`]
//! in a transaction of one's own. A signal is a durable row, stored once per key, taken in in their order; it
//! becomes an [`Event::Signalled`], which steps read with [`Context::signals`], and it wakes a step that is
//! pending. [`CANCEL`] is known to the engine: before the pivot it turns the saga, also in the middle of a backoff,
//! afterwards it is only recorded. So is [`EXTEND`], sent by [`Engine::extend`]: it gives a waiting saga more time.
//! `false` means that the saga has ended, or never was.
//!
//! # Running ahead
//!
//! A record is applied in memory, handed to the journal's one writer, and the saga goes on without waiting for the
//! disk. Four moments do wait until everything recorded of this saga is on disk: the start, before the first
//! request; the turn, before the first undo; `PivotBegun`, before each attempt of the pivot; and rest, that is an
//! end, a parked saga or a long wait, before anybody is told. A process that dies loses the records that were not
//! on disk and never the requests it sent, which is sound because such records hide only what can be asked again
//! under the same ids and answers the same, or can be undone. For the same reason an undo covers every undoable
//! step of the definition, also those that no record says were asked. A step whose effect others feel, so that it
//! should not be had and then undone only because a record was lost, waits too if its definition says
//! [`durable_before`](Builder::durable_before).
//!
//! # Side rows
//!
//! What a saga means to its caller is usually a row of the caller's: an order and its status, an outbox.
//! [`SideRows`] writes such rows in the transaction that records the saga, for all sagas of a flush at once:
//! [`begin`](SideRows::begin) with their starts ([`Engine::start_with`]; it may decline one whose row is there
//! already, which makes a start idempotent by the caller's own key), [`change`](SideRows::change) with everything
//! recorded later. A saga can also start in a transaction of the caller's ([`Engine::start_in`], then
//! [`Started::run`]). Either way saga and row are there both or not at all.
//!
//! # Operators
//!
//! [`Operations`] finds sagas ([`list`](Operations::list) by kind, status, attribute, age, error), shows a journal
//! ([`get`](Operations::get)), and says who has a saga, what it waits for and what would unblock it
//! ([`explain`](Operations::explain)). [`operate`](Operations::operate) gives one saga an order, a [`Verb`]: retry
//! now, compensate, resolve a step or an undo by hand, pause, resume. Each names an actor and a reason, is a signal
//! like any other, and is an event in the journal, refused or not. No verb marks a saga failed and leaves behind
//! what it holds; none undoes what a begun pivot may have done. [`pause`](Operations::pause) stops all sagas of a
//! kind or all calls of a participant, [`resume`](Operations::resume) lets them go on, and takes the database's
//! time for right after it jumped.
//!
//! # Versions and retention
//!
//! A saga finishes on the version of its definition that it began with. Whoever changes steps gives the engine both
//! versions until the old one's sagas have ended; new sagas begin on the latest. A worker claims only what it has
//! the definition of. What no live worker knows for a minute is parked with that reason, and goes on when one comes
//! that does. An event with a field that is not known is not read: the saga is parked rather than half understood.
//!
//! A saga that ends moves, with its whole journal, from the live tables to `saga.finished`, which is partitioned by
//! the day sagas ended (UTC); whole days are dropped after [`retain_days`](EngineConfig::retain_days). An id must
//! never be used twice, not even after that. Views `saga.sagas` and `saga.event_list` show living and finished ones
//! alike. Other code may read these tables; only this crate writes them.
//!
//! # Who may write
//!
//! A worker (its name, and one life of it) has one lease, renewed by one heartbeat, however many sagas it owns.
//! Each saga has an owner and an [`Epoch`], which rises with every claim, also of one's own. Every write names
//! owner, epoch and [`Seq`]. One that changes no row, or whose commit was not answered, means: read the row. If it
//! says that the saga is still ours, go on from there; else drop it and touch nothing. So a worker that lost a saga
//! cannot write, however late it wakes. What protects participants from its late *requests* are recorded answers
//! and tombstones.
//!
//! # Limits
//!
//! Every queue, loop, batch and wait has one. Those of [`EngineConfig`] can be changed:
//!
//! | limit | default | unit | what it bounds |
//! |---|---|---|---|
//! | `lease` | 5 | s | after its last heartbeat, until a worker's sagas may be taken over |
//! | `heartbeat` | 1 | s | between renewals; also how soon a pause is known to every worker |
//! | `scan_every` | 0.5 | s | until work is found that nobody hinted at |
//! | `near_window` | 2 | s | how far ahead due times are in memory |
//! | `hold_max` | 0.5 | s | a longer wait costs no memory |
//! | `audit_every` | 300 | s | until a lost timer is mended and counted, at most |
//! | `retain_days` | 30 | days | finished sagas are kept |
//! | `claims_max` | 10 | claims | without durable progress, then parked: it may be what kills the process |
//! | `admission.in_flight_max` | 4,096 | sagas | driven by a process at once |
//! | `admission.waiting_max` | 8,192 | callers | waiting to start, per [`Priority`] |
//! | `admission.recovered_max` | 512 | sagas | going on at once while no new ones start |
//! | `admission.recovered_beside_max` | 64 | sagas | going on at once beside new ones |
//! | `admission.weights` | 8 : 4 : 2 | turns | VIP, ordinary, going on; at most 1,024 each |
//! | `admission.starts` | none | per s | new sagas, and how many at once |
//! | `breaker.failed_percent` | 50 | % | of at least 20 calls within 10 s, until nobody calls |
//! | `breaker.failed_in_row_max` | 10 | calls | failed in a row, likewise |
//! | `breaker.pause_first`, `pause_max` | 0.5 to 5 | s | nobody calls |
//! | `breaker.retries_per_100_first` | 20 | retries | that did not help, per 100 first attempts, beside 10 per s; 100 kept |
//!
//! Per step ([`Retry`]):
//!
//! | limit | before the pivot | from it on, and undo | unit |
//! |---|---|---|---|
//! | `attempts_max` | 8 | 60 | failures in a row |
//! | `first`, `cap` | 0.05 to 5 | 0.05 to 5 | s between attempts, doubling, half of it jitter |
//! | `attempt_timeout` | 2 | 2 | s for one attempt; past it nobody knows |
//!
//! Fixed:
//!
//! | limit | value | unit |
//! |---|---|---|
//! | a start waits for admission | 2 | s, then [`StartError::Overloaded`]; in a caller's transaction not at all |
//! | sagas of one flush | 512 | |
//! | what nobody waits for rides along | 25 | ms |
//! | a flush that failed is tried again after | 20 to 500 | ms |
//! | refusals of one append by the database | 8 | one more, and its saga is parked |
//! | a flush waits for rows that somebody holds | 50 | ms, once |
//! | signals of one saga | 1,000 | in its life; as many orders of operators besides |
//! | sagas claimed in one statement | 256 | two statements at a time |
//! | sagas that wait to be claimed | 65,536 | more are found again |
//! | due times in memory | 16,384 | more are found again |
//! | one wait | 1,000 | years |
//! | the database's clock against the monotonic one | 1 | s between heartbeats, then it is in doubt |
//! | a driven saga that meets a pause looks again after | 10 | s |
//! | a version that nobody knows | 1 | minute, then its sagas are parked |
//! | connections beside the caller's pool | 8 | writer, heartbeat, listener, second look, four readers |
//! | an order: request id, actor, reason | 128, 200, 2,000 | characters; 64 KiB in all |
//! | events shown at once | 1,000 | |
//! | a statement for operators | 5 | s, then it is given up |
//!
//! # Testing your own
//!
//! With feature `testing`, [`Simulation`] runs the engine as it is, with as many workers as wanted, over a journal
//! in memory, in virtual time and from one seed: the same seed is the same run, to the last event. Workers crash,
//! freeze past their lease and go on; calls to the journal fail, go unanswered or land late; requests to a
//! participant are lost, doubled, delayed and reordered. Write steps over a trait or an enum of yours that a real
//! client and the simulation's `Participant` both serve, run some hundred seeds as above, and assert what must hold
//! of participants whichever way the saga ended. `Sim::trap` hits one exact place: a table of every step before its
//! effect, after it and after its record is a loop. Side rows are SQL and are tested on Postgres, as are starts in
//! a caller's transaction.
//!
//! # Absent on purpose
//!
//! Knowledge of what the steps do, of gRPC, and of the environment; branches and loops in a saga; a clock other
//! than the database's. It prints nothing: it tells `tracing`, and each attempt is a span in the trace of the call
//! that began the saga.
//!
#![cfg_attr(feature = "testing", doc = "[`Simulation`]: testing::Simulation")]
#![cfg_attr(not(feature = "testing"), doc = "[`Simulation`]: #testing-your-own")]

pub mod admission;
pub mod breaker;
mod claim;
mod clock;
mod context;
pub mod decide;
mod definition;
mod dice;
mod drive;
mod engine;
mod event;
mod id;
mod journal;
pub mod operate;
pub mod operations;
mod retry;
mod side_rows;
mod signals;
mod spawn;
pub mod state;
mod tail;
#[cfg(feature = "testing")]
pub mod testing;
mod timer;
mod tokens;
mod trace;
mod watch;
mod writer;

pub use self::{
    admission::Priority,
    context::{Context, Unreadable},
    decide::{AtDeadline, DeadlineView},
    definition::{Builder, Definition, Outcome, Step, Undo},
    engine::{
        Begun, CANCEL, ConfigError, EXTEND, Engine, EngineConfig, Extension, OpenError, Schedule, Start,
        StartError, Started, Stopped,
    },
    event::{Cause, Event, Progress, Verb},
    id::{Epoch, SagaId, Seq},
    journal::{JournalError, Standing, Status, postgres::migrate},
    operations::Operations,
    retry::Retry,
    side_rows::{Beginning, Change, SideRows},
    state::State,
    trace::traceparent_of,
};
