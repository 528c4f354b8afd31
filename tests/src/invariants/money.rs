//! Money follows goods: per order through the API, in all through the books, and the books against the provider's.

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use proto::orders::v1::{Order, order};
use proto::payment::v1::ListPaymentsRequest;

use super::Found;
use crate::replay::identities::kept_rightly;
use crate::stack::{Stack, has_ended};

const LOOKS_IN_FLIGHT: usize = 16;

/// Payments that keep money, in whatever scope.
const KEEPING: &str = "
    -- payments that keep money
    SELECT count(*) FROM payment.payments WHERE captured > refunded";

/// Payments whose book differs from the provider's.
const AGAINST_PROVIDER: &str = "
    -- our book against the provider's
    SELECT coalesce(p.payment_id, c.charge_key)
    FROM payment.payments p
    FULL JOIN payment_simulator.charges c ON c.charge_key = p.payment_id
    WHERE coalesce(p.captured, 0) <> CASE WHEN c.status = 'CAPTURED' THEN c.amount ELSE 0 END
       OR coalesce(p.refunded, 0) <> coalesce(c.refunded, 0)";

/// Reports that did not reach their order yet.
const UNTOLD: &str = "
    -- reports not delivered
    SELECT count(*) FROM payment.outbox";

pub(super) async fn check(stack: &Stack, orders: &[Order], found: &mut Found) -> Result<()> {
    let looks = orders.iter().filter(|order| has_ended(order.state())).map(|order| async move {
        let request = ListPaymentsRequest { scope: order.payment_scope.clone() };
        let payments = stack.clients.payments.clone().list_payments(request).await?.into_inner().payments;
        anyhow::Ok(kept_rightly(order, &payments))
    });
    let verdicts: Vec<Result<()>> =
        stream::iter(looks).buffer_unordered(LOOKS_IN_FLIGHT).try_collect().await?;
    for verdict in verdicts {
        found.look("confirmed ⇔ exactly one payment of its total is kept", verdict);
    }
    let database = stack.stores.payment.pool()?;
    let confirmed = orders.iter().filter(|order| order.state() == order::State::Confirmed).count();
    let keeping: i64 = sqlx::query_scalar(KEEPING).fetch_one(&database).await?;
    found.look("no payment is kept beside those of confirmed orders", equal(keeping, confirmed));
    let differing: Vec<String> = sqlx::query_scalar(AGAINST_PROVIDER).fetch_all(&database).await?;
    for payment in differing {
        found.look("our book says what the provider's says", Err(anyhow::anyhow!("{payment} differs")));
    }
    let untold: i64 = sqlx::query_scalar(UNTOLD).fetch_one(&database).await?;
    found.look("every report is delivered", equal(untold, 0));
    Ok(())
}

fn equal(seen: i64, expected: usize) -> Result<()> {
    ensure!(i64::try_from(expected)? == seen, "{seen} instead of {expected}");
    Ok(())
}
