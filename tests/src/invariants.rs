//! What must be true of a stack at rest, whatever happened to it: the promises of the README, read from all stores.
//!
//! The public API is asked wherever it can answer; SQL and Redis are read, never written, for what it does not show.

mod gate;
mod ledger;
mod money;
mod orders;
mod sagas;
mod stock;

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::deadline::eventually;
use crate::stack::Stack;

/// What follows the last answer (releases, refunds, reports, the takeover of a dead worker's sagas) ends within this.
const AT_REST_WITHIN: Duration = Duration::from_secs(30);
/// Violations shown of one check.
const SHOWN_MAX: usize = 20;

/// One thing that is not as promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub rule: &'static str,
    /// What breaks it.
    pub what: String,
}

/// Everything found broken; an error only if a store could not be read.
pub async fn check(stack: &Stack) -> Result<Vec<Violation>> {
    let mut found = Found::default();
    let orders = orders::all(stack).await?;
    stock::check(stack, &mut found).await?;
    orders::check(stack, &orders, &mut found).await?;
    money::check(stack, &orders, &mut found).await?;
    sagas::check(stack, &mut found).await?;
    Ok(found.0)
}

/// The same for a stack without orders: stock, its ledger and its gate.
pub async fn check_stock(stack: &Stack) -> Result<Vec<Violation>> {
    let mut found = Found::default();
    stock::check(stack, &mut found).await?;
    Ok(found.0)
}

/// Waits until everything is at rest and nothing is broken.
pub async fn hold(stack: &Stack) -> Result<()> {
    eventually("every invariant holds at rest", AT_REST_WITHIN, async || none(&Box::pin(check(stack)).await?))
        .await
}

/// The same for a stack without orders.
pub async fn hold_for_stock(stack: &Stack) -> Result<()> {
    eventually("every invariant of stock holds", AT_REST_WITHIN, async || {
        none(&Box::pin(check_stock(stack)).await?)
    })
    .await
}

fn none(violations: &[Violation]) -> Result<()> {
    let shown: Vec<String> =
        violations.iter().take(SHOWN_MAX).map(|v| format!("{}: {}", v.rule, v.what)).collect();
    ensure!(violations.is_empty(), "{} violations:\n  {}", violations.len(), shown.join("\n  "));
    Ok(())
}

/// Where the checks put what they find.
#[derive(Debug, Default)]
struct Found(Vec<Violation>);

impl Found {
    /// Notes the failure of one look.
    fn look(&mut self, rule: &'static str, verdict: Result<()>) {
        if let Err(broken) = verdict {
            self.0.push(Violation { rule, what: format!("{broken:#}") });
        }
    }
}
