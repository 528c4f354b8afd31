//! Rows into values and back. Bare texts and numbers end here.

use crate::{
    ids::{PaymentId, Reference, Scope},
    money::{Currency, MinorUnits},
    payment::{Report, Standing, State, Wish},
    record::{Fingerprint, Payment},
    store::StoreError,
};
use chrono::{DateTime, Utc};
use sqlx::{Row, postgres::PgRow};

pub(super) fn payment(row: &PgRow) -> Result<Payment, StoreError> {
    let unreadable = StoreError::Unreadable("payment.payments");
    let cancel_requested: Option<DateTime<Utc>> = row.try_get("cancel_requested_at")?;
    let state: String = row.try_get("state")?;
    let reference: String = row.try_get("reference")?;
    let currency: String = row.try_get("currency")?;
    let (Some(state), Some(currency)) = (state_of(&state), Currency::parse(&currency)) else {
        return Err(unreadable);
    };
    Ok(Payment {
        payment_id: PaymentId::stored(row.try_get("payment_id")?),
        scope: Scope::stored(row.try_get("scope")?),
        reference: (!reference.is_empty()).then(|| Reference::stored(reference)),
        fingerprint: fingerprint(row)?,
        currency,
        standing: Standing {
            state,
            wish: if cancel_requested.is_some() { Wish::GiveBack } else { Wish::Keep },
            amount: units(row, "amount")?,
            captured: units(row, "captured")?,
            refunded: units(row, "refunded")?,
            refund_pending: units(row, "refund_pending")?,
        },
        payment_token: row.try_get("payment_token")?,
        provider_reference: row.try_get("provider_reference")?,
        decline_reason: row.try_get("decline_reason")?,
        traceparent: row.try_get("traceparent")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}

pub(super) fn fingerprint(row: &PgRow) -> Result<Fingerprint, StoreError> {
    let bytes: &[u8] = row.try_get("fingerprint")?;
    Ok(Fingerprint(bytes.try_into().map_err(|_| StoreError::Unreadable("fingerprint"))?))
}

pub(super) fn units(row: &PgRow, column: &'static str) -> Result<MinorUnits, StoreError> {
    MinorUnits::new(row.try_get(column)?).ok_or(StoreError::Unreadable(column))
}

pub(super) fn state_text(state: State) -> &'static str {
    match state {
        State::Processing => "PROCESSING",
        State::Captured => "CAPTURED",
        State::Declined => "DECLINED",
        State::Cancelled => "CANCELLED",
    }
}

fn state_of(text: &str) -> Option<State> {
    State::ALL.into_iter().find(|state| state_text(*state) == text)
}

pub(super) fn report_text(report: Report) -> &'static str {
    match report {
        Report::Captured => "CAPTURED",
        Report::Declined => "DECLINED",
    }
}

pub(super) fn report_of(text: &str) -> Option<Report> {
    [Report::Captured, Report::Declined].into_iter().find(|report| report_text(*report) == text)
}
