//! The names of a partition's keys in Redis. All share one hash tag, so one script may use them together in a
//! cluster; all but the head carry the generation, so a rebuild never meets what was there before.

use crate::{
    partition::{Generation, PartitionId},
    reservation::CallerId,
    sku::Sku,
};

/// The key whose presence says that a generation is open. Its name is fixed, so that a script can fence.
pub fn head(partition: PartitionId) -> String {
    format!("hf:{{p{}}}:head", partition.0)
}

/// What every key of a partition begins with.
pub fn prefix(partition: PartitionId) -> String {
    format!("hf:{{p{}}}:", partition.0)
}

/// Whether a key carries a generation older than this one.
pub fn is_older(key: &str, partition: PartitionId, generation: Generation) -> bool {
    let rest = key.strip_prefix(&prefix(partition));
    let number =
        rest.and_then(|rest| rest.split_once(':')).and_then(|(number, _)| number.parse::<i64>().ok());
    number.is_some_and(|number| number < generation.0)
}

/// The keys of one generation.
#[derive(Debug, Clone)]
pub struct Keys {
    head: String,
    prefix: String,
}

impl Keys {
    /// Of a partition's generation.
    pub fn new(partition: PartitionId, generation: Generation) -> Self {
        Self { head: head(partition), prefix: format!("{}{}:", prefix(partition), generation.0) }
    }

    /// The head.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Movements the ledger may not have yet, and a short tail that it has.
    pub fn stream(&self) -> String {
        format!("{}stream", self.prefix)
    }

    /// Live holds by the time they lapse.
    pub fn expiry(&self) -> String {
        format!("{}expiry", self.prefix)
    }

    /// Present while the generation is being built.
    pub fn building(&self) -> String {
        format!("{}building", self.prefix)
    }

    /// A SKU's counters.
    pub fn stock(&self, sku: &Sku) -> String {
        format!("{}stock:{sku}", self.prefix)
    }

    /// A reservation's recorded outcome.
    pub fn reservation(&self, id: &CallerId) -> String {
        format!("{}reservation:{id}", self.prefix)
    }

    /// The recorded outcome of a receipt or adjustment.
    pub fn request(&self, id: &CallerId) -> String {
        format!("{}request:{id}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_generations_are_told_by_name() {
        let (partition, now) = (PartitionId(0), Generation(10));
        for (key, older) in [
            ("hf:{p0}:9:stock:A", true),
            ("hf:{p0}:10:stock:A", false),
            ("hf:{p0}:11:stream", false),
            ("hf:{p0}:head", false),
            ("hf:{p1}:9:stream", false),
            ("other", false),
        ] {
            assert_eq!(is_older(key, partition, now), older, "{key}");
        }
    }
}
