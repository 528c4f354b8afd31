//! The gate: Redis, where stock is decided by scripts. What a script decided is not true before the ledger has it;
//! waiting for that is the caller's part. Absent: retries beyond a reloaded script, and any reading of local time.

mod load;
mod reply;
mod scripts;
mod stream;

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tracing::{Instrument, Span, field::Empty};

pub use load::{Load, Loaded};
pub use reply::{ChangeReply, ReservationReply};
pub use stream::{StreamReader, TAIL_ENTRIES};

use crate::{
    keys::{self, Keys},
    movement::Act,
    partition::{Generation, Head, Nonce, PartitionId, Seq},
    reservation::{CallerId, Fingerprint, Record},
    sku::{Lines, Sku},
};
use scripts::Scripts;

/// How long one command may take. A command that takes longer may have happened all the same.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Commands waiting to be written to the one connection; callers beyond it wait their turn.
const PIPELINE_COMMANDS: usize = 1_024;

/// What the gate can fail with. Nothing is known about whether a failed command took effect.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// Redis cannot be reached, or refused the command.
    #[error("redis: {0}")]
    Redis(#[from] redis::RedisError),
    /// Redis holds something no script of ours writes.
    #[error("unreadable in redis: {0}")]
    Unreadable(&'static str),
}

/// What every script is given first.
#[derive(Debug, Clone)]
pub struct Fence {
    /// The generation the caller believes open.
    pub generation: Generation,
    /// The highest seq the caller has seen of it.
    pub floor: Seq,
    /// Now, in ms of the ledger database's clock.
    pub now_ms: i64,
}

/// Why a script found that this Redis is not the one the ledger follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fenced(pub String);

/// What the ledger says about something Redis does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It was not asked.
    Unasked,
    /// It does not know it either.
    None,
    /// It knows it, so Redis lost it.
    Known,
}

/// A reservation to be made.
#[derive(Debug, Clone)]
pub struct Reserve {
    /// Its id.
    pub id: CallerId,
    /// What to hold.
    pub lines: Lines,
    /// What the request means.
    pub fingerprint: Fingerprint,
    /// For whom.
    pub customer: Option<CallerId>,
    /// When the hold lapses.
    pub expires_ms: i64,
}

/// How a hold is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Sold.
    Confirm,
    /// Given back.
    Release,
    /// Out of time.
    Expire,
}

/// A receipt or adjustment to be made.
#[derive(Debug, Clone)]
pub struct ChangeStock {
    /// Its id.
    pub request_id: CallerId,
    /// What it is.
    pub act: Act,
    /// Of what.
    pub sku: Sku,
    /// How many, signed.
    pub delta: i64,
    /// Why.
    pub reason: String,
}

impl ChangeStock {
    /// What the request means.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&[self.act.name(), self.sku.as_str(), &self.delta.to_string(), &self.reason])
    }
}

/// One SKU's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Receipts and adjustments, net.
    pub received: i64,
    /// Set aside.
    pub held: i64,
    /// Sold.
    pub sold: i64,
    /// The last movement that changed them.
    pub seq: Seq,
}

impl Counters {
    /// What can be reserved.
    pub const fn available(&self) -> i64 {
        self.received - self.held - self.sold
    }
}

/// What reading from an open generation found.
#[derive(Debug)]
pub enum Read<T> {
    /// The answer.
    Found(T),
    /// No such key.
    Missing,
    /// Redis is at another generation, or has lost its head.
    Fenced(Fenced),
}

/// Limits of the gate, the same for every script.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long an outcome is remembered after it is final.
    pub outcome_ttl: Duration,
    /// How many movements may wait for the ledger.
    pub backlog_entries: u64,
}

/// A partition's gate. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate {
    partition: PartitionId,
    commands: ConnectionManager,
    client: redis::Client,
    scripts: Scripts,
    limits: Limits,
}

impl Gate {
    /// A gate that connects when it is first used.
    pub fn new(url: &str, partition: PartitionId, limits: Limits) -> Result<Self, GateError> {
        let client = redis::Client::open(url)?;
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_number_of_retries(1)
            .set_max_delay(Duration::from_millis(500))
            .set_pipeline_buffer_size(PIPELINE_COMMANDS);
        let commands = client.get_connection_manager_lazy(config)?;
        Ok(Self { partition, commands, client, scripts: Scripts::new(), limits })
    }

    /// The head of the generation that is open in Redis, if there is one.
    pub async fn head(&self) -> Result<Option<Head>, GateError> {
        let mut command = redis::cmd("HMGET");
        command.arg(keys::head(self.partition)).arg(&["generation", "seq", "chain"]);
        let (generation, seq, chain): (Option<i64>, Option<i64>, Option<String>) =
            command.query_async(&mut self.commands.clone()).await?;
        Ok(generation.zip(seq).zip(chain).map(|((generation, seq), chain)| Head {
            generation: Generation(generation),
            seq: Seq(seq),
            chain: Nonce(chain),
        }))
    }

    /// Holds all lines or none. `id_word` and `sku_word` are what the ledger says about the id and about SKUs
    /// that have no counters here.
    pub async fn reserve(
        &self,
        fence: &Fence,
        order: &Reserve,
        id_word: Word,
        sku_word: Word,
    ) -> Result<ReservationReply, GateError> {
        let keys = Keys::new(self.partition, fence.generation);
        let mut call = self.scripts.reserve.prepare_invoke();
        self.begin(&mut call, &keys, fence, &keys.reservation(&order.id));
        call.key(keys.expiry());
        call.arg(order.id.as_str()).arg(order.lines.to_text()).arg(reply::id_word(id_word));
        call.arg(order.fingerprint.as_str()).arg(order.expires_ms);
        call.arg(order.customer.as_ref().map_or("", CallerId::as_str)).arg(reply::word(sku_word));
        for line in &order.lines {
            call.key(keys.stock(&line.sku)).arg(line.units.get());
        }
        reply::reservation(&self.run("reserve", &call).await?)
    }

    /// Ends a hold of these lines; leave them empty to learn them from the reply.
    pub async fn end(
        &self,
        fence: &Fence,
        ending: Ending,
        id: &CallerId,
        lines: &Lines,
        word: Word,
    ) -> Result<ReservationReply, GateError> {
        let keys = Keys::new(self.partition, fence.generation);
        let (script, name) = match ending {
            Ending::Confirm => (&self.scripts.confirm, "confirm"),
            Ending::Release => (&self.scripts.release, "release"),
            Ending::Expire => (&self.scripts.expire, "expire"),
        };
        let mut call = script.prepare_invoke();
        self.begin(&mut call, &keys, fence, &keys.reservation(id));
        call.key(keys.expiry());
        call.arg(id.as_str()).arg(lines.to_text()).arg(reply::id_word(word));
        for line in lines {
            call.key(keys.stock(&line.sku)).arg(line.units.get());
        }
        reply::reservation(&self.run(name, &call).await?)
    }

    /// Changes the number received of a SKU. The words are what the ledger says about the request and the SKU.
    pub async fn change(
        &self,
        fence: &Fence,
        change: &ChangeStock,
        id_word: Word,
        sku_word: Word,
    ) -> Result<ChangeReply, GateError> {
        let keys = Keys::new(self.partition, fence.generation);
        let (script, name) = match change.act {
            Act::Receive => (&self.scripts.receive, "receive"),
            Act::Adjust => (&self.scripts.adjust, "adjust"),
        };
        let mut call = script.prepare_invoke();
        self.begin(&mut call, &keys, fence, &keys.request(&change.request_id));
        call.key(keys.stock(&change.sku));
        call.arg(change.request_id.as_str()).arg(change.fingerprint().as_str());
        call.arg(format!("{}={}", change.sku, change.delta)).arg(change.delta).arg(&change.reason);
        call.arg(reply::word(sku_word)).arg(crate::sku::Units::RECEIVED_MAX).arg(reply::word(id_word));
        reply::change(&self.run(name, &call).await?)
    }

    /// A SKU's counters as they are now, whether or not the ledger has them yet.
    pub async fn counters(&self, generation: Generation, sku: &Sku) -> Result<Read<Counters>, GateError> {
        let fields = ["received", "held", "sold", "seq"];
        let key = Keys::new(self.partition, generation).stock(sku);
        match self
            .read::<(Option<i64>, Option<i64>, Option<i64>, Option<i64>)>(generation, &key, &fields)
            .await?
        {
            Read::Found((Some(received), Some(held), Some(sold), Some(seq))) => {
                Ok(Read::Found(Counters { received, held, sold, seq: Seq(seq) }))
            }
            Read::Found((None, None, None, None)) | Read::Missing => Ok(Read::Missing),
            Read::Found(_) => Ok(Read::Fenced(Fenced("COUNTER_MISSING".to_owned()))),
            Read::Fenced(why) => Ok(Read::Fenced(why)),
        }
    }

    /// A reservation's recorded outcome.
    pub async fn recorded(&self, generation: Generation, id: &CallerId) -> Result<Read<Record>, GateError> {
        let key = Keys::new(self.partition, generation).reservation(id);
        match self.read::<Vec<Option<String>>>(generation, &key, &reply::RECORD_FIELDS).await? {
            Read::Found(fields) if fields.iter().any(Option::is_some) => {
                let fields: Vec<String> = fields.into_iter().map(Option::unwrap_or_default).collect();
                Ok(Read::Found(reply::record(&fields)?))
            }
            Read::Found(_) | Read::Missing => Ok(Read::Missing),
            Read::Fenced(why) => Ok(Read::Fenced(why)),
        }
    }

    /// Live holds whose time is over, at most `limit` of them, the longest over first.
    pub async fn lapsed(&self, fence: &Fence, limit: usize) -> Result<Read<Vec<String>>, GateError> {
        let keys = Keys::new(self.partition, fence.generation);
        let mut both = redis::pipe();
        both.atomic().hget(keys.head(), "generation");
        both.cmd("ZRANGEBYSCORE")
            .arg(keys.expiry())
            .arg("-inf")
            .arg(fence.now_ms)
            .arg("LIMIT")
            .arg(0)
            .arg(limit);
        let (open, ids): (Option<i64>, Vec<String>) = both.query_async(&mut self.commands.clone()).await?;
        Ok(generation_fence(open, fence.generation).map_or(Read::Found(ids), Read::Fenced))
    }

    /// Reads hash fields together with the open generation: a missing key of a lost Redis must not be taken for
    /// something that never was.
    async fn read<T: redis::FromRedisValue>(
        &self,
        generation: Generation,
        key: &str,
        fields: &[&str],
    ) -> Result<Read<T>, GateError> {
        let mut both = redis::pipe();
        both.atomic().hget(keys::head(self.partition), "generation").cmd("HMGET").arg(key).arg(fields);
        let (open, found): (Option<i64>, T) = both.query_async(&mut self.commands.clone()).await?;
        Ok(generation_fence(open, generation).map_or(Read::Found(found), Read::Fenced))
    }

    /// The first three keys and six arguments of every script.
    fn begin(&self, call: &mut redis::ScriptInvocation<'_>, keys: &Keys, fence: &Fence, outcome: &str) {
        let ttl_ms = u64::try_from(self.limits.outcome_ttl.as_millis()).unwrap_or(u64::MAX);
        call.key(keys.head()).key(keys.stream()).key(outcome);
        call.arg(fence.generation.0).arg(fence.floor.0).arg(fence.now_ms).arg(Nonce::random().0);
        call.arg(ttl_ms).arg(self.limits.backlog_entries);
    }

    async fn run(
        &self,
        name: &'static str,
        call: &redis::ScriptInvocation<'_>,
    ) -> Result<Vec<String>, GateError> {
        let span = tracing::info_span!(
            "redis.script",
            otel.name = %format_args!("script {name}"),
            otel.kind = "client",
            otel.status_code = Empty,
            db.system = "redis",
            db.operation.name = name,
            db.namespace = self.partition.0,
            holdfast.script.reply = Empty,
        );
        let reply: Result<Vec<String>, _> =
            call.invoke_async(&mut self.commands.clone()).instrument(span.clone()).await;
        record(&span, &reply);
        Ok(reply?)
    }
}

fn record(span: &Span, reply: &Result<Vec<String>, redis::RedisError>) {
    match reply {
        Ok(reply) => span.record("holdfast.script.reply", reply.first().map_or("", String::as_str)),
        Err(_) => span.record("otel.status_code", "ERROR"),
    };
}

fn generation_fence(open: Option<i64>, expected: Generation) -> Option<Fenced> {
    match open {
        None => Some(Fenced("HEAD_MISSING".to_owned())),
        Some(open) if open != expected.0 => Some(Fenced("GENERATION".to_owned())),
        Some(_) => None,
    }
}
