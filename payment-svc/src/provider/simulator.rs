//! A provider to develop and test against. Its rows are its truth, written in its own transactions over its own
//! connections, as a remote provider's would be; payment-svc learns of them only through the port.
//!
//! How a charge behaves is written in its payment token (`token`). Absent: authorisation without capture, and
//! webhooks over HTTP (its events are fetched, see [`Simulator::tick`]).

mod sql;
mod token;

use crate::{
    ids::PaymentId,
    provider::{Call, ChargeOrder, Fact, Failure, Provider, RefundOrder, RefundVerdict, Verdict},
};
use sqlx::{PgPool, Row, postgres::PgRow};
use std::{sync::Arc, time::Duration};
use token::Behaviour;
use tokio::{sync::Notify, time::sleep};
use uuid::Uuid;

/// A fact the provider reports by itself.
#[derive(Clone, Debug)]
pub(crate) struct ProviderEvent {
    /// The provider's id of the event.
    pub event_id: String,
    /// The payment it is about.
    pub payment_id: PaymentId,
    /// What the charge has come to.
    pub fact: Fact,
}

/// What one turn of the provider's clock brought.
#[derive(Debug)]
pub(crate) struct Tick {
    /// To be settled, then acknowledged; otherwise they come again.
    pub events: Vec<ProviderEvent>,
    /// When the next charge is due, if one is.
    pub next_in: Option<Duration>,
}

/// The simulated provider. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Simulator {
    pool: PgPool,
    /// How long a call that "answers with a time-out" is silent; longer than its client waits.
    silence: Duration,
    clock: Arc<Notify>,
}

impl Simulator {
    /// A simulator on `pool`, whose silent calls outlast a client that waits for `client_limit`.
    pub(crate) fn new(pool: PgPool, client_limit: Duration) -> Self {
        Self { pool, silence: client_limit + Duration::from_millis(500), clock: Arc::default() }
    }

    /// Returns when a charge was made that is due later.
    pub(crate) async fn wait_for_work(&self) {
        self.clock.notified().await;
    }

    /// Lets the provider's clock capture what is due, at most 100 charges, and hands out events that are due, new or
    /// unacknowledged for 5 s, at most 100 of each.
    pub(crate) async fn tick(&self) -> Result<Tick, Failure> {
        let rows = sqlx::query(sql::TICK).fetch_all(&self.pool).await.map_err(failure)?;
        let mut tick = Tick { events: Vec::new(), next_in: None };
        for row in rows {
            let next_ms: Option<i64> = row.try_get("next_ms").map_err(failure)?;
            tick.next_in = next_ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()));
            let Some(event_id) = row.try_get::<Option<String>, _>("event_id").map_err(failure)? else {
                continue;
            };
            let charge_key: String = row.try_get("charge_key").map_err(failure)?;
            tick.events.push(ProviderEvent {
                event_id,
                payment_id: PaymentId::stored(charge_key),
                fact: Fact {
                    reference: row.try_get("reference").map_err(failure)?,
                    // Nothing else happens by itself.
                    verdict: Verdict::Captured,
                },
            });
        }
        Ok(tick)
    }

    /// Takes note that these events were settled.
    pub(crate) async fn acknowledge(&self, event_ids: &[String]) -> Result<(), Failure> {
        sqlx::query(sql::ACKNOWLEDGE).bind(event_ids).execute(&self.pool).await.map_err(failure)?;
        Ok(())
    }

    async fn do_charge(self, order: ChargeOrder) -> Result<Fact, Failure> {
        let behaviour = token::parse(&order.payment_token).map_err(|_| Failure::NotExecuted)?;
        if let Behaviour::Fail { times } = behaviour {
            let failed = sqlx::query(sql::FAIL)
                .bind(order.key.as_str())
                .bind(times)
                .fetch_optional(&self.pool)
                .await
                .map_err(failure)?;
            if failed.is_some() {
                return Err(Failure::NotExecuted);
            }
        }
        let (status, captures_in_ms) = match behaviour {
            Behaviour::Approve | Behaviour::Silent | Behaviour::SilentRefund | Behaviour::Fail { .. } => {
                ("CAPTURED", None)
            }
            Behaviour::Decline => ("DECLINED", None),
            Behaviour::Never => ("PROCESSING", None),
            Behaviour::ApproveAfter { ms } | Behaviour::PaysAfterCancel { ms } => ("PROCESSING", Some(ms)),
        };
        let made = sqlx::query(sql::CHARGE)
            .bind(order.key.as_str())
            .bind(new_reference())
            .bind(order.amount.currency.as_str())
            .bind(order.amount.units.get())
            .bind(&order.payment_token)
            .bind(status)
            .bind(captures_in_ms)
            .fetch_optional(&self.pool)
            .await
            .map_err(failure)?;
        let Some(made) = made else {
            // Charged or cancelled before: the present state, whatever was asked now.
            return self.do_query(order.key).await?.ok_or(Failure::Unknown);
        };
        if captures_in_ms.is_some() {
            self.clock.notify_one();
        }
        if behaviour == Behaviour::Silent {
            // Executed; the connection went back to the pool with the statement.
            sleep(self.silence).await;
        }
        fact(&made)
    }

    async fn do_query(self, key: PaymentId) -> Result<Option<Fact>, Failure> {
        let row =
            sqlx::query(sql::QUERY).bind(key.as_str()).fetch_optional(&self.pool).await.map_err(failure)?;
        row.as_ref().map(fact).transpose()
    }

    async fn do_cancel(self, order: ChargeOrder) -> Result<Fact, Failure> {
        let row = sqlx::query(sql::CANCEL)
            .bind(order.key.as_str())
            .bind(new_reference())
            .bind(order.amount.currency.as_str())
            .bind(order.amount.units.get())
            .bind(&order.payment_token)
            .fetch_one(&self.pool)
            .await
            .map_err(failure)?;
        fact(&row)
    }

    async fn do_refund(self, order: RefundOrder) -> Result<RefundVerdict, Failure> {
        let mut tx = self.pool.begin().await.map_err(failure)?;
        let charge = sqlx::query(sql::LOCK_CHARGE)
            .bind(order.charge.as_str())
            .fetch_optional(&mut *tx)
            .await
            .map_err(failure)?;
        let Some(charge) = charge else {
            return Ok(RefundVerdict::Refused { reason: "no_such_charge".into() });
        };
        let known = sqlx::query(sql::FIND_REFUND)
            .bind(order.key.as_str())
            .fetch_optional(&mut *tx)
            .await
            .map_err(failure)?;
        if known.is_some() {
            return Ok(RefundVerdict::Refunded);
        }
        let status: String = charge.try_get("status").map_err(failure)?;
        let left: i64 = charge.try_get("left_to_refund").map_err(failure)?;
        if status != "CAPTURED" || order.amount.get() > left {
            return Ok(RefundVerdict::Refused { reason: "amount_too_large".into() });
        }
        sqlx::query(sql::REFUND)
            .bind(order.key.as_str())
            .bind(order.charge.as_str())
            .bind(order.amount.get())
            .execute(&mut *tx)
            .await
            .map_err(failure)?;
        tx.commit().await.map_err(failure)?;
        let token: String = charge.try_get("token").map_err(failure)?;
        if token::parse(&token) == Ok(Behaviour::SilentRefund) {
            sleep(self.silence).await;
        }
        Ok(RefundVerdict::Refunded)
    }
}

impl Provider for Simulator {
    fn check_token(&self, payment_token: &str) -> Result<(), &'static str> {
        token::parse(payment_token).map(drop)
    }

    fn charge(&self, order: ChargeOrder) -> Call<Fact> {
        Box::pin(self.clone().do_charge(order))
    }

    fn query(&self, key: PaymentId) -> Call<Option<Fact>> {
        Box::pin(self.clone().do_query(key))
    }

    fn cancel(&self, order: ChargeOrder) -> Call<Fact> {
        Box::pin(self.clone().do_cancel(order))
    }

    fn refund(&self, order: RefundOrder) -> Call<RefundVerdict> {
        Box::pin(self.clone().do_refund(order))
    }
}

fn new_reference() -> String {
    format!("sim_{}", Uuid::now_v7().simple())
}

fn fact(row: &PgRow) -> Result<Fact, Failure> {
    let status: String = row.try_get("status").map_err(failure)?;
    let verdict = match status.as_str() {
        "PROCESSING" => Verdict::Processing,
        "CAPTURED" => Verdict::Captured,
        "DECLINED" => Verdict::Declined { reason: "card_declined".into() },
        _cancelled => Verdict::Cancelled,
    };
    Ok(Fact { reference: row.try_get("reference").map_err(failure)?, verdict })
}

/// A provider whose database failed is a provider that did not answer. Only a call that never got a connection is
/// known to have done nothing.
#[allow(clippy::needless_pass_by_value)] // for map_err
fn failure(error: sqlx::Error) -> Failure {
    tracing::warn!(%error, "the simulated provider failed");
    match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Failure::NotExecuted,
        _ => Failure::Unknown,
    }
}
