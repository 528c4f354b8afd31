//! Reserve: holds all lines or none, or tells what became of the id before.

use std::collections::HashSet;

use super::{CallError, Inventory, QUESTIONS_MAX, away, misunderstood};
use crate::{
    reservation::{CallerId, Denied, Fingerprint, Record, State},
    sku::Lines,
    standing::{NotReady, Open},
    stock::{ReservationReply, Reserve, Word},
};

/// What a caller asks to be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveOrder {
    /// The caller's id.
    pub id: CallerId,
    /// Merged and sorted.
    pub lines: Lines,
    /// For whom.
    pub customer: Option<CallerId>,
    /// What the request means.
    pub fingerprint: Fingerprint,
    /// For how long, from now.
    pub hold_ms: i64,
}

impl Inventory {
    /// Makes the reservation, or answers with its recorded outcome.
    pub async fn reserve(&self, order: ReserveOrder) -> Result<Record, CallError> {
        let open = self.standing.open()?;
        // Asked first, because almost every id is new to Redis, and one Redis has forgotten is not new.
        let id_word = match self.recorded(&open, order.id.as_str()).await? {
            None => Word::None,
            Some(record) if record.state == State::Held => Word::Known,
            Some(record) => return record.answer_reserve(&order.fingerprint).map_err(CallError::Denied),
        };
        let order = Reserve {
            id: order.id,
            lines: order.lines,
            fingerprint: order.fingerprint,
            customer: order.customer,
            expires_ms: self.clock.now_ms() + order.hold_ms,
        };
        let (mut sku_word, mut should_exist) = (Word::Unasked, HashSet::new());
        for _ in 0..QUESTIONS_MAX {
            let fence = open.fence(self.clock.now_ms());
            let reply =
                self.gate.reserve(&fence, &order, id_word, sku_word).await.map_err(|error| away(&error))?;
            match reply {
                ReservationReply::Missing(places) => {
                    let missing = order.lines.skus_at(&places);
                    let known = self.known(&missing).await?;
                    // A SKU may have been received between the script and the ledger's answer. Only one that is
                    // missing again although the ledger had it before was lost.
                    if missing.iter().any(|sku| should_exist.contains(sku)) {
                        sku_word = Word::Known;
                    } else if known.is_empty() {
                        sku_word = Word::None;
                    }
                    should_exist = known;
                }
                reply => {
                    return self
                        .settled(&open, reply)
                        .await?
                        .answer_reserve(&order.fingerprint)
                        .map_err(CallError::Denied);
                }
            }
        }
        Err(NotReady::Fenced.into())
    }

    /// The outcome a script left, once it may be told.
    pub(super) async fn settled(&self, open: &Open, reply: ReservationReply) -> Result<Record, CallError> {
        match reply {
            ReservationReply::Record(record) => {
                if let Some(movement) = record.movement {
                    self.in_ledger(open, movement).await?;
                }
                Ok(record)
            }
            ReservationReply::Fenced(why) => Err(self.fenced(open, &why.0)),
            ReservationReply::Backlogged => Err(NotReady::Backlogged.into()),
            ReservationReply::Reused => Err(CallError::Denied(Denied::Reused)),
            ReservationReply::UnknownId | ReservationReply::Missing(_) | ReservationReply::Lines(_) => {
                Err(misunderstood().into())
            }
        }
    }
}
