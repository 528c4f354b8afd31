//! What the scripts answer, read into types. The shapes are written down at the top of each script.

use super::{Counters, Fenced, GateError, Word};
use crate::{
    partition::{Position, Seq},
    reservation::{Fingerprint, Record, Refusal, RefusalReason, State},
    sku::Lines,
};

/// What a reservation script answered.
#[derive(Debug)]
pub enum ReservationReply {
    /// This Redis is not the one the ledger follows; nothing was changed.
    Fenced(Fenced),
    /// The ledger is too far behind; nothing was changed.
    Backlogged,
    /// The id was used for something else; nothing was changed.
    Reused,
    /// Ask the ledger about the id; nothing was changed.
    UnknownId,
    /// Ask the ledger about the SKUs of these lines, counted from 1; nothing was changed.
    Missing(Vec<usize>),
    /// The hold has these lines: ask again with them; nothing was changed.
    Lines(Lines),
    /// The reservation as it now stands.
    Record(Record),
}

/// What a stock change script answered.
#[derive(Debug)]
pub enum ChangeReply {
    /// This Redis is not the one the ledger follows; nothing was changed.
    Fenced(Fenced),
    /// The ledger is too far behind; nothing was changed.
    Backlogged,
    /// The request id was used for another change; nothing was changed.
    Reused,
    /// Ask the ledger about the request; nothing was changed.
    UnknownId,
    /// Ask the ledger about the SKU; nothing was changed.
    Missing,
    /// More would be received than can be counted; nothing was changed.
    TooMuch,
    /// Refused, and remembered as refused.
    Refused(RefusalReason),
    /// Made, now or before, with the counters right after.
    Changed(Position, Counters),
}

/// The fields of a reservation's outcome, in the order of the scripts' `RECORD` reply.
pub(super) const RECORD_FIELDS: [&str; 7] =
    ["state", "fingerprint", "movement", "lines", "expires", "refusal", "refused"];

pub(super) fn word(word: Word) -> &'static str {
    match word {
        Word::Unasked => "unasked",
        Word::None => "none",
        Word::Known => "known",
    }
}

/// Only a live hold may not be missing from Redis; ended ones are answered from the ledger before a script is asked.
pub(super) fn id_word(known: Word) -> &'static str {
    if known == Word::Known { "held" } else { word(known) }
}

pub(super) fn reservation(reply: &[String]) -> Result<ReservationReply, GateError> {
    let parts: Vec<&str> = reply.iter().map(String::as_str).collect();
    Ok(match parts.as_slice() {
        ["FENCED", why] => ReservationReply::Fenced(Fenced((*why).to_owned())),
        ["BACKLOGGED"] => ReservationReply::Backlogged,
        ["REUSED"] => ReservationReply::Reused,
        ["UNKNOWN_ID"] => ReservationReply::UnknownId,
        ["MISSING", places_text] => ReservationReply::Missing(places(places_text)?),
        ["LINES", text] => ReservationReply::Lines(lines(text)?),
        ["RECORD", ..] => ReservationReply::Record(record(&reply[1..])?),
        _ => return Err(GateError::Unreadable("a reservation script's reply")),
    })
}

pub(super) fn change(reply: &[String]) -> Result<ChangeReply, GateError> {
    let parts: Vec<&str> = reply.iter().map(String::as_str).collect();
    Ok(match parts.as_slice() {
        ["FENCED", why] => ChangeReply::Fenced(Fenced((*why).to_owned())),
        ["BACKLOGGED"] => ChangeReply::Backlogged,
        ["REUSED"] => ChangeReply::Reused,
        ["UNKNOWN_ID"] => ChangeReply::UnknownId,
        ["MISSING"] => ChangeReply::Missing,
        ["TOO_MUCH"] => ChangeReply::TooMuch,
        ["REFUSED", reason] => ChangeReply::Refused(refusal_reason(reason)?),
        ["CHANGED", movement, received, held, sold, seq] => {
            let counters = Counters {
                received: integer(received)?,
                held: integer(held)?,
                sold: integer(sold)?,
                seq: Seq(integer(seq)?),
            };
            ChangeReply::Changed(position(movement)?, counters)
        }
        _ => return Err(GateError::Unreadable("a stock script's reply")),
    })
}

/// Reads [`RECORD_FIELDS`].
pub(super) fn record(fields: &[String]) -> Result<Record, GateError> {
    let [state, fingerprint, movement, lines_text, expires, refusal, refused] = fields else {
        return Err(GateError::Unreadable("an outcome"));
    };
    let lines = lines(lines_text)?;
    let refusal = match refusal.as_str() {
        "" => None,
        reason => Some(Refusal { reason: refusal_reason(reason)?, skus: lines.skus_at(&places(refused)?) }),
    };
    Ok(Record {
        state: State::from_name(state).map_err(|_| GateError::Unreadable("a state"))?,
        fingerprint: Fingerprint::recorded(fingerprint),
        movement: if movement.is_empty() { None } else { Some(position(movement)?) },
        lines,
        expires_ms: if expires.is_empty() { None } else { Some(integer(expires)?) },
        refusal,
    })
}

pub(super) fn lines(text: &str) -> Result<Lines, GateError> {
    Lines::from_text(text).map_err(|_| GateError::Unreadable("lines"))
}

pub(super) fn integer(text: &str) -> Result<i64, GateError> {
    text.parse().map_err(|_| GateError::Unreadable("a number"))
}

pub(super) fn position(text: &str) -> Result<Position, GateError> {
    text.parse().map_err(|_| GateError::Unreadable("a position"))
}

fn places(text: &str) -> Result<Vec<usize>, GateError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let place = |text: &str| text.parse().map_err(|_| GateError::Unreadable("a place"));
    text.split(',').map(place).collect()
}

fn refusal_reason(name: &str) -> Result<RefusalReason, GateError> {
    match name {
        "INSUFFICIENT_STOCK" => Ok(RefusalReason::InsufficientStock),
        "UNKNOWN_SKU" => Ok(RefusalReason::UnknownSku),
        _ => Err(GateError::Unreadable("a refusal")),
    }
}
