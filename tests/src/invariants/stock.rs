//! Stock: the public counters, the ledger's movements, its balances and the gate must all say the same.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use super::{Found, gate, ledger};
use crate::replay::stock_watch;
use crate::stack::Stack;

/// Counters of one SKU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counters {
    pub(super) received: i64,
    pub(super) held: i64,
    pub(super) sold: i64,
}

/// Counters by SKU.
pub(super) type BySku = BTreeMap<String, Counters>;

pub(super) async fn check(stack: &Stack, found: &mut Found) -> Result<()> {
    let listed = stock_watch::all(&stack.clients.inventory).await?;
    for stock in listed.values() {
        found.look("available + held + sold = received", stock_watch::identity(stock));
    }
    let public: BySku = listed
        .into_iter()
        .map(|(sku, stock)| (sku, Counters { received: stock.received, held: stock.held, sold: stock.sold }))
        .collect();
    let book = ledger::read(&stack.stores.inventory.pool()?).await?;
    found.look("the chain of movements is unbroken", book.chain);
    found.look("no reservation moved twice", book.double_moves);
    same(found, "the API says what the movements add up to", &public, &book.movements);
    same(found, "the balances are what the movements add up to", &book.balances, &book.movements);
    let gate = gate::read(&stack.stores.redis.url()).await?;
    same(found, "the gate says what the movements add up to", &gate, &book.movements);
    Ok(())
}

fn same(found: &mut Found, rule: &'static str, seen: &BySku, truth: &BySku) {
    let skus: BTreeSet<&String> = seen.keys().chain(truth.keys()).collect();
    for sku in skus {
        let (seen, truth) = (seen.get(sku), truth.get(sku));
        found.look(rule, agree(sku, seen, truth));
    }
}

fn agree(sku: &str, seen: Option<&Counters>, truth: Option<&Counters>) -> Result<()> {
    ensure!(seen == truth, "{sku}: {seen:?} against {truth:?}");
    Ok(())
}
