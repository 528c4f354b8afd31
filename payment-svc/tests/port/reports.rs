//! Reports: at least once, each fact once in the book, in the trace of the charge, whoever is down.

use crate::{
    bed::{Bed, charge, until},
    orders::Orders,
};
use clap::Parser;
use proto::payment::v1::{ChargeRequest, charge_request};
use tokio::net::TcpListener;
use tonic::Request;

#[tokio::test]
async fn c38_an_order_that_is_not_committed_yet_hears_of_its_payment_later() {
    let bed = Bed::start().await;
    bed.orders.not_found_at_first("order-p", 4);
    bed.charge("p", "sim_approve").await.unwrap();
    // Others do not wait for it.
    bed.charge("q", "sim_approve").await.unwrap();
    until("the other is told", async || bed.orders.taken("order-q").len() == 1).await;
    until("told", async || bed.orders.taken("order-p").len() == 1).await;
    until("nothing left to tell", async || bed.count("select count(*) from payment.outbox").await == 0).await;
    assert_eq!(bed.orders.told().len(), 6);
    bed.end().await;
}

#[tokio::test]
async fn a_payment_of_nobody_is_told_to_nobody() {
    let bed = Bed::start().await;
    bed.send(ChargeRequest { reference: String::new(), ..charge("p", "sim_approve") }).await.unwrap();
    assert_eq!(bed.count("select count(*) from payment.outbox").await, 0);
    bed.charge("q", "sim_approve").await.unwrap();
    until("the other is told", async || bed.orders.taken("order-q").len() == 1).await;
    assert_eq!(bed.orders.told().len(), 1);
    bed.end().await;
}

#[tokio::test]
async fn an_outcome_that_was_answered_is_not_told_again_if_the_caller_says_so() {
    let bed = Bed::start().await;
    let unanswered = |payment, token| ChargeRequest {
        report: charge_request::Report::Unanswered.into(),
        ..charge(payment, token)
    };
    bed.send(unanswered("p", "sim_approve")).await.unwrap();
    bed.send(unanswered("d", "sim_decline")).await.unwrap_err();
    assert_eq!(bed.count("select count(*) from payment.outbox").await, 0);
    // An outcome that came after the answer is told.
    bed.send(unanswered("late", "sim_approve_after_50")).await.unwrap();
    until("the late one is told", async || bed.orders.taken("order-late").len() == 1).await;
    assert_eq!(bed.orders.told().len(), 1);
    bed.end().await;
}

#[tokio::test]
async fn reports_wait_for_an_order_service_that_is_down() {
    // A free port, nobody behind it yet.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let orders = Orders::default();
    let bed = Bed::start_reporting_to(&format!("http://{address}"), orders.clone(), &[]).await;
    for n in 0..100 {
        bed.charge(&format!("p{n}"), "sim_approve").await.unwrap();
    }
    until("tried", async || {
        bed.count("select coalesce(max(attempts), 0)::bigint from payment.outbox").await > 1
    })
    .await;
    orders.serve(TcpListener::bind(address).await.unwrap());
    until("all told", async || bed.count("select count(*) from payment.outbox").await == 0).await;
    let mut told: Vec<_> = orders.told().iter().map(|told| told.report.order_id.clone()).collect();
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 100);
    bed.end().await;
}

#[tokio::test]
async fn c39_the_same_success_event_three_times_is_told_once() {
    let bed = Bed::start().await;
    bed.charge("p", "sim_approve_after_50").await.unwrap();
    until("told", async || bed.orders.taken("order-p").len() == 1).await;
    sqlx::query(
        "insert into payment_simulator.events (event_id, charge_key)
         select 'again-' || n, charge_key from payment_simulator.charges, generate_series(1, 3) n",
    )
    .execute(&bed.db)
    .await
    .unwrap();
    until("all acknowledged", async || {
        bed.count("select count(*) from payment_simulator.events where acknowledged_at is null").await == 0
    })
    .await;
    assert_eq!(bed.count("select count(*) from payment.outbox").await, 0);
    assert_eq!(bed.orders.told().len(), 1);
    bed.end().await;
}

#[tokio::test]
async fn a_report_stands_in_the_trace_of_its_charge() {
    let arguments = payment_svc::Config::parse_from(["payment-svc", "--database-url=unused", "--log=warn"]);
    runtime::telemetry::init("payment-svc", &arguments.telemetry).unwrap();
    let bed = Bed::start().await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    for (payment, token) in [("p", "sim_approve"), ("q", "sim_approve_after_50"), ("r", "sim_timeout")] {
        let mut request = Request::new(charge(payment, token));
        let parent = format!("00-{trace}-b7ad6b7169203331-01");
        request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        // A client of its own: ours would write its own span into the header.
        let mut client = bed.plain_client().await;
        client.charge(request).await.unwrap();
        let order = format!("order-{payment}");
        until("told", async || bed.orders.taken(&order).len() == 1).await;
        let told = bed.orders.taken(&order).remove(0);
        let traceparent = told.traceparent.expect("a report without a trace");
        assert_eq!(runtime::telemetry::trace_id_of(&traceparent), Some(trace), "{token}");
    }
    bed.end().await;
}
