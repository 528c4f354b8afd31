//! Orders in Postgres. All SQL of this crate is in `store/sql.rs`; every write that matters is conditional.

use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, Utc};
use futures::TryStreamExt as _;
use saga::SagaId;
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::{
    checkout::progress::OrderChange,
    order::{CancelReason, Line, OrderId, OrderState, Payment, Placement, Standing},
};

mod row;
mod sql;

pub use self::row::{Order, Version};

/// The store failed, or holds what cannot be.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database failed or did not answer: what was asked may have happened.
    #[error("the order store failed")]
    Database(#[from] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("the order store's schema could not be migrated")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// What ListOrders looks for; empty fields match everything.
#[derive(Debug, Default)]
pub struct Filter {
    /// Only orders of this customer.
    pub customer_id: Option<String>,
    /// Only the order placed with this request id.
    pub request_id: Option<String>,
    /// Only orders in this state.
    pub state: Option<OrderState>,
    /// Only orders cancelled for this reason.
    pub cancel_reason: Option<CancelReason>,
    /// Only orders older than this one.
    pub before: Option<OrderId>,
    /// At most so many.
    pub limit: i64,
}

/// One page of orders.
pub struct Page {
    /// Newest first.
    pub orders: Vec<Order>,
    /// Whether no order follows.
    pub is_last: bool,
}

/// A page larger than this is ended: clients refuse messages of more than 4 MiB unless they are told otherwise, and one
/// order more may follow.
const PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// What a line takes beside its SKU.
const LINE_BYTES: usize = 40;

/// An order row, locked for a report of a payment.
pub struct Locked {
    /// Where it stands.
    pub standing: Standing,
    /// The saga that carries it.
    pub saga: SagaId,
    /// What is to be paid.
    pub currency: String,
    /// What is to be paid.
    pub total_minor: i64,
    /// The payment that counts, if one does.
    pub payment_id: Option<String>,
    /// Whether the order pays by its own charge.
    pub pays_itself: bool,
    /// Trace context of the order.
    pub traceparent: Option<String>,
}

/// A living order, for the second look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Living {
    /// Its id.
    pub order_id: OrderId,
    /// The saga that carries it.
    pub saga: SagaId,
    /// Where it stands.
    pub standing: Standing,
    /// When it is closed if it is not paid by then.
    pub expires_at: DateTime<Utc>,
}

/// The orders of one database. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pool: PgPool,
}

impl Store {
    /// Brings schema `orders` up to date.
    pub async fn open(pool: PgPool) -> Result<Self, StoreError> {
        let mut migrator = sqlx::migrate!();
        migrator.create_schema("orders");
        migrator.dangerous_set_table_name("orders.migrations");
        migrator.run(&pool).await?;
        Ok(Self { pool })
    }

    /// Begins a transaction.
    pub async fn begin(&self) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, StoreError> {
        Ok(self.pool.begin().await?)
    }

    /// Whether the database answers.
    pub async fn answers(&self) -> bool {
        sqlx::query(sql::PING).execute(&self.pool).await.is_ok()
    }

    /// The order with this id.
    pub async fn order(&self, order: OrderId) -> Result<Option<Order>, StoreError> {
        let row = sqlx::query(sql::ORDER).bind(order.0).fetch_optional(&self.pool).await?;
        Ok(row.as_ref().map(Order::read).transpose()?)
    }

    /// The order placed with this request id, and the fingerprint of what it asked for.
    pub async fn placed_with(&self, request_id: &str) -> Result<Option<(Order, Vec<u8>)>, StoreError> {
        let row = sqlx::query(sql::PLACED_WITH).bind(request_id).fetch_optional(&self.pool).await?;
        let Some(row) = row else { return Ok(None) };
        let fingerprint = sqlx::Row::try_get(&row, "fingerprint")?;
        Ok(Some((Order::read(&row)?, fingerprint)))
    }

    /// Orders, newest first: a page ends at the filter's limit, or where it would get too large to be sent.
    pub async fn list(&self, filter: &Filter) -> Result<Page, StoreError> {
        let mut rows = sqlx::query(sql::LIST)
            .bind(filter.customer_id.as_deref())
            .bind(filter.request_id.as_deref())
            .bind(filter.state.map(OrderState::as_str))
            .bind(filter.cancel_reason.map(CancelReason::as_str))
            .bind(filter.before.map(|order| order.0))
            .bind(filter.limit)
            .fetch(&self.pool);
        let mut page = Page { orders: Vec::new(), is_last: false };
        let mut bytes = 0;
        while let Some(row) = rows.try_next().await? {
            let order = Order::read(&row)?;
            bytes += order.lines.iter().map(|line| line.sku.0.len() + LINE_BYTES).sum::<usize>();
            page.orders.push(order);
            if bytes >= PAGE_BYTES_MAX {
                return Ok(page);
            }
        }
        page.is_last = i64::try_from(page.orders.len()).is_ok_and(|found| found < filter.limit);
        Ok(page)
    }

    /// Living orders after this one, at most `limit`.
    pub async fn living(&self, after: OrderId, limit: i64) -> Result<Vec<Living>, StoreError> {
        let rows = sqlx::query(sql::LIVING).bind(after.0).bind(limit).fetch_all(&self.pool).await?;
        Ok(rows.iter().map(row::living).collect::<Result<_, _>>()?)
    }

    /// Lets a payment count for the order unless another one does; gives the one that counts.
    pub async fn count_payment(&self, order: OrderId, payment_id: &str) -> Result<String, StoreError> {
        let row =
            sqlx::query(sql::COUNT_PAYMENT).bind(order.0).bind(payment_id).fetch_one(&self.pool).await?;
        Ok(sqlx::Row::try_get(&row, "payment_id")?)
    }

    /// Locks an order for a report of a payment.
    pub async fn lock(
        &self,
        connection: &mut PgConnection,
        order: OrderId,
    ) -> Result<Option<Locked>, StoreError> {
        let row = sqlx::query(sql::LOCK).bind(order.0).fetch_optional(connection).await?;
        Ok(row.as_ref().map(row::locked).transpose()?)
    }

    /// Records a report. `false`: this payment's kind was reported before.
    pub async fn record_report(
        &self,
        connection: &mut PgConnection,
        report: &Report<'_>,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query(sql::RECORD_REPORT)
            .bind(report.payment_id)
            .bind(report.kind)
            .bind(report.order.0)
            .bind(report.currency)
            .bind(report.amount_minor)
            .bind(report.provider_event_id)
            .bind(report.disposition)
            .execute(connection)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Lets a reported payment count for an order that is locked.
    pub async fn set_payment(
        &self,
        connection: &mut PgConnection,
        order: OrderId,
        payment_id: &str,
    ) -> Result<(), StoreError> {
        sqlx::query(sql::SET_PAYMENT).bind(order.0).bind(payment_id).execute(connection).await?;
        Ok(())
    }

    /// Records money that pays for no order. `false`: it was recorded before.
    pub async fn record_exceptional(
        &self,
        connection: &mut PgConnection,
        report: &Report<'_>,
        reason: &str,
        saga: SagaId,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query(sql::RECORD_EXCEPTIONAL)
            .bind(report.payment_id)
            .bind(report.order.0)
            .bind(report.currency)
            .bind(report.amount_minor)
            .bind(reason)
            .bind(saga.0)
            .execute(connection)
            .await?;
        Ok(done.rows_affected() == 1)
    }
}

/// An order to write.
#[derive(Debug)]
pub struct NewOrder {
    /// Its id.
    pub order_id: OrderId,
    /// What was asked for.
    pub placement: Placement,
    /// SHA-256 of it.
    pub fingerprint: [u8; 32],
    /// Trace context of the call.
    pub traceparent: Option<String>,
    /// When it is closed if it is not paid by then.
    pub expires_at: DateTime<Utc>,
}

/// A report to record.
pub struct Report<'a> {
    /// The order it is for.
    pub order: OrderId,
    /// The payment it is about.
    pub payment_id: &'a str,
    /// CAPTURED or DECLINED.
    pub kind: &'static str,
    /// What the amount is in.
    pub currency: &'a str,
    /// The amount.
    pub amount_minor: i64,
    /// The provider's id of the event.
    pub provider_event_id: &'a str,
    /// APPLIED or EXCEPTIONAL.
    pub disposition: &'static str,
}

/// Writes new orders, in the transaction that begins their sagas. One answer each: `false` means that its request id
/// was used before.
pub(crate) async fn insert(
    connection: &mut PgConnection,
    new: &[(SagaId, &NewOrder)],
) -> Result<Vec<bool>, sqlx::Error> {
    let line = |of: fn(&Line) -> String| {
        new.iter().map(|(_, order)| array(&order.placement.lines, of)).collect::<Vec<_>>()
    };
    let token = |order: &NewOrder| match &order.placement.payment {
        Payment::Now(token) => Some(token.clone()),
        Payment::Later => None,
    };
    let written: Vec<Uuid> = sqlx::query_scalar(sql::INSERT)
        .bind(new.iter().map(|(_, order)| order.order_id.0).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, order)| order.placement.request_id.0.as_str()).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, order)| &order.fingerprint[..]).collect::<Vec<_>>())
        .bind(new.iter().map(|(saga, _)| saga.0).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, order)| order.placement.customer_id.0.as_str()).collect::<Vec<_>>())
        .bind(line(|line| format!("\"{}\"", line.sku.0.replace('\\', "\\\\").replace('"', "\\\""))))
        .bind(line(|line| line.quantity.0.to_string()))
        .bind(line(|line| line.unit_price.0.to_string()))
        .bind(new.iter().map(|(_, order)| order.placement.total.currency.0.as_str()).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, order)| order.placement.total.amount.0).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, order)| token(order)).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, order)| order.traceparent.as_deref()).collect::<Vec<_>>())
        .bind(new.iter().map(|(_, order)| order.expires_at).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await?;
    let mut there: HashSet<_> = written.into_iter().collect();
    let missing: Vec<_> = new.iter().map(|(saga, _)| saga.0).filter(|saga| !there.contains(saga)).collect();
    if !missing.is_empty() {
        // A flush whose commit was not answered is tried again: then the row that is there is our own.
        there.extend(sqlx::query_scalar::<_, Uuid>(sql::WRITTEN).bind(missing).fetch_all(connection).await?);
    }
    Ok(new.iter().map(|(saga, _)| there.contains(&saga.0)).collect())
}

/// An array literal of Postgres.
fn array(lines: &[Line], of: fn(&Line) -> String) -> String {
    format!("{{{}}}", lines.iter().map(of).collect::<Vec<_>>().join(","))
}

/// Moves the orders of sagas, in the transaction that records the sagas' changes.
pub(crate) async fn apply_changes(
    connection: &mut PgConnection,
    by_saga: &BTreeMap<SagaId, Vec<OrderChange>>,
) -> Result<(), sqlx::Error> {
    let sagas: Vec<_> = by_saga.keys().map(|saga| saga.0).collect();
    let rows = sqlx::query(sql::LOCK_BY_SAGA).bind(sagas).fetch_all(&mut *connection).await?;
    let mut moves = Moves::default();
    for row in &rows {
        let (saga, order, version, mut standing) = row::standing_of(row)?;
        let (mut payment_id, mut refused_skus) = (None, Vec::new());
        for change in by_saga.get(&saga).into_iter().flatten() {
            standing =
                standing.after(change.event).map_err(|illegal| sqlx::Error::Decode(Box::new(illegal)))?;
            payment_id = change.payment_id.clone().or(payment_id);
            refused_skus.extend(change.refused_skus.iter().cloned());
        }
        moves.orders.push(order.0);
        moves.versions.push(version.0);
        moves.states.push(standing.state.as_str());
        moves.cancel_reasons.push(standing.cancel_reason.map(CancelReason::as_str));
        moves.payment_states.push(standing.payment.as_str());
        moves.payment_ids.push(payment_id);
        moves.refused_skus.push(json!(refused_skus));
    }
    let done = sqlx::query(sql::MOVE)
        .bind(moves.orders)
        .bind(moves.versions)
        .bind(moves.states)
        .bind(moves.cancel_reasons)
        .bind(moves.payment_states)
        .bind(moves.payment_ids)
        .bind(moves.refused_skus)
        .execute(connection)
        .await?;
    // Every checkout has its order, and the rows are locked, so nobody can have moved them in between.
    if usize::try_from(done.rows_affected()) == Ok(by_saga.len()) {
        Ok(())
    } else {
        Err(sqlx::Error::RowNotFound)
    }
}

/// Moves of many orders, a column each.
#[derive(Default)]
struct Moves {
    orders: Vec<Uuid>,
    versions: Vec<i64>,
    states: Vec<&'static str>,
    cancel_reasons: Vec<Option<&'static str>>,
    payment_states: Vec<&'static str>,
    payment_ids: Vec<Option<String>>,
    refused_skus: Vec<serde_json::Value>,
}
