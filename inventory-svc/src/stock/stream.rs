//! Reading movements from a generation's stream, and cutting off what the ledger has.

use std::{collections::HashMap, time::Duration};

use redis::{
    AsyncConnectionConfig, Value,
    aio::MultiplexedConnection,
    streams::{StreamRangeReply, StreamReadReply},
};

use super::{
    CONNECT_TIMEOUT, Gate, GateError, RESPONSE_TIMEOUT,
    reply::{integer, lines, position},
};
use crate::{
    keys::Keys,
    movement::{Act, Change, Kind, Movement, StockChange},
    partition::{Generation, Nonce, Position, Seq},
    reservation::{CallerId, State},
    sku::Sku,
};

/// Entries kept behind the ledger's head, so that another process that is a little behind still sees the chain.
pub const TAIL_ENTRIES: i64 = 256;

/// A connection of its own for blocking reads: on the shared one a blocked read would hold up every script.
#[derive(Debug)]
pub struct StreamReader {
    connection: MultiplexedConnection,
    keys: Keys,
}

impl Gate {
    /// Opens a reader of a generation's stream whose reads may block for `block`.
    pub async fn stream_reader(
        &self,
        generation: Generation,
        block: Duration,
    ) -> Result<StreamReader, GateError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(block + RESPONSE_TIMEOUT));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(StreamReader { connection, keys: Keys::new(self.partition, generation) })
    }

    /// The movement at this place, if the stream still has it.
    pub async fn movement_at(&self, place: Position) -> Result<Option<Movement>, GateError> {
        let key = Keys::new(self.partition, place.generation).stream();
        let place = place.to_string();
        let mut command = redis::cmd("XRANGE");
        command.arg(key).arg(&place).arg(&place).arg("COUNT").arg(1);
        let reply: StreamRangeReply = command.query_async(&mut self.commands.clone()).await?;
        reply.ids.into_iter().next().map(|entry| movement(&entry.id, &entry.map)).transpose()
    }
}

impl StreamReader {
    /// The movements after `after`, at most `entries`; none if none came within `block`.
    pub async fn read(
        &mut self,
        after: Position,
        entries: usize,
        block: Duration,
    ) -> Result<Vec<Movement>, GateError> {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(entries).arg("BLOCK").arg(u64::try_from(block.as_millis()).unwrap_or(1));
        command.arg("STREAMS").arg(self.keys.stream()).arg(after.to_string());
        let reply: Option<StreamReadReply> = command.query_async(&mut self.connection).await?;
        let entries = reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids);
        entries.map(|entry| movement(&entry.id, &entry.map)).collect()
    }

    /// Cuts off what lies more than [`TAIL_ENTRIES`] behind the ledger's head.
    pub async fn trim(&mut self, head: Position) -> Result<(), GateError> {
        let oldest = Position { seq: Seq((head.seq.0 - TAIL_ENTRIES).max(0)), ..head };
        let mut command = redis::cmd("XTRIM");
        command.arg(self.keys.stream()).arg("MINID").arg(oldest.to_string());
        let _cut: i64 = command.query_async(&mut self.connection).await?;
        Ok(())
    }
}

type Fields = HashMap<String, Value>;

fn movement(id: &str, fields: &Fields) -> Result<Movement, GateError> {
    let kind = match text(fields, "kind")?.as_str() {
        "RESERVE" => Kind::Reservation(change(fields, State::Held)?),
        "CONFIRM" => Kind::Reservation(change(fields, State::Confirmed)?),
        "RELEASE" => Kind::Reservation(change(fields, State::Released)?),
        "EXPIRE" => Kind::Reservation(change(fields, State::Expired)?),
        "RECEIVE" => Kind::Stock(stock_change(fields, Act::Receive)?),
        "ADJUST" => Kind::Stock(stock_change(fields, Act::Adjust)?),
        _ => return Err(GateError::Unreadable("a movement's kind")),
    };
    Ok(Movement {
        position: position(id)?,
        nonce: Nonce(text(fields, "nonce")?),
        prev: Nonce(text(fields, "prev")?),
        at_ms: integer(&text(fields, "at")?)?,
        kind,
    })
}

fn change(fields: &Fields, to: State) -> Result<Change, GateError> {
    let from = match text(fields, "from")?.as_str() {
        "" => None,
        name => Some(State::from_name(name).map_err(|_| GateError::Unreadable("a state"))?),
    };
    let some = |text: String| (!text.is_empty()).then_some(text);
    let customer = some(text(fields, "customer")?);
    Ok(Change {
        id: caller_id(&text(fields, "id")?)?,
        from,
        to,
        lines: lines(&text(fields, "lines")?)?,
        fingerprint: some(text(fields, "fingerprint")?),
        customer: customer.as_deref().map(caller_id).transpose()?,
        expires_ms: some(text(fields, "expires")?).as_deref().map(integer).transpose()?,
    })
}

fn stock_change(fields: &Fields, act: Act) -> Result<StockChange, GateError> {
    let line = text(fields, "lines")?;
    let (sku, delta) = line.split_once('=').ok_or(GateError::Unreadable("a line"))?;
    let counters = text(fields, "counters")?;
    let counters = counters.split(',').map(integer).collect::<Result<Vec<_>, _>>()?;
    Ok(StockChange {
        request_id: caller_id(&text(fields, "id")?)?,
        act,
        sku: Sku::parse(sku).map_err(|_| GateError::Unreadable("a SKU"))?,
        delta: integer(delta)?,
        fingerprint: text(fields, "fingerprint")?,
        reason: text(fields, "reason")?,
        counters: counters.try_into().map_err(|_| GateError::Unreadable("counters"))?,
    })
}

fn caller_id(text: &str) -> Result<CallerId, GateError> {
    CallerId::parse(text).map_err(|_| GateError::Unreadable("an id"))
}

fn text(fields: &Fields, name: &'static str) -> Result<String, GateError> {
    let value = fields.get(name).ok_or(GateError::Unreadable(name))?;
    redis::from_redis_value_ref(value).map_err(|_| GateError::Unreadable(name))
}
