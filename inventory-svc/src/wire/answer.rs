//! Domain values as messages.

use proto::inventory::v1 as api;

use crate::{
    reservation::{CallerId, Record, RefusalReason, State},
    sku::Sku,
    stock::Counters,
};

/// A reservation as it stands.
pub fn reservation(id: &CallerId, record: &Record) -> api::Reservation {
    let state = match record.state {
        State::Held => api::reservation::State::Held,
        State::Confirmed => api::reservation::State::Confirmed,
        State::Released => api::reservation::State::Released,
        State::Expired => api::reservation::State::Expired,
        State::Refused => api::reservation::State::Refused,
    };
    let line = |line: &crate::sku::Line| api::Line { sku: line.sku.to_string(), quantity: line.units.get() };
    let refusal = record.refusal.as_ref();
    api::Reservation {
        reservation_id: id.to_string(),
        lines: record.lines.iter().map(line).collect(),
        state: state.into(),
        expire_time: record.expires_ms.map(timestamp),
        refusal_reason: refusal.map_or_else(String::new, |refusal| reason(refusal.reason).to_owned()),
        refused_skus: refusal
            .map_or_else(Vec::new, |refusal| refusal.skus.iter().map(Sku::to_string).collect()),
        movement: record.movement.map_or_else(String::new, |movement| movement.to_string()),
    }
}

/// The stable name of a refusal.
pub(crate) const fn reason(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::InsufficientStock => proto::reason::INSUFFICIENT_STOCK,
        RefusalReason::UnknownSku => proto::reason::UNKNOWN_SKU,
    }
}

/// A SKU's counters.
pub fn stock(sku: &Sku, counters: &Counters) -> api::Stock {
    let Counters { received, held, sold, seq } = counters;
    api::Stock {
        sku: sku.to_string(),
        available: counters.available(),
        held: *held,
        sold: *sold,
        received: *received,
        // The counters stand in it because a movement that was lost with Redis gives its seq to another one.
        etag: format!("{}.{received}.{held}.{sold}", seq.0),
    }
}

fn timestamp(ms: i64) -> prost_types::Timestamp {
    // Nanos of a remainder below 1,000 always fit.
    let nanos = i32::try_from(ms.rem_euclid(1_000) * 1_000_000).unwrap_or(0);
    prost_types::Timestamp { seconds: ms.div_euclid(1_000), nanos }
}
