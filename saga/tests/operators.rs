//! What operators find, are told and may do, on a real Postgres and with workers that run.

#[path = "operators/clock.rs"]
mod clock;
#[path = "operators/finding.rs"]
mod finding;
mod lab;
#[path = "operators/pausing.rs"]
mod pausing;
#[path = "operators/verbs.rs"]
mod verbs;
#[path = "operators/versions.rs"]
mod versions;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use lab::{Lab, Worker, until};
use saga::{
    Event, Operations, Outcome, Progress, SagaId, Seq, Verb,
    operate::{Asked, Order},
    operations::{self, OperateError},
};

/// Longer than a worker needs to look again at what is paused.
const PATIENCE: Duration = Duration::from_secs(20);

fn waits(ms: u64) -> Outcome<i32> {
    Outcome::Pending { ask_again_after: Duration::from_millis(ms), progress: Progress::Idle }
}

fn failed() -> Outcome<i32> {
    Outcome::Retry { reason: "down".into() }
}

fn operations_of(lab: &Lab, worker: &Worker) -> Operations {
    Operations::new(lab.pool.clone(), worker.engine.clone())
}

fn asked(request_id: &str) -> Asked {
    Asked::new(request_id, "ann", "it has to be").expect("it is complete")
}

fn order(request_id: &str, verb: Verb) -> Order {
    Order::new(asked(request_id), verb).expect("it is complete")
}

fn resolve(step: &str) -> Verb {
    Verb::ResolveStep { step: step.to_owned(), output: 7.into(), passes_pivot: false }
}

fn resolve_undo(step: &str) -> Verb {
    Verb::ResolveUndo { step: step.to_owned() }
}

/// Waits until every worker's heart beat again, twice at least.
async fn hearts_beat(lab: &Lab) {
    let lease = async || -> DateTime<Utc> {
        let least = sqlx::query_scalar("SELECT min(lease_until) FROM saga.workers");
        least.fetch_one(&lab.pool).await.expect("it answers")
    };
    let before = lease().await;
    until("every heart beat", async || lease().await - before > TimeDelta::milliseconds(250)).await;
}

/// Gives an order and waits for what becomes of it.
async fn give(
    operations: &Operations,
    saga: SagaId,
    id: &str,
    verb: Verb,
) -> Result<operations::Outcome, OperateError> {
    operations.operate(saga, &order(id, verb), PATIENCE).await.map(|operated| operated.outcome)
}

/// Gives an order that must be carried out.
async fn done(operations: &Operations, saga: SagaId, id: &str, verb: Verb) {
    let outcome = give(operations, saga, id, verb).await.expect("it can be given");
    assert_eq!(outcome, operations::Outcome::Done, "{id}");
}

/// Gives an order that must be refused; says why.
async fn refused(operations: &Operations, saga: SagaId, id: &str, verb: Verb) -> String {
    match give(operations, saga, id, verb).await.expect("it can be given") {
        operations::Outcome::Refused(why) => why,
        other => panic!("{id}: {other:?}"),
    }
}

/// What operators ordered of a saga, by its journal: request ids, with `!` when refused.
async fn ordered(operations: &Operations, saga: SagaId) -> Vec<String> {
    let told = operations.get(saga, Seq(0)).await.expect("it answers").expect("it is there");
    let event = |json: &str| serde_json::from_str(json).ok();
    let ordered = told.entries.iter().filter_map(|entry| match event(&entry.json)? {
        Event::Operated { request_id, refused: None, .. } => Some(request_id),
        Event::Operated { request_id, refused: Some(_), .. } => Some(format!("{request_id}!")),
        _ => None,
    });
    ordered.collect()
}
