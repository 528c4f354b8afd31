//! Confirm and Release: how a caller ends a reservation.

use super::{CallError, Inventory, QUESTIONS_MAX, away};
use crate::{
    reservation::{CallerId, Record, State},
    sku::Lines,
    standing::NotReady,
    stock::{Ending, ReservationReply, Word},
};

impl Inventory {
    /// Sells what the reservation holds.
    pub async fn confirm(&self, id: &CallerId) -> Result<Record, CallError> {
        self.end(Ending::Confirm, id).await?.answer_confirm().map_err(CallError::Denied)
    }

    /// Gives back what the reservation holds, or leaves a tombstone.
    pub async fn release(&self, id: &CallerId) -> Result<Record, CallError> {
        self.end(Ending::Release, id).await?.answer_release().map_err(CallError::Denied)
    }

    /// The script is asked first, for Redis usually knows the id; it says what it lacks: the ledger's word on an id it
    /// does not know, or the lines of the hold, whose counters are keys it must be given.
    async fn end(&self, ending: Ending, id: &CallerId) -> Result<Record, CallError> {
        let open = self.standing.open()?;
        let (mut lines, mut word) = (Lines::default(), Word::Unasked);
        for _ in 0..QUESTIONS_MAX {
            let fence = open.fence(self.clock.now_ms());
            let reply =
                self.gate.end(&fence, ending, id, &lines, word).await.map_err(|error| away(&error))?;
            match reply {
                ReservationReply::Lines(of_hold) => lines = of_hold,
                ReservationReply::UnknownId => match self.recorded(&open, id.as_str()).await? {
                    None => word = Word::None,
                    Some(record) if record.state == State::Held => word = Word::Known,
                    // Ended long ago. An expired one is not marked as released: it refuses a late Reserve as it is.
                    Some(record) => return Ok(record),
                },
                reply => return self.settled(&open, reply).await,
            }
        }
        Err(NotReady::Fenced.into())
    }
}
