//! A client that shares no code with us: Python's own gRPC, with messages built from server reflection alone. What it
//! can do, any language can; and tonic is not tested by tonic alone.

use std::path::Path;

use anyhow::{Context, Result};
use harness::python;
use harness::stack::Stack;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_our_code_places_an_order_and_reads_it_back() -> Result<()> {
    let stack = Stack::start().await?;
    let orders = host_and_port(&stack.order.url());
    let inventory = host_and_port(&stack.inventory.url());
    let printed = tokio::task::spawn_blocking(move || {
        let arguments = ["--orders", &orders, "--inventory", &inventory];
        python::run(Path::new(env!("CARGO_TARGET_TMPDIR")), "place_order.py", &arguments)
    });
    let seen: Value = serde_json::from_str(&printed.await??).context("one JSON object")?;

    let placed = &seen["placed"];
    assert_eq!(placed["state"], "STATE_CONFIRMED", "{placed:#}");
    assert_eq!(placed["paymentState"], "PAYMENT_STATE_CAPTURED");
    assert_eq!(placed["total"], json!({ "currency": "GBP", "minorUnits": "500" }));
    assert_eq!(seen["read"], *placed, "what is read back is what was answered");

    assert_eq!(seen["received"]["available"], "5");
    assert_eq!(seen["stock"]["available"], "3");
    assert_eq!(seen["stock"]["sold"], "2");

    // Rich errors reach a client that has only the server's own descriptors.
    let refusal = &seen["refusal"];
    assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{refusal:#}");
    let details = refusal["details"].as_array().context("details")?;
    assert!(
        details.iter().any(|detail| detail["reason"] == "INVALID_FIELD" && detail["domain"] == "holdfast")
    );
    let violations =
        details.iter().find_map(|detail| detail["fieldViolations"].as_array()).context("violations")?;
    let fields: Vec<&str> = violations.iter().filter_map(|violation| violation["field"].as_str()).collect();
    assert!(fields.len() >= 2, "every violation at once: {fields:?}");

    assert_eq!(seen["http"], json!({ "post": "/v1/orders", "body": "*" }));
    for protocol in ["v1", "v1alpha"] {
        let services = seen["services"][protocol].as_array().context("services")?;
        for service in ["orders.v1.OrderService", "grpc.health.v1.Health"] {
            assert!(services.contains(&json!(service)), "{protocol}: {services:?}");
        }
    }
    Ok(())
}

fn host_and_port(url: &str) -> String {
    url.trim_start_matches("http://").to_owned()
}
