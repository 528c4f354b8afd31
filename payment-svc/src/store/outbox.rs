//! The rows of reports that are still to be delivered. They are written with the change they tell of (`Tx::save`).

use super::{Store, StoreError, row, sql};
use crate::{
    ids::{PaymentId, Reference},
    money::{Currency, MinorUnits, Money},
    payment::Report,
};
use sqlx::{Row, postgres::PgRow};
use std::time::Duration;

/// A claimed report.
#[derive(Clone, Debug)]
pub(crate) struct ReportRow {
    /// The row.
    pub id: i64,
    /// About which payment.
    pub payment_id: PaymentId,
    /// To whom.
    pub reference: Reference,
    /// What happened.
    pub report: Report,
    /// To how much.
    pub amount: Money,
    /// The receiver drops repeats by it.
    pub provider_event_id: String,
    /// The trace of the charge.
    pub traceparent: Option<String>,
    /// How often it was claimed, this time included.
    pub attempts: i32,
    /// How long ago the fact was recorded.
    pub age: Duration,
}

impl Store {
    /// Takes at most `limit` reports that are due and hides them from others for 10 s. Of one payment only the
    /// oldest undelivered report can be taken, so its owner hears of things in the order they happened.
    pub(crate) async fn claim_reports(&self, limit: i64) -> Result<Vec<ReportRow>, StoreError> {
        let rows = sqlx::query(sql::CLAIM_REPORTS).bind(limit).fetch_all(&self.pool).await?;
        rows.iter().map(report).collect()
    }

    /// Forgets delivered reports.
    pub(crate) async fn delivered(&self, ids: &[i64]) -> Result<(), StoreError> {
        sqlx::query(sql::DELIVERED).bind(ids).execute(&self.pool).await?;
        Ok(())
    }

    /// Makes reports due again, each after its own delay.
    pub(crate) async fn postpone(&self, ids: &[i64], delays_ms: &[i64]) -> Result<(), StoreError> {
        sqlx::query(sql::POSTPONE).bind(ids).bind(delays_ms).execute(&self.pool).await?;
        Ok(())
    }

    /// Gives reports up. They stay for operators to see, and no longer hold back later reports of their payment.
    pub(crate) async fn abandon(&self, ids: &[i64]) -> Result<(), StoreError> {
        sqlx::query(sql::ABANDON).bind(ids).execute(&self.pool).await?;
        Ok(())
    }
}

fn report(found: &PgRow) -> Result<ReportRow, StoreError> {
    let unreadable = StoreError::Unreadable("payment.outbox");
    let kind: String = found.try_get("kind")?;
    let currency: String = found.try_get("currency")?;
    let age_ms: i64 = found.try_get("age_ms")?;
    let (Some(report), Some(currency), Some(units)) =
        (row::report_of(&kind), Currency::parse(&currency), MinorUnits::new(found.try_get("amount")?))
    else {
        return Err(unreadable);
    };
    Ok(ReportRow {
        id: found.try_get("id")?,
        payment_id: PaymentId::stored(found.try_get("payment_id")?),
        reference: Reference::stored(found.try_get("reference")?),
        report,
        amount: Money { currency, units },
        provider_event_id: found.try_get("provider_event_id")?,
        traceparent: found.try_get("traceparent")?,
        attempts: found.try_get("attempts")?,
        age: Duration::from_millis(age_ms.max(0).unsigned_abs()),
    })
}
