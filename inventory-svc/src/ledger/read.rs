//! What the ledger answers: recorded outcomes that Redis no longer remembers, and balances.

use std::collections::HashMap;

use sqlx::{Row, postgres::PgRow};

use super::{Ledger, LedgerError, sql};
use crate::{
    partition::{Generation, Position, Seq},
    reservation::{Fingerprint, Record, State},
    sku::{Line, Lines, Sku, Units},
    stock::Counters,
};

/// A SKU and its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balance {
    /// The SKU.
    pub sku: Sku,
    /// Its counters.
    pub counters: Counters,
}

/// A receipt or adjustment that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeChange {
    /// What the request meant.
    pub fingerprint: String,
    /// Its movement.
    pub movement: Position,
    /// The counters right after.
    pub counters: Counters,
    /// When, in ms of the database's clock.
    pub at_ms: i64,
}

/// A reservation and what only a rebuild needs of it.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) id: String,
    pub(super) record: Record,
    pub(super) customer: Option<String>,
    pub(super) changed_ms: i64,
}

impl Ledger {
    /// The reservations of these ids that are known, by id.
    pub async fn reservations(&self, ids: &[String]) -> Result<HashMap<String, Record>, LedgerError> {
        let rows = sqlx::query(sql::RESERVATIONS_BY_ID).bind(ids).fetch_all(&self.readers).await?;
        rows.iter().map(|row| recorded(row).map(|recorded| (recorded.id, recorded.record))).collect()
    }

    /// The receipts and adjustments of these request ids that were made, by request id.
    pub async fn changes(&self, ids: &[String]) -> Result<HashMap<String, MadeChange>, LedgerError> {
        let rows = sqlx::query(sql::CHANGES_BY_ID).bind(ids).fetch_all(&self.readers).await?;
        rows.iter().map(made_change).collect()
    }

    /// The balances of these SKUs that are known, by SKU.
    pub async fn balances(&self, skus: &[String]) -> Result<HashMap<String, Balance>, LedgerError> {
        let rows = sqlx::query(sql::BALANCES_BY_SKU).bind(skus).fetch_all(&self.readers).await?;
        rows.iter().map(|row| balance(row).map(|found| (found.sku.as_str().to_owned(), found))).collect()
    }

    /// At most `limit` balances of SKUs after this one, in byte order; `None` begins at the first.
    pub async fn balances_after(&self, sku: Option<&Sku>, limit: i64) -> Result<Vec<Balance>, LedgerError> {
        let rows = sqlx::query(sql::BALANCES_PAGE)
            .bind(self.partition.0)
            .bind(sku.map_or("", Sku::as_str))
            .bind(limit)
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(balance).collect()
    }
}

pub(super) fn balance(row: &PgRow) -> Result<Balance, LedgerError> {
    let sku = Sku::parse(row.try_get("sku")?).map_err(|_| LedgerError::Unreadable("a SKU"))?;
    let counters = Counters {
        received: row.try_get("received")?,
        held: row.try_get("held")?,
        sold: row.try_get("sold")?,
        seq: Seq(row.try_get("seq")?),
    };
    Ok(Balance { sku, counters })
}

pub(super) fn recorded(row: &PgRow) -> Result<Recorded, LedgerError> {
    let fingerprint: Option<String> = row.try_get("fingerprint")?;
    let record = Record {
        state: State::from_name(row.try_get("state")?).map_err(|_| LedgerError::Unreadable("a state"))?,
        fingerprint: fingerprint.as_deref().and_then(Fingerprint::recorded),
        movement: Some(position(row)?),
        lines: lines(row)?,
        expires_ms: row.try_get("expires_ms")?,
        refusal: None,
    };
    Ok(Recorded {
        id: row.try_get("id")?,
        record,
        customer: row.try_get("customer_id")?,
        changed_ms: row.try_get("changed_ms")?,
    })
}

pub(super) fn made_change(row: &PgRow) -> Result<(String, MadeChange), LedgerError> {
    let counters: Vec<i64> = row.try_get("counters")?;
    let [received, held, sold] = counters[..] else { return Err(LedgerError::Unreadable("counters")) };
    let movement = position(row)?;
    let made = MadeChange {
        fingerprint: row.try_get("fingerprint")?,
        movement,
        counters: Counters { received, held, sold, seq: movement.seq },
        at_ms: row.try_get("at_ms")?,
    };
    Ok((row.try_get("request_id")?, made))
}

fn position(row: &PgRow) -> Result<Position, LedgerError> {
    Ok(Position { generation: Generation(row.try_get("generation")?), seq: Seq(row.try_get("seq")?) })
}

fn lines(row: &PgRow) -> Result<Lines, LedgerError> {
    let (skus, quantities): (Vec<String>, Vec<i64>) = (row.try_get("skus")?, row.try_get("quantities")?);
    let line = |(sku, quantity): (&String, &i64)| {
        Some(Line { sku: Sku::parse(sku).ok()?, units: Units::new(*quantity)? })
    };
    let lines: Option<Vec<Line>> = skus.iter().zip(&quantities).map(line).collect();
    lines.and_then(|lines| Lines::merge(lines).ok()).ok_or(LedgerError::Unreadable("lines"))
}
