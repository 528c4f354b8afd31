//! ReceiveStock and AdjustStock: how the number received changes.

use super::{CallError, Inventory, QUESTIONS_MAX, away, misunderstood};
use crate::{
    reservation::Denied,
    standing::NotReady,
    stock::{ChangeReply, ChangeStock, Counters, Word},
};

impl Inventory {
    /// Makes the change, or answers with its recorded outcome: the counters right after it.
    pub async fn change_stock(&self, change: &ChangeStock) -> Result<Counters, CallError> {
        let open = self.standing.open()?;
        if let Some(made) = self.recorded_change(&open, change.request_id.as_str()).await? {
            let same = made.fingerprint == change.fingerprint().as_str();
            return if same { Ok(made.counters) } else { Err(CallError::Denied(Denied::Reused)) };
        }
        let mut sku_word = Word::Unasked;
        for _ in 0..QUESTIONS_MAX {
            let fence = open.fence(self.clock.now_ms());
            let reply =
                self.gate.change(&fence, change, Word::None, sku_word).await.map_err(|error| away(&error))?;
            return match reply {
                ChangeReply::Missing => {
                    let known = self.knows(&change.sku).await?;
                    sku_word = if known { Word::Known } else { Word::None };
                    continue;
                }
                ChangeReply::Changed(movement, counters) => {
                    self.in_ledger(&open, movement).await?;
                    Ok(counters)
                }
                ChangeReply::Refused(reason) => Err(CallError::ChangeRefused(reason)),
                ChangeReply::Reused => Err(CallError::Denied(Denied::Reused)),
                ChangeReply::TooMuch => Err(CallError::TooMuch),
                ChangeReply::Fenced(why) => Err(self.fenced(&open, &why.0)),
                ChangeReply::Backlogged => Err(NotReady::Backlogged.into()),
                ChangeReply::UnknownId => Err(misunderstood().into()),
            };
        }
        Err(NotReady::Fenced.into())
    }
}
