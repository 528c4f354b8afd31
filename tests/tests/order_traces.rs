//! Every undo is visible, and case C45: one trace tells the whole order, over all processes, restarts and compensations.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::invariants::hold;
use harness::requests::{pay_later, pay_now};
use harness::sink::{Span, Trace};
use harness::stack::Plan;
use proto::orders::v1::order::{CancelReason, PaymentState, State};

const SOON: Duration = Duration::from_secs(15);

/// That steps of a saga began one after the other, and undos after all of them.
fn in_order(trace: &Trace, names: &[&str]) -> Result<()> {
    let mut before: Option<&Span> = None;
    for name in names {
        let span = trace.last(name)?;
        if let Some(before) = before {
            ensure!(before.start_ns <= span.start_ns, "{} began after {}", before.name, span.name);
        }
        before = Some(span);
    }
    Ok(())
}

/// That the undo of a step stands in the trace, links to the step and is no error.
fn undone(trace: &Trace, step: &str) -> Result<()> {
    let done = trace.last(&format!("saga {step}"))?;
    let undo = trace.last(&format!("saga undo {step}"))?;
    ensure!(undo.attribute("saga.direction") == "undo", "direction {:?}", undo.attribute("saga.direction"));
    ensure!(undo.attribute("saga.step") == step, "step {:?}", undo.attribute("saga.step"));
    ensure!(undo.links_to(done), "the undo of {step} does not link to it");
    ensure!(undo.error.is_none(), "a compensation that worked is no error: {:?}", undo.error);
    Ok(())
}

/// That the attempt of one step called a method of another service, seen on both sides.
fn calls(trace: &Trace, step: &str, method: &str, service: &str) -> Result<()> {
    let span = trace.last(step)?;
    let mut below: Vec<&Span> = vec![span];
    let mut at = 0;
    while let Some(parent) = below.get(at).copied() {
        below.extend(trace.under(parent));
        at += 1;
    }
    let served = below.iter().any(|span| span.service == service && span.name.ends_with(method));
    ensure!(served, "{step} has no {method} of {service} below it");
    Ok(())
}

#[tokio::test]
async fn one_trace_tells_a_confirmed_order_over_all_services() -> Result<()> {
    let stack = Plan::all().traced().start().await?;
    stack.receive("A", 5).await?;
    let request = pay_now("confirmed", &[("A", 1)], "sim_approve_after_300");
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(order.state(), State::Confirmed);
    let trace = stack
        .sink()?
        .wait_for(&order.trace_id, SOON, |trace| {
            in_order(trace, &["saga reserve", "saga pay", "saga confirm"])?;
            calls(trace, "saga reserve", "/Reserve", "inventory-svc")?;
            calls(trace, "saga confirm", "/Confirm", "inventory-svc")?;
            ensure!(trace.services().len() == 3, "services {:?}", trace.services());
            trace.whole()
        })
        .await?;
    let root = trace.tops().next().context("a root")?;
    assert!(root.name.ends_with("/CreateOrder"), "{}", root.name);
    for span in trace.spans.iter().filter(|span| span.name.starts_with("saga ")) {
        assert_eq!(span.attribute("order.id"), order.order_id, "{span:?}");
        assert_eq!(span.attribute("saga.id"), order.saga_id, "{span:?}");
        assert_eq!(span.attribute("saga.kind"), "checkout", "{span:?}");
        assert_eq!(span.attribute("saga.direction"), "do", "{span:?}");
    }
    println!("{}", trace.render());
    hold(&stack).await
}

#[tokio::test]
async fn c45_a_declined_payment_is_undone_in_sight() -> Result<()> {
    let stack = Plan::all().traced().start().await?;
    stack.receive("A", 5).await?;
    let request = pay_now("declined", &[("A", 2)], "sim_decline");
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!((order.state(), order.cancel_reason()), (State::Cancelled, CancelReason::PaymentDeclined));
    assert_eq!(order.payment_state(), PaymentState::Declined);
    assert_eq!(stack.counters("A").await?, (5, 0, 0));
    let trace = stack
        .sink()?
        .wait_for(&order.trace_id, SOON, |trace| {
            in_order(trace, &["saga reserve", "saga pay", "saga undo pay"])?;
            in_order(trace, &["saga pay", "saga undo reserve"])?;
            ensure!(trace.last("saga pay")?.error.is_some(), "a declined payment is an error");
            undone(trace, "pay")?;
            undone(trace, "reserve")?;
            calls(trace, "saga undo pay", "/CancelPayment", "payment-svc")?;
            calls(trace, "saga undo reserve", "/Release", "inventory-svc")?;
            trace.whole()
        })
        .await?;
    println!("{}", trace.render());
    hold(&stack).await
}

#[tokio::test]
async fn an_order_closed_after_a_restart_stays_in_its_trace() -> Result<()> {
    let mut stack = Plan::all().traced().start().await?;
    stack.receive("A", 5).await?;
    let request = pay_later("unpaid", &[("A", 2)], Duration::from_secs(2));
    let order = stack.clients.orders.clone().create_order(request).await?.into_inner();
    assert_eq!(order.state(), State::AwaitingPayment);
    stack.order.stop().await?;
    stack.order.start().await?;
    let ended = stack.ended(&order.order_id, SOON).await?;
    assert_eq!((ended.state(), ended.cancel_reason()), (State::Cancelled, CancelReason::PaymentExpired));
    assert_eq!(ended.trace_id, order.trace_id);
    let trace = stack
        .sink()?
        .wait_for(&order.trace_id, SOON, |trace| {
            in_order(trace, &["saga reserve", "saga undo reserve"])?;
            undone(trace, "reserve")?;
            calls(trace, "saga undo reserve", "/Release", "inventory-svc")?;
            trace.whole()
        })
        .await?;
    println!("{}", trace.render());
    hold(&stack).await
}
