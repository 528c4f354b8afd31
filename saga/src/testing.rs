//! A simulation for sagas: workers with their real engine, over a journal in memory, participants that answer badly,
//! and virtual time. Everything is drawn from one seed: the same seed gives the same run, to the last event.
//!
//! Of what a worker needs, only the journal and its life are replaced: the engine inside is the one that runs in
//! production. A worker can be [frozen](Sim::freeze) past its lease and go on, or [crash](Sim::crash);
//! calls to the journal may fail, go unanswered, or be carried out after their answer; requests to a [`Participant`]
//! may be lost, doubled, delayed and reordered, and arrive after whoever sent them has ended.
//!
//! Absent: side rows, which are SQL of the caller's, and starts in a caller's own transaction.
//!
//! # Example
//!
//! Two steps: hold a seat, then sell it for good.
//!
//! ```
//! use std::{collections::BTreeMap, time::Duration};
//! use saga::{Context, Definition, Outcome, Priority, Start, Status, Step, Undo};
//! use saga::testing::{Effect, Faults, Manners, Participant, Reply, Simulation};
//!
//! struct Hold(Participant);
//! impl Step for Hold {
//!     type Input = String;
//!     type Output = String;
//!     const NAME: &'static str = "hold";
//!     async fn run(&self, context: &Context<'_, String>) -> Outcome<String> {
//!         let id = format!("{}.hold.{}", context.saga, context.round);
//!         match self.0.ask(&id).await {
//!             Reply::Done => Outcome::Done(id),
//!             Reply::Refused(reason) => Outcome::Abort { reason: reason.into(), detail: ().into() },
//!             other => Outcome::Retry { reason: format!("{other:?}") },
//!         }
//!     }
//!     async fn undo(&self, context: &Context<'_, String>) -> Undo {
//!         match self.0.revoke(&format!("{}.hold", context.saga)).await {
//!             Reply::Done => Undo::Done,
//!             other => Undo::Retry { reason: format!("{other:?}") },
//!         }
//!     }
//! }
//!
//! struct Sell(Participant);
//! impl Step for Sell {
//!     type Input = String;
//!     type Output = ();
//!     const NAME: &'static str = "sell";
//!     async fn run(&self, context: &Context<'_, String>) -> Outcome<()> {
//!         let held = match context.output_of::<Hold>() {
//!             Ok(Some(held)) => held,
//!             other => return Outcome::Park { reason: format!("{other:?}") },
//!         };
//!         match self.0.settle(&held).await {
//!             Reply::Done => Outcome::Done(()),
//!             Reply::Refused(reason) => Outcome::Abort { reason: reason.into(), detail: ().into() },
//!             other => Outcome::Retry { reason: format!("{other:?}") },
//!         }
//!     }
//!     async fn undo(&self, _: &Context<'_, String>) -> Undo {
//!         Undo::Done
//!     }
//! }
//!
//! for seed in 0..20 {
//!     Simulation::new(seed).run(async |sim| {
//!         let seats = sim.participant("seats", Manners { refuses: 0.2, ..Manners::default() });
//!         let ticket = Definition::new::<String>("ticket", 1)
//!             .step(Hold(seats.clone()))
//!             .pivot(Sell(seats.clone()))
//!             .build();
//!         sim.worker("a", [ticket.clone()]).await;
//!         sim.worker("b", [ticket]).await;
//!         // From here on. A worker whose registration goes wrong is restarted by whoever runs it.
//!         sim.faults(Faults::MANY);
//!         let start = Start {
//!             saga: sim.saga_id(),
//!             input: "row 7".to_owned(),
//!             patience: None,
//!             attributes: BTreeMap::new(),
//!             traceparent: None,
//!             priority: Priority::default(),
//!         };
//!         sim.start("a", "ticket", &start).await.expect("it did not crash").expect("it starts");
//!         sim.sleep(Duration::from_millis(30)).await;
//!         sim.crash("a");
//!         let end = sim.rest("b", start.saga, Duration::from_secs(300)).await.expect("it rests");
//!         sim.drained(Duration::from_secs(60)).await;
//!         let sold = seats.count(&start.saga.to_string(), Effect::Settled);
//!         assert_eq!(sold, usize::from(end.status == Status::Completed));
//!         assert_eq!(seats.count(&start.saga.to_string(), Effect::Held), 0);
//!     });
//! }
//! ```

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    time::Duration,
};

use futures::FutureExt as _;

mod chronicle;
mod faults;
mod journal;
mod life;
mod look;
mod participant;
mod sim;
mod store;
mod trap;
mod world;

pub(crate) use self::life::Life;
use self::world::World;
pub use self::{
    chronicle::TraceHash,
    faults::{Faults, JournalFaults, NetworkFaults, Weakened},
    participant::{Effect, LAPSED, Manners, Participant, REFUSED, REVOKED, Reply},
    sim::{Crashed, Sim},
    trap::{Harm, Trap, When},
};

/// No run takes longer in virtual time.
const RUN_MOST: Duration = Duration::from_hours(24);
/// Observations that are told when a simulated run fails.
const TOLD_MAX: usize = 60;

/// A simulation that is about to run.
#[derive(Debug, Clone)]
pub struct Simulation {
    seed: u64,
    faults: Faults,
    weakened: Weakened,
}

impl Simulation {
    /// Of this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, faults: Faults::NONE, weakened: Weakened::default() }
    }

    /// What goes wrong from the beginning on.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Leaves rules out, to see that somebody notices.
    #[must_use]
    pub fn weakened(mut self, weakened: Weakened) -> Self {
        self.weakened = weakened;
        self
    }

    /// Runs `body` in virtual time, on one thread. When it panics, the seed and the last observations are printed.
    ///
    /// # Panics
    /// When `body` does, or takes longer than a day of virtual time.
    #[expect(clippy::print_stderr, reason = "a failed run is of no use without its seed")]
    pub fn run<T>(self, body: impl AsyncFnOnce(&Sim) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O needs nothing");
        runtime.block_on(async {
            let world = World::new(self.seed, self.faults, self.weakened);
            let sim = Sim::new(&world);
            let run = async {
                let run = tokio::time::timeout(RUN_MOST, body(&sim)).await;
                run.unwrap_or_else(|_| panic!("the run waits for something that never comes"))
            };
            match AssertUnwindSafe(run).catch_unwind().await {
                Ok(result) => result,
                Err(panic) => {
                    eprintln!("seed {} failed; the last observations:", world.seed);
                    for line in sim.last(TOLD_MAX, None) {
                        eprintln!("{line}");
                    }
                    resume_unwind(panic)
                }
            }
        })
    }
}
