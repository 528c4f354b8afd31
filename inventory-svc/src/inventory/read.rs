//! Reads. GetStock asks Redis, for it is about what is free now; ListStock pages over the ledger, for a list is an
//! account, and must not change its order or lose a row between pages.

use super::{CallError, Inventory, away};
use crate::{
    ledger::Balance,
    reservation::{CallerId, Record},
    sku::Sku,
    standing::NotReady,
    stock::{Counters, Read},
};

impl Inventory {
    /// A reservation's recorded outcome.
    pub async fn reservation(&self, id: &CallerId) -> Result<Record, CallError> {
        let open = self.standing.open()?;
        match self.gate.recorded(open.generation(), id).await.map_err(|error| away(&error))? {
            Read::Found(record) => {
                if let Some(movement) = record.movement {
                    self.in_ledger(&open, movement).await?;
                }
                Ok(record)
            }
            Read::Missing => self.recorded(&open, id.as_str()).await?.ok_or(CallError::UnknownReservation),
            Read::Fenced(why) => Err(self.fenced(&open, &why.0)),
        }
    }

    /// A SKU's counters now.
    pub async fn stock(&self, sku: &Sku) -> Result<Counters, CallError> {
        let open = self.standing.open()?;
        match self.gate.counters(open.generation(), sku).await.map_err(|error| away(&error))? {
            Read::Found(counters) => Ok(counters),
            Read::Fenced(why) => Err(self.fenced(&open, &why.0)),
            Read::Missing if !self.knows(sku).await? => Err(CallError::UnknownSku),
            // Received in the moment between the two reads, or lost by Redis: looking again tells.
            Read::Missing => {
                match self.gate.counters(open.generation(), sku).await.map_err(|error| away(&error))? {
                    Read::Found(counters) => Ok(counters),
                    Read::Fenced(why) => Err(self.fenced(&open, &why.0)),
                    Read::Missing => Err(self.fenced(&open, "COUNTER_MISSING")),
                }
            }
        }
    }

    /// At most `limit` SKUs after this one, in byte order, as the ledger has them.
    pub async fn stock_after(&self, sku: Option<&Sku>, limit: i64) -> Result<Vec<Balance>, CallError> {
        self.ledger.balances_after(sku, limit).await.map_err(|error| CallError::from(away(&error)))
    }

    /// Whether calls can be answered now.
    pub fn is_open(&self) -> Result<(), NotReady> {
        self.standing.open().map(drop)
    }
}
