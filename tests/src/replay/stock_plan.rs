//! How much of each SKU the shop has: what the orders ask for, and for some SKUs a little less.

use std::collections::{BTreeMap, BTreeSet};

use super::untidy::ShopOrder;

/// Every twentieth SKU, in sorted order, is short.
const EVERY: usize = 20;
/// A SKU of an order this long is never short in the day, or one refusal would leave little of the day.
const LARGE_ORDER_LINES: usize = 500;

/// How short the short SKUs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// By a tenth, sparing the SKUs of very large orders.
    Day,
    /// By a quarter, whatever the order.
    Year,
}

impl Shortage {
    fn left_of(self, demand: i64) -> i64 {
        match self {
            Self::Day => demand * 9 / 10,
            Self::Year => demand * 3 / 4,
        }
    }

    fn spares(self, order: &ShopOrder) -> bool {
        self == Self::Day && order.lines.len() >= LARGE_ORDER_LINES
    }
}

/// What is put on the shelf of one SKU before the first order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shelf {
    /// What all orders together ask for.
    pub demand: i64,
    /// What there is. 0 means received, then adjusted to nothing: sold out is not unknown.
    pub stocked: i64,
}

/// The shelves of all SKUs that are ordered.
pub fn shelves(orders: &[ShopOrder], shortage: Shortage) -> BTreeMap<String, Shelf> {
    let mut shelves: BTreeMap<String, Shelf> = BTreeMap::new();
    let mut spared: BTreeSet<&str> = BTreeSet::new();
    for order in orders {
        for line in &order.lines {
            let shelf = shelves.entry(line.sku.clone()).or_insert(Shelf { demand: 0, stocked: 0 });
            shelf.demand += line.quantity;
            shelf.stocked = shelf.demand;
        }
        if shortage.spares(order) {
            spared.extend(order.lines.iter().map(|line| line.sku.as_str()));
        }
    }
    let candidates = shelves.iter_mut().filter(|(sku, _)| !spared.contains(sku.as_str()));
    for (_, shelf) in candidates.skip(EVERY - 1).step_by(EVERY) {
        shelf.stocked = shortage.left_of(shelf.demand);
    }
    shelves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::untidy::ShopLine;

    fn order(skus: std::ops::Range<usize>, quantity: i64) -> ShopOrder {
        let lines = skus.map(|sku| ShopLine { sku: format!("{sku:05}"), quantity, price_pence: 1 });
        ShopOrder {
            invoice: "1".to_owned(),
            number: 1,
            at: String::new(),
            customer: None,
            lines: lines.collect(),
        }
    }

    fn short(shelves: &BTreeMap<String, Shelf>) -> Vec<(&str, i64)> {
        let short = shelves.iter().filter(|(_, shelf)| shelf.stocked < shelf.demand);
        short.map(|(sku, shelf)| (sku.as_str(), shelf.stocked)).collect()
    }

    #[test]
    fn every_twentieth_sku_is_short_by_a_tenth_rounded_down() {
        let orders = [order(0..45, 7), order(0..45, 8)];
        let shelves = shelves(&orders, Shortage::Day);
        assert_eq!(shelves["00000"], Shelf { demand: 15, stocked: 15 });
        assert_eq!(short(&shelves), [("00019", 13), ("00039", 13)]);
    }

    #[test]
    fn nothing_is_left_of_a_single_unit() {
        assert_eq!(short(&shelves(&[order(0..20, 1)], Shortage::Day)), [("00019", 0)]);
    }

    #[test]
    fn the_day_spares_the_skus_of_very_large_orders_and_counts_without_them() {
        let orders = [order(0..500, 10), order(500..540, 10)];
        assert_eq!(short(&shelves(&orders, Shortage::Day)), [("00519", 9), ("00539", 9)]);
    }

    #[test]
    fn the_year_spares_nobody_and_is_short_by_a_quarter() {
        let shelves = shelves(&[order(0..500, 10)], Shortage::Year);
        assert_eq!(short(&shelves).len(), 25);
        assert_eq!(short(&shelves)[0], ("00019", 7));
    }
}
