//! The shop's saga with doubles of its participants: reserve, pay, sell (the pivot, which may ask for a new
//! reservation), tell.

use std::{collections::BTreeMap, time::Duration};

use saga::{
    AtDeadline, Context, Definition, Outcome, Priority, Progress, Retry, SagaId, Start, Step, Undo,
    testing::{LAPSED, Manners, Participant, Reply, Sim},
};
use serde_json::Value;

/// Everybody the saga calls.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) stock: Participant,
    pub(crate) bank: Participant,
    pub(crate) post: Participant,
}

pub(crate) const KIND: &str = "order";

impl Shop {
    pub(crate) fn open(sim: &Sim) -> Self {
        Self {
            stock: sim.participant("stock", Manners::default()),
            bank: sim.participant("bank", Manners::default()),
            post: sim.participant("post", Manners::default()),
        }
    }

    pub(crate) fn definition(&self) -> Definition {
        let undo = Retry { attempts_max: 60, ..Retry::STEP };
        Definition::new::<u32>(KIND, 1)
            .step(Reserve(self.stock.clone()))
            .retry(Retry::STEP, undo)
            .step(Pay(self.bank.clone()))
            .pivot(Sell(self.stock.clone()))
            .step(Tell(self.post.clone()))
            .deadline(|view| match (view.progress, view.extensions) {
                (Progress::Processing, 0) => AtDeadline::Extend(Duration::from_secs(2)),
                _ => AtDeadline::Turn,
            })
            .build()
    }
}

pub(crate) fn order(saga: SagaId, patience: Option<Duration>) -> Start<u32> {
    Start {
        saga,
        input: 1,
        patience,
        attributes: BTreeMap::new(),
        traceparent: None,
        priority: Priority::default(),
    }
}

struct Reserve(Participant);

impl Step for Reserve {
    type Input = u32;
    type Output = String;
    const NAME: &'static str = "reserve";
    const PARTICIPANT: &'static str = "stock";

    async fn run(&self, context: &Context<'_, u32>) -> Outcome<String> {
        let id = format!("{}.reserve.{}", context.saga, context.round);
        let reply = self.0.ask(&id).await;
        outcome(&reply, id)
    }

    async fn undo(&self, context: &Context<'_, u32>) -> Undo {
        undone(&self.0.revoke(&format!("{}.reserve", context.saga)).await)
    }
}

struct Pay(Participant);

impl Step for Pay {
    type Input = u32;
    type Output = ();
    const NAME: &'static str = "pay";
    const PARTICIPANT: &'static str = "bank";

    async fn run(&self, context: &Context<'_, u32>) -> Outcome<()> {
        outcome(&self.0.ask(&format!("{}.pay.1", context.saga)).await, ())
    }

    async fn undo(&self, context: &Context<'_, u32>) -> Undo {
        undone(&self.0.revoke(&format!("{}.pay", context.saga)).await)
    }
}

struct Sell(Participant);

impl Step for Sell {
    type Input = u32;
    type Output = ();
    const NAME: &'static str = "sell";
    const PARTICIPANT: &'static str = "stock";

    async fn run(&self, context: &Context<'_, u32>) -> Outcome<()> {
        let reserved = match context.output_of::<Reserve>() {
            Ok(Some(reserved)) => reserved,
            other => return Outcome::Park { reason: format!("nothing is reserved: {other:?}") },
        };
        match self.0.settle(&reserved).await {
            Reply::Refused(LAPSED) => {
                Outcome::Restart { at: Reserve::NAME, max: 1, reason: LAPSED.to_owned() }
            }
            other => outcome(&other, ()),
        }
    }

    async fn undo(&self, _: &Context<'_, u32>) -> Undo {
        Undo::Done
    }
}

struct Tell(Participant);

impl Step for Tell {
    type Input = u32;
    type Output = ();
    const NAME: &'static str = "tell";
    const PARTICIPANT: &'static str = "post";

    async fn run(&self, context: &Context<'_, u32>) -> Outcome<()> {
        outcome(&self.0.ask(&format!("{}.tell", context.saga)).await, ())
    }

    async fn undo(&self, _: &Context<'_, u32>) -> Undo {
        Undo::Done
    }
}

fn outcome<T>(reply: &Reply, output: T) -> Outcome<T> {
    match reply {
        Reply::Done => Outcome::Done(output),
        Reply::Pending => {
            Outcome::Pending { ask_again_after: Duration::from_millis(400), progress: Progress::Processing }
        }
        Reply::Refused(reason) => Outcome::Abort { reason: (*reason).to_owned(), detail: Value::Null },
        Reply::NoAnswer => Outcome::Retry { reason: "no answer".to_owned() },
    }
}

fn undone(reply: &Reply) -> Undo {
    match reply {
        Reply::Done => Undo::Done,
        other => Undo::Retry { reason: format!("{other:?}") },
    }
}
