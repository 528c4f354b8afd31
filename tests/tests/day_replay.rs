//! The day of `data/`, replayed by the program itself: once, and once more on the same stores.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use harness::invariants::hold;
use harness::stack::{Plan, Stack};

/// Runs the program against a stack; gives what it printed.
fn day(stack: &Stack) -> Result<Output> {
    let output = Command::new(env!("CARGO_BIN_EXE_day"))
        .args(["--orders-url", &stack.order.url(), "--inventory-url", &stack.inventory.url()])
        .args(["--payment-url", &stack.payment.url(), "--database-url", &stack.stores.orders.url])
        .args(["--jaeger-url", "http://jaeger.example/"])
        .arg("--file")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/online-retail-2011-12-05.csv"))
        .output()?;
    Ok(output)
}

fn field<'a>(line: &'a str, name: &str) -> Result<&'a str> {
    let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
    let found = words.find(|(key, _)| *key == name).map(|(_, value)| value);
    found.with_context(|| format!("no {name} in {line:?}"))
}

#[tokio::test]
async fn the_day_adds_up_twice_on_the_same_stores() -> Result<()> {
    let stack = Plan::all().own_databases().start().await?;
    for run in 1..=2 {
        let output = day(&stack)?;
        let report = String::from_utf8(output.stdout)?;
        println!("{report}");
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "run {run} ended with {}: {errors}", output.status);
        let last = report.lines().last().unwrap_or_default();
        assert!(last.starts_with("day orders=126 "), "{last}");
        assert_eq!(field(last, "identities")?, "ok");
        let number = |name| anyhow::Ok(field(last, name)?.parse::<f64>()?);
        assert!((number("confirmed")? + number("cancelled")? - 126.0).abs() < 0.5, "{last}");
        // Every row of the file that is in no order, in no return and merged into none.
        assert_eq!(field(last, "refused_rows")?, "27");
    }
    hold(&stack).await
}
