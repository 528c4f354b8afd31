//! The book of payments in Postgres, schema `payment`. All SQL of the port is in this folder, in `sql`.
//!
//! Single statements are methods of [`Store`]; what needs several under one row lock is a [`Tx`]. Locks are taken in
//! one order: scope, payment, then refunds. Absent: decisions (they are `payment::Standing::apply`), the provider's
//! own tables, and cutting database work short: callers run in their own tasks, because a cancelled BEGIN or COMMIT
//! would leave a connection in doubt.

mod outbox;
mod refunds;
mod row;
mod schema;
mod sql;
mod tx;

pub(crate) use outbox::ReportRow;
pub(crate) use refunds::{Refund, RefundState};
pub(crate) use schema::{connect, migrate};
pub(crate) use tx::Tx;

use crate::{
    ids::{PaymentId, Scope},
    payment::Standing,
    provider::{Fact, Verdict},
    record::{Charge, Payment, Telling},
};
use sqlx::PgPool;
use std::time::Duration;

/// The most payments of one scope that are listed or cancelled in one go.
pub(crate) const SCOPE_BATCH: i64 = 1_000;

/// Why the book cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The database failed. A failed commit may have happened: read the row again.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    /// A row that our own writes cannot have produced.
    #[error("unreadable row of {0}")]
    Unreadable(&'static str),
    /// A write under a row lock found another row than was read.
    #[error("a locked row changed")]
    Unfenced,
}

/// What became of the attempt to write a new charge down.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is written; nobody has asked the provider yet.
    Fresh(Box<Payment>),
    /// The id is known.
    Known(Box<Payment>),
    /// The scope is cancelled, and the id is not known.
    ScopeCancelled,
}

/// The book. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pool: PgPool,
    /// After how long the sweep first looks at a payment that is open.
    look_after_ms: i64,
}

impl Store {
    /// A book on `pool`; the sweep first looks at an open payment after `look_after`.
    pub(crate) fn new(pool: PgPool, look_after: Duration) -> Self {
        Self { pool, look_after_ms: i64::try_from(look_after.as_millis()).unwrap_or(i64::MAX) }
    }

    /// Whether the database answers.
    pub(crate) async fn ping(&self) -> bool {
        sqlx::query(sql::PING).execute(&self.pool).await.is_ok()
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&self) -> Result<Tx, StoreError> {
        Ok(Tx::new(self.pool.begin().await?, self.look_after_ms))
    }

    /// Writes a charge down as PROCESSING, unless its id is known or its scope cancelled. One statement, which locks
    /// the scope's row, so that a cancel comes either before (and is seen) or after (and sees the payment).
    pub(crate) async fn begin_charge(
        &self,
        charge: &Charge,
        traceparent: Option<&str>,
    ) -> Result<Begun, StoreError> {
        let fresh = sqlx::query(sql::BEGIN_CHARGE)
            .bind(charge.payment_id.as_str())
            .bind(charge.scope.as_str())
            .bind(charge.reference.as_ref().map_or("", |r| r.as_str()))
            .bind(charge.fingerprint().0.as_slice())
            .bind(charge.amount.currency.as_str())
            .bind(charge.amount.units.get())
            .bind(&charge.payment_token)
            .bind(traceparent)
            .bind(self.look_after_ms)
            .fetch_optional(&self.pool)
            .await?;
        if let Some(row) = fresh {
            return Ok(Begun::Fresh(Box::new(row::payment(&row)?)));
        }
        // A new statement sees what the first one lost against.
        Ok(match self.find(&charge.payment_id).await? {
            Some(payment) => Begun::Known(Box::new(payment)),
            None => Begun::ScopeCancelled,
        })
    }

    /// The fast path of an answer: records a final outcome in one statement, if nothing else happened to the
    /// payment since. `None`: something did, take the slow path.
    pub(crate) async fn record_first(
        &self,
        before: &Payment,
        after: &Standing,
        fact: &Fact,
        telling: Telling,
    ) -> Result<Option<Payment>, StoreError> {
        let report = before.standing.report(after).filter(|_| telling == Telling::Reported);
        let row = sqlx::query(sql::RECORD_FIRST)
            .bind(before.payment_id.as_str())
            .bind(row::state_text(after.state))
            .bind(after.captured.get())
            .bind(&fact.reference)
            .bind(decline_reason(&fact.verdict))
            .bind(report.map(row::report_text))
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(row::payment).transpose()
    }

    /// Reads a payment.
    pub(crate) async fn find(&self, id: &PaymentId) -> Result<Option<Payment>, StoreError> {
        let row = sqlx::query(sql::FIND).bind(id.as_str()).fetch_optional(&self.pool).await?;
        row.as_ref().map(row::payment).transpose()
    }

    /// Whether a payment was asked for less than `age` ago.
    pub(crate) async fn is_younger(&self, id: &PaymentId, age: Duration) -> Result<bool, StoreError> {
        let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Ok(sqlx::query_scalar(sql::IS_YOUNGER).bind(id.as_str()).bind(age_ms).fetch_one(&self.pool).await?)
    }

    /// The payments of a scope, oldest first, at most [`SCOPE_BATCH`].
    pub(crate) async fn list(&self, scope: &Scope) -> Result<Vec<Payment>, StoreError> {
        let rows =
            sqlx::query(sql::LIST).bind(scope.as_str()).bind(SCOPE_BATCH).fetch_all(&self.pool).await?;
        rows.iter().map(row::payment).collect()
    }

    /// Takes at most `limit` open payments whose look is due, and sets their next look at twice the distance of the
    /// last, at most five minutes. Two sweeps never take the same one.
    pub(crate) async fn claim_open(&self, limit: i64) -> Result<Vec<Payment>, StoreError> {
        let rows = sqlx::query(sql::CLAIM_OPEN).bind(limit).fetch_all(&self.pool).await?;
        rows.iter().map(row::payment).collect()
    }
}

fn decline_reason(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Declined { reason } => reason,
        _ => "",
    }
}
