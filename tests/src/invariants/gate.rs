//! The gate's own counters, read from Redis: the stock hashes of the open generation.

use std::collections::HashMap;

use anyhow::{Context, Result};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use super::stock::{BySku, Counters};

/// One partition by default.
const HEAD: &str = "hf:{p0}:head";

pub(super) async fn read(url: &str) -> Result<BySku> {
    let mut gate = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let generation: Option<i64> = gate.hget(HEAD, "generation").await?;
    let Some(generation) = generation else { return Ok(BySku::new()) };
    let prefix = format!("hf:{{p0}}:{generation}:stock:");
    let mut counters = BySku::new();
    for key in keys(&mut gate, &format!("{prefix}*")).await? {
        let fields: HashMap<String, i64> = gate.hgetall(&key).await?;
        let field = |name: &str| fields.get(name).copied().with_context(|| format!("{key} has no {name}"));
        let read = Counters { received: field("received")?, held: field("held")?, sold: field("sold")? };
        counters.insert(key[prefix.len()..].to_owned(), read);
    }
    Ok(counters)
}

/// KEYS blocks Redis, which matters to nobody in a test at rest and gives one consistent answer.
async fn keys(gate: &mut MultiplexedConnection, pattern: &str) -> Result<Vec<String>> {
    Ok(gate.keys(pattern).await?)
}
