//! Building the keys of a new generation from what the ledger has, and opening it.
//! Absent: where the rows come from, and when a generation is needed.

use redis::Pipeline;

use super::{Counters, Gate, GateError};
use crate::{
    keys::{self, Keys},
    partition::{Generation, Head, Nonce},
    reservation::{CallerId, Record, State},
    sku::Sku,
};

/// Keys visited per step when older generations are swept away.
const SWEEP_KEYS: usize = 1_000;
/// Steps of one sweep: what is left then is swept after the next rebuild.
const SWEEP_STEPS_MAX: usize = 100_000;

/// How opening went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loaded {
    /// The generation is open.
    Opened,
    /// Redis lost keys while they were built.
    Lost,
    /// This or a later generation is open already.
    Overtaken,
}

/// A generation being built.
#[derive(Debug)]
pub struct Load<'a> {
    gate: &'a Gate,
    keys: Keys,
    marker: Nonce,
    batch: Pipeline,
}

impl Gate {
    /// Begins to build a generation that no other process builds.
    pub async fn begin_load(&self, generation: Generation) -> Result<Load<'_>, GateError> {
        let keys = Keys::new(self.partition, generation);
        let marker = Nonce::random();
        let mut command = redis::cmd("SET");
        let () = command.arg(keys.building()).arg(&marker.0).query_async(&mut self.commands.clone()).await?;
        Ok(Load { gate: self, keys, marker, batch: redis::pipe() })
    }

    /// Deletes the keys of generations before this one.
    pub async fn sweep_older(&self, generation: Generation) -> Result<(), GateError> {
        let pattern = format!("{}*", keys::prefix(self.partition));
        let mut cursor = 0u64;
        for _ in 0..SWEEP_STEPS_MAX {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SWEEP_KEYS);
            let (next, found): (u64, Vec<String>) = scan.query_async(&mut self.commands.clone()).await?;
            let older: Vec<&String> =
                found.iter().filter(|key| keys::is_older(key, self.partition, generation)).collect();
            if !older.is_empty() {
                let _gone: i64 =
                    redis::cmd("UNLINK").arg(older).query_async(&mut self.commands.clone()).await?;
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Load<'_> {
    /// Adds a SKU's counters to the batch.
    pub fn counters(&mut self, sku: &Sku, counters: &Counters) {
        let Counters { received, held, sold, seq } = counters;
        let fields = [("received", *received), ("held", *held), ("sold", *sold), ("seq", seq.0)];
        self.batch.hset_multiple(self.keys.stock(sku), &fields).ignore();
    }

    /// Adds a reservation's outcome to the batch; one that is final is remembered for `ttl_ms` more.
    pub fn reservation(&mut self, id: &CallerId, customer: Option<&str>, record: &Record, ttl_ms: i64) {
        let key = self.keys.reservation(id);
        let fields = [
            ("state", record.state.name().to_owned()),
            ("fingerprint", record.fingerprint.as_ref().map_or_else(String::new, |f| f.as_str().to_owned())),
            ("movement", record.movement.map_or_else(String::new, |movement| movement.to_string())),
            ("lines", record.lines.to_text()),
            ("expires", record.expires_ms.map_or_else(String::new, |ms| ms.to_string())),
            ("customer", customer.unwrap_or_default().to_owned()),
        ];
        self.batch.hset_multiple(&key, &fields).ignore();
        match (record.state, record.expires_ms) {
            (State::Held, Some(expires_ms)) => {
                self.batch.zadd(self.keys.expiry(), id.as_str(), expires_ms).ignore();
            }
            _ => {
                self.batch.pexpire(key, ttl_ms.max(1)).ignore();
            }
        }
    }

    /// Adds the outcome of a receipt or adjustment to the batch.
    pub fn request(&mut self, id: &CallerId, made: &crate::ledger::MadeChange, ttl_ms: i64) {
        let key = self.keys.request(id);
        let counters = &made.counters;
        let fields = [
            ("fingerprint", made.fingerprint.clone()),
            ("movement", made.movement.to_string()),
            ("received", counters.received.to_string()),
            ("held", counters.held.to_string()),
            ("sold", counters.sold.to_string()),
            ("seq", counters.seq.0.to_string()),
        ];
        self.batch.hset_multiple(&key, &fields).ignore();
        self.batch.pexpire(key, ttl_ms.max(1)).ignore();
    }

    /// Writes the batch.
    pub async fn flush(&mut self) -> Result<(), GateError> {
        let batch = std::mem::replace(&mut self.batch, redis::pipe());
        if batch.cmd_iter().next().is_some() {
            let () = batch.query_async(&mut self.gate.commands.clone()).await?;
        }
        Ok(())
    }

    /// Opens the generation: from here on scripts decide by it.
    pub async fn open(mut self, head: &Head) -> Result<Loaded, GateError> {
        self.flush().await?;
        let mut call = self.gate.scripts.open.prepare_invoke();
        call.key(self.keys.head()).key(self.keys.building());
        call.arg(head.generation.0).arg(head.seq.0).arg(&head.chain.0).arg(&self.marker.0);
        let reply: String = call.invoke_async(&mut self.gate.commands.clone()).await?;
        match reply.as_str() {
            "OPENED" => Ok(Loaded::Opened),
            "LOST" => Ok(Loaded::Lost),
            "OVERTAKEN" => Ok(Loaded::Overtaken),
            _ => Err(GateError::Unreadable("the opening script's reply")),
        }
    }
}
