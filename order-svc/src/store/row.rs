//! Rows of `orders.orders` as values that cannot be wrong.

use chrono::{DateTime, Utc};
use saga::SagaId;
use sqlx::{Row as _, postgres::PgRow};

use super::{Living, Locked};
use crate::order::{
    CancelReason, Currency, Line, MinorUnits, Money, OrderId, OrderState, PaymentState, Quantity, Sku,
    Standing,
};

/// Raised with every change of an order: its etag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub i64);

/// An order as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Its id.
    pub order_id: OrderId,
    /// The caller's id for it.
    pub request_id: String,
    /// The saga that carries it.
    pub saga: SagaId,
    /// Empty for a guest.
    pub customer_id: String,
    /// As sent.
    pub lines: Vec<Line>,
    /// What is to be paid.
    pub total: Money,
    /// Where it stands.
    pub standing: Standing,
    /// The SKUs that stood in the way.
    pub refused_skus: Vec<String>,
    /// Trace context of the call that placed it.
    pub traceparent: Option<String>,
    /// When it was placed.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
    /// When it is closed if it is not paid by then.
    pub expires_at: DateTime<Utc>,
    /// Its etag.
    pub version: Version,
}

impl Order {
    pub(super) fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let skus: Vec<String> = row.try_get("skus")?;
        let quantities: Vec<i64> = row.try_get("quantities")?;
        let prices: Vec<i64> = row.try_get("prices_minor")?;
        let line = |((sku, quantity), price)| Line {
            sku: Sku(sku),
            quantity: Quantity(quantity),
            unit_price: MinorUnits(price),
        };
        Ok(Self {
            order_id: OrderId(row.try_get("order_id")?),
            request_id: row.try_get("request_id")?,
            saga: SagaId(row.try_get("saga_id")?),
            customer_id: row.try_get("customer_id")?,
            lines: skus.into_iter().zip(quantities).zip(prices).map(line).collect(),
            total: Money {
                currency: Currency(row.try_get("currency")?),
                amount: MinorUnits(row.try_get("total_minor")?),
            },
            standing: standing(row)?,
            refused_skus: row.try_get("refused_skus")?,
            traceparent: row.try_get("traceparent")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
            expires_at: row.try_get("expires_at")?,
            version: Version(row.try_get("version")?),
        })
    }
}

pub(super) fn standing_of(row: &PgRow) -> Result<(SagaId, OrderId, Version, Standing), sqlx::Error> {
    let saga = SagaId(row.try_get("saga_id")?);
    Ok((saga, OrderId(row.try_get("order_id")?), Version(row.try_get("version")?), standing(row)?))
}

pub(super) fn locked(row: &PgRow) -> Result<Locked, sqlx::Error> {
    Ok(Locked {
        standing: standing(row)?,
        saga: SagaId(row.try_get("saga_id")?),
        currency: row.try_get("currency")?,
        total_minor: row.try_get("total_minor")?,
        payment_id: row.try_get("payment_id")?,
        pays_itself: row.try_get("pays_itself")?,
        traceparent: row.try_get("traceparent")?,
    })
}

pub(super) fn living(row: &PgRow) -> Result<Living, sqlx::Error> {
    Ok(Living {
        order_id: OrderId(row.try_get("order_id")?),
        saga: SagaId(row.try_get("saga_id")?),
        standing: standing(row)?,
        expires_at: row.try_get("expires_at")?,
    })
}

fn standing(row: &PgRow) -> Result<Standing, sqlx::Error> {
    let cancel_reason: Option<&str> = row.try_get("cancel_reason")?;
    Ok(Standing {
        state: named(row.try_get("state")?, OrderState::parse)?,
        cancel_reason: cancel_reason.map(|name| named(name, CancelReason::parse)).transpose()?,
        payment: named(row.try_get("payment_state")?, PaymentState::parse)?,
    })
}

fn named<T>(name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, sqlx::Error> {
    parse(name).ok_or_else(|| sqlx::Error::Decode(format!("no value is named {name:?}").into()))
}
