//! SagaService with real processes: what operators find, are told and do, and what becomes of the orders.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::clients::Sagas;
use harness::deadline::eventually;
use harness::invariants::hold;
use harness::reasons::assert_refused;
use harness::requests::{pay_later, pay_now, within};
use harness::stack::Stack;
use proto::orders::v1::operate_saga_response::Disposition;
use proto::orders::v1::order::{CancelReason, State};
use proto::orders::v1::{
    CancelOrderRequest, CompensateSagaRequest, ExplainSagaRequest, ExplainSagaResponse, GetSagaRequest,
    ListSagasRequest, Order, PauseSagasRequest, ResolveStepRequest, ResumeSagasRequest, RetrySagaRequest,
    Saga, pause_sagas_request, resolve_step_request, resume_sagas_request, saga, saga_pause,
};
use proto::reason;
use tonic::{Code, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const SOON: Duration = Duration::from_secs(15);
/// A worker looks at what is paused every ten seconds.
const AFTER_A_PAUSE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);

/// An order that waits for its payment, and the client that looks after its saga.
async fn unpaid(stack: &Stack) -> Result<(Order, Sagas)> {
    stack.receive("A", 5).await?;
    let request = pay_later("unpaid", &[("A", 2)], HOUR);
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(order.state(), State::AwaitingPayment);
    Ok((order, stack.clients.sagas.clone()))
}

async fn cancel(stack: &Stack, order: &Order) -> Result<Response<Order>, Status> {
    let request = CancelOrderRequest {
        order_id: order.order_id.clone(),
        request_id: "cancel".to_owned(),
        etag: String::new(),
    };
    stack.clients.orders.clone().cancel_order(request).await
}

fn retry(saga_id: &str, request_id: &str) -> RetrySagaRequest {
    RetrySagaRequest {
        saga_id: saga_id.to_owned(),
        request_id: request_id.to_owned(),
        actor: "ann".to_owned(),
        reason: "it was mended".to_owned(),
    }
}

fn pause(scope: pause_sagas_request::Scope, request_id: &str) -> PauseSagasRequest {
    PauseSagasRequest {
        scope: Some(scope),
        request_id: request_id.to_owned(),
        actor: "ann".to_owned(),
        reason: "they asked for it".to_owned(),
    }
}

fn resume(scope: resume_sagas_request::Scope, request_id: &str) -> ResumeSagasRequest {
    ResumeSagasRequest {
        scope: Some(scope),
        request_id: request_id.to_owned(),
        actor: "ann".to_owned(),
        reason: "they are back".to_owned(),
    }
}

async fn explain(sagas: &Sagas, saga_id: &str) -> Result<ExplainSagaResponse> {
    let request = ExplainSagaRequest { saga_id: saga_id.to_owned() };
    Ok(sagas.clone().explain_saga(request).await?.into_inner())
}

async fn parked(sagas: &Sagas, order: &Order) -> Result<Vec<Saga>> {
    let request = ListSagasRequest {
        kind: "checkout".to_owned(),
        state: saga::State::Parked.into(),
        attribute_name: "order.id".to_owned(),
        attribute_value: order.order_id.clone(),
        ..Default::default()
    };
    Ok(sagas.clone().list_sagas(request).await?.into_inner().sagas)
}

#[tokio::test]
async fn a_parked_order_is_found_explained_retried_and_ends_as_its_customer_asked() -> Result<()> {
    let stack = Stack::start().await?;
    let (order, mut sagas) = unpaid(&stack).await?;
    let pool = stack.stores.orders.pool()?;
    let saga_id = uuid::Uuid::parse_str(&order.saga_id)?;
    let sound: String =
        sqlx::query_scalar("SELECT events::text FROM saga.events WHERE saga_id = $1 AND seq = 2")
            .bind(saga_id)
            .fetch_one(&pool)
            .await?;
    let write = async |events: &str| -> Result<()> {
        let statement =
            sqlx::query("UPDATE saga.events SET events = $2::json WHERE saga_id = $1 AND seq = 2");
        statement.bind(saga_id).bind(events).execute(&pool).await?;
        Ok(())
    };
    assert_eq!(parked(&sagas, &order).await?, []);
    write(r#"[{"event":"moonwalk"}]"#).await?;

    // Its cancel wakes the saga, which cannot be read. The cancel is kept.
    let refusal =
        assert_refused(cancel(&stack, &order).await, Code::FailedPrecondition, reason::ILLEGAL_TRANSITION);
    assert_eq!(refusal.metadata["state"], "AWAITING_PAYMENT");
    let found = parked(&sagas, &order).await?;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].saga_id, order.saga_id);
    assert!(found[0].parked_reason.starts_with("event 2 cannot be read"), "{}", found[0].parked_reason);

    let explained = explain(&sagas, &order.saga_id).await?;
    assert!(explained.summary.contains("its journal cannot be read"), "{}", explained.summary);
    assert_eq!(explained.open_signals, ["cancel"]);
    assert!(explained.unblocks[0].starts_with("repair its journal"), "{:?}", explained.unblocks);
    let told =
        sagas.get_saga(GetSagaRequest { saga_id: order.saga_id.clone(), after_seq: 0 }).await?.into_inner();
    assert_eq!(told.events[1].event, "moonwalk");
    let early = sagas.retry_saga(retry(&order.saga_id, "too-early")).await;
    let refusal = assert_refused(early, Code::FailedPrecondition, reason::SAGA_NOT_OPERABLE);
    assert_eq!(refusal.metadata["state"], "PARKED");
    assert!(refusal.metadata["why"].starts_with("its journal cannot be read"), "{:?}", refusal.metadata);

    write(&sound).await?;
    let explained = explain(&sagas, &order.saga_id).await?;
    assert!(explained.unblocks[0].starts_with("retry: "), "{:?}", explained.unblocks);
    let retried = sagas.retry_saga(retry(&order.saga_id, "mended")).await?.into_inner();
    assert_eq!(retried.disposition(), Disposition::Done);
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::Customer));

    // The same again tells what became of it, after the end too; another body is refused.
    let again = sagas.retry_saga(retry(&order.saga_id, "mended")).await?.into_inner();
    assert_eq!(again.disposition(), Disposition::Done);
    assert_eq!(again.saga.context("a saga")?.state(), saga::State::Undone);
    let other = RetrySagaRequest { actor: "bob".to_owned(), ..retry(&order.saga_id, "mended") };
    assert_refused(sagas.retry_saga(other).await, Code::InvalidArgument, reason::REQUEST_ID_REUSED);
    let late = sagas.retry_saga(retry(&order.saga_id, "late")).await;
    let refusal = assert_refused(late, Code::FailedPrecondition, reason::SAGA_NOT_OPERABLE);
    assert_eq!(refusal.metadata["state"], "UNDONE");
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    hold(&stack).await
}

#[tokio::test]
async fn a_paused_order_cannot_be_cancelled_until_it_is_resumed_and_then_is() -> Result<()> {
    let stack = Stack::start().await?;
    let (order, mut sagas) = unpaid(&stack).await?;
    let one = pause(pause_sagas_request::Scope::SagaId(order.saga_id.clone()), "hold");
    let paused = sagas.pause_sagas(one).await?.into_inner().operated.context("one saga")?;
    assert_eq!(paused.disposition(), Disposition::Done);
    assert_eq!(paused.saga.context("a saga")?.parked_reason, "paused by ann: they asked for it");
    assert_refused(cancel(&stack, &order).await, Code::FailedPrecondition, reason::ILLEGAL_TRANSITION);
    let refused = sagas.retry_saga(retry(&order.saga_id, "go")).await;
    assert_refused(refused, Code::FailedPrecondition, reason::SAGA_NOT_OPERABLE);
    assert_eq!(stack.order_of(&order.order_id).await?.state(), State::AwaitingPayment);
    let one = resume(resume_sagas_request::Scope::SagaId(order.saga_id.clone()), "go-on");
    let resumed = sagas.resume_sagas(one).await?.into_inner().operated.context("one saga")?;
    assert_eq!(resumed.disposition(), Disposition::Done);
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::Customer));
    hold(&stack).await
}

#[tokio::test]
async fn a_paused_participant_is_left_alone_and_its_orders_go_on_after() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 1_000).await?;
    let (mut orders, mut sagas) = (stack.clients.orders.clone(), stack.clients.sagas.clone());
    let payments = pause_sagas_request::Scope::Participant("payment-svc".to_owned());
    let paused = sagas.pause_sagas(pause(payments, "leave-them")).await?.into_inner();
    assert_eq!(paused.pauses[0].scope, Some(saga_pause::Scope::Participant("payment-svc".to_owned())));
    // Every worker knows within a heartbeat, which is a second.
    let order = eventually("an order meets the pause", SOON, async || {
        let request_id = uuid::Uuid::now_v7().to_string();
        let request = pay_now(&request_id, &[("A", 1)], "sim_approve");
        let order = orders.create_order(within(Duration::from_millis(1_500), request)).await?.into_inner();
        ensure!(order.state() == State::AwaitingPayment, "it is {:?}", order.state());
        Ok(order)
    })
    .await?;
    let explained = explain(&sagas, &order.saga_id).await?;
    assert!(
        explained.next.ends_with("once participant payment-svc is no longer paused"),
        "{}",
        explained.next
    );
    assert!(explained.unblocks[0].starts_with("resume participant payment-svc"), "{:?}", explained.unblocks);
    assert_eq!(explained.pauses.len(), 1);
    let payments = resume_sagas_request::Scope::Participant("payment-svc".to_owned());
    let resumed = sagas.resume_sagas(resume(payments, "back")).await?.into_inner();
    assert_eq!(resumed.pauses, []);
    let ended = stack.ended(&order.order_id, AFTER_A_PAUSE).await?;
    assert_eq!(ended.state(), State::Confirmed);
    hold(&stack).await
}

#[tokio::test]
async fn an_order_that_waits_is_compensated_as_its_operators_decided() -> Result<()> {
    let stack = Stack::start().await?;
    let (order, mut sagas) = unpaid(&stack).await?;
    let compensate = CompensateSagaRequest {
        saga_id: order.saga_id.clone(),
        request_id: "stop-it".to_owned(),
        actor: "ann".to_owned(),
        reason: "the shop is closed".to_owned(),
    };
    let wrong = ResolveStepRequest {
        saga_id: order.saga_id.clone(),
        request_id: "by-hand".to_owned(),
        actor: "ann".to_owned(),
        reason: "I saw it".to_owned(),
        step: "reserve".to_owned(),
        direction: resolve_step_request::Direction::Do.into(),
        output_json: "{}".to_owned(),
    };
    let refusal =
        assert_refused(sagas.resolve_step(wrong).await, Code::FailedPrecondition, reason::SAGA_NOT_OPERABLE);
    assert!(refusal.metadata["why"].starts_with("step reserve is not at work"), "{:?}", refusal.metadata);
    let done = sagas.compensate_saga(compensate).await?.into_inner();
    assert_eq!(done.disposition(), Disposition::Done);
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::Operator));
    let told = sagas.get_saga(GetSagaRequest { saga_id: order.saga_id, after_seq: 0 }).await?.into_inner();
    let ordered: Vec<_> = told.events.iter().filter(|event| event.event == "operated").collect();
    assert_eq!(ordered.len(), 2, "also what was refused is on record: {:?}", told.events);
    assert!(ordered[0].entry_json.contains(r#""actor":"ann""#), "{}", ordered[0].entry_json);
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    hold(&stack).await
}

#[tokio::test]
async fn a_journal_is_shown_without_what_the_customer_paid_with() -> Result<()> {
    let stack = Stack::start().await?;
    stack.receive("A", 5).await?;
    let request = pay_now("paid", &[("A", 1)], "sim_approve");
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(order.state(), State::Confirmed);
    let mut sagas = stack.clients.sagas.clone();
    let told =
        sagas.get_saga(GetSagaRequest { saga_id: order.saga_id.clone(), after_seq: 0 }).await?.into_inner();
    assert_eq!((told.state(), told.trace_id.as_str()), (saga::State::Completed, order.trace_id.as_str()));
    assert_eq!(told.attributes["order.id"], order.order_id);
    let names: Vec<_> = told.events.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(names, ["started", "step_done", "step_done", "pivot_begun", "step_done", "completed"]);
    for event in &told.events {
        assert!(!event.entry_json.contains("sim_approve"), "{}", event.entry_json);
    }
    assert!(told.events[0].entry_json.contains(r#"{"now":"[hidden]"}"#), "{}", told.events[0].entry_json);

    let listed =
        sagas.list_sagas(ListSagasRequest { page_size: 1, ..Default::default() }).await?.into_inner();
    assert_eq!((listed.sagas.len(), listed.sagas[0].saga_id.as_str()), (1, order.saga_id.as_str()));
    let unknown = ExplainSagaRequest { saga_id: uuid::Uuid::now_v7().to_string() };
    assert_refused(sagas.explain_saga(unknown).await, Code::NotFound, reason::UNKNOWN_SAGA);
    let malformed = RetrySagaRequest { saga_id: "7".to_owned(), ..Default::default() };
    let refusal =
        assert_refused(sagas.retry_saga(malformed).await, Code::InvalidArgument, reason::INVALID_FIELD);
    assert_eq!(refusal.fields, ["saga_id", "request_id", "actor", "reason"]);
    let clock = resume(resume_sagas_request::Scope::Clock(proto::orders::v1::Clock {}), "no-doubt");
    assert_eq!(sagas.resume_sagas(clock).await?.into_inner().pauses, []);
    let service = HealthCheckRequest { service: "orders.v1.SagaService".to_owned() };
    let health = HealthClient::new(stack.order.channel()?).check(service).await?.into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    Ok(())
}
