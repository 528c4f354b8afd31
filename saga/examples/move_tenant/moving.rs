//! The saga: a tenant's database moves to another host. Until the directory is switched all of it can be undone;
//! after that it only goes forward.

use std::time::Duration;

use saga::{AtDeadline, Context, Definition, Outcome, Progress, Step, Undo};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgPool;

use crate::{
    desk::{Answer, Desk, Name},
    moves::MoveRows,
    participants::{Copied, Copier, Directory, Fleet},
};

pub(crate) const KIND: &str = "move_tenant";

/// What a move is started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Move {
    pub(crate) tenant: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The definition, with what happens right after a freeze.
pub(crate) fn definition(pool: &PgPool, accident: fn()) -> Definition {
    let desk = |participant| Desk { pool: pool.clone(), participant };
    let fleet = Fleet(desk("fleet"));
    let copier = Copier(desk("copier"));
    let directory = Directory { desk: desk("directory"), accident };
    Definition::new::<Move>(KIND, 1)
        .step(Allocate(fleet.clone()))
        .step(Copy(copier))
        .step(Freeze(directory.clone()))
        // A frozen tenant feels it: nobody is frozen for a copy that no journal knows of.
        .durable_before()
        .pivot(Switch(directory))
        .step(Discard(fleet))
        // A copy that is under way gets half a minute more, once.
        .deadline(|view| match view.progress {
            Progress::Processing if view.extensions == 0 => AtDeadline::Extend(Duration::from_secs(30)),
            Progress::Processing | Progress::Idle => AtDeadline::Turn,
        })
        .side_rows(MoveRows)
        .build()
}

/// Takes a place on the new host.
struct Allocate(Fleet);

impl Step for Allocate {
    type Input = Move;
    type Output = ();
    const NAME: &'static str = "allocate";
    const PARTICIPANT: &'static str = "fleet";

    async fn run(&self, context: &Context<'_, Move>) -> Outcome<()> {
        outcome(self.0.allocate(&Name::of::<Self>(context), &context.input.to).await)
    }

    async fn undo(&self, context: &Context<'_, Move>) -> Undo {
        undone(self.0.give_back(&Name::of::<Self>(context).scope).await)
    }
}

/// Copies the database, and has the copy follow.
struct Copy(Copier);

impl Step for Copy {
    type Input = Move;
    type Output = ();
    const NAME: &'static str = "copy";
    const PARTICIPANT: &'static str = "copier";

    async fn run(&self, context: &Context<'_, Move>) -> Outcome<()> {
        let Move { tenant, to, .. } = context.input;
        match self.0.copy(&Name::of::<Self>(context), tenant, to).await {
            Ok(Copied::Answered(answer)) => outcome(Ok(answer)),
            Ok(Copied::NotYet) => Outcome::Pending {
                ask_again_after: Duration::from_millis(100),
                progress: Progress::Processing,
            },
            Err(error) => outcome(Err(error)),
        }
    }

    async fn undo(&self, context: &Context<'_, Move>) -> Undo {
        undone(self.0.drop_copy(&Name::of::<Self>(context).scope).await)
    }
}

/// Stops writes, so that the copy is complete.
struct Freeze(Directory);

impl Step for Freeze {
    type Input = Move;
    type Output = ();
    const NAME: &'static str = "freeze";
    const PARTICIPANT: &'static str = "directory";

    async fn run(&self, context: &Context<'_, Move>) -> Outcome<()> {
        outcome(self.0.freeze(&Name::of::<Self>(context), &context.input.tenant).await)
    }

    async fn undo(&self, context: &Context<'_, Move>) -> Undo {
        undone(self.0.thaw(&Name::of::<Self>(context).scope).await)
    }
}

/// The pivot: writes go to the new host, so the old one is out of date from now on.
struct Switch(Directory);

impl Step for Switch {
    type Input = Move;
    type Output = ();
    const NAME: &'static str = "switch";
    const PARTICIPANT: &'static str = "directory";

    async fn run(&self, context: &Context<'_, Move>) -> Outcome<()> {
        let Move { tenant, to, .. } = context.input;
        outcome(self.0.switch(&Name::of::<Self>(context), tenant, to).await)
    }

    /// Never called: there is no way back behind a pivot.
    async fn undo(&self, _: &Context<'_, Move>) -> Undo {
        Undo::Done
    }
}

/// Drops the old database.
struct Discard(Fleet);

impl Step for Discard {
    type Input = Move;
    type Output = ();
    const NAME: &'static str = "discard";
    const PARTICIPANT: &'static str = "fleet";

    async fn run(&self, context: &Context<'_, Move>) -> Outcome<()> {
        outcome(self.0.discard(&Name::of::<Self>(context), &context.input.from).await)
    }

    /// Never called, as it comes after the pivot.
    async fn undo(&self, _: &Context<'_, Move>) -> Undo {
        Undo::Done
    }
}

/// A refusal is the participant's word. An error is nobody's: it may have happened, so the same is asked again.
fn outcome(answer: Result<Answer, sqlx::Error>) -> Outcome<()> {
    match answer {
        Ok(Answer::Done) => Outcome::Done(()),
        Ok(Answer::Refused(reason)) => Outcome::Abort { reason, detail: Value::Null },
        Err(error) => Outcome::Retry { reason: error.to_string() },
    }
}

fn undone(answer: Result<(), sqlx::Error>) -> Undo {
    match answer {
        Ok(()) => Undo::Done,
        Err(error) => Undo::Retry { reason: error.to_string() },
    }
}
