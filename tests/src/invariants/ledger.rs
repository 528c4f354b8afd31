//! The ledger read from scratch: what its movements add up to, whether their chain holds, and what it keeps as
//! balances.

use anyhow::{Result, ensure};
use sqlx::PgPool;

use super::stock::{BySku, Counters};

/// Movements summed per SKU, from nothing.
const MOVEMENTS: &str = "
    -- movements added up
    SELECT line.sku,
           sum(CASE WHEN m.kind IN ('RECEIVE', 'ADJUST') THEN line.units ELSE 0 END)::bigint,
           sum(CASE m.kind WHEN 'RESERVE' THEN line.units
                           WHEN 'CONFIRM' THEN -line.units
                           WHEN 'RELEASE' THEN -line.units
                           WHEN 'EXPIRE' THEN -line.units
                           ELSE 0 END)::bigint,
           sum(CASE m.kind WHEN 'CONFIRM' THEN line.units ELSE 0 END)::bigint
    FROM inventory.movements m, unnest(m.skus, m.quantities) AS line (sku, units)
    GROUP BY line.sku";

const BALANCES: &str = "
    -- balances as kept
    SELECT sku, received, held, sold FROM inventory.balances";

/// Movements that do not continue the one before them.
const BROKEN_LINKS: &str = "
    -- broken links of the chain
    SELECT count(*) FROM (
        SELECT seq, prev, lag(seq) OVER w AS seq_before, lag(nonce) OVER w AS nonce_before
        FROM inventory.movements WINDOW w AS (PARTITION BY partition ORDER BY seq)
    ) AS m
    WHERE (seq_before IS NULL AND seq <> 1) OR seq <> seq_before + 1 OR prev <> nonce_before";

/// Reservations that took or gave units more than once.
const DOUBLE_MOVES: &str = "
    -- reservations that moved units twice
    SELECT count(*) FROM (
        SELECT reservation_id FROM inventory.movements
        WHERE reservation_id IS NOT NULL AND cardinality(skus) > 0
        GROUP BY reservation_id
        HAVING count(*) FILTER (WHERE kind = 'RESERVE') <> 1 OR count(*) FILTER (WHERE kind <> 'RESERVE') > 1
    ) AS doubled";

/// What the ledger says.
pub(super) struct Book {
    pub(super) movements: BySku,
    pub(super) balances: BySku,
    pub(super) chain: Result<()>,
    pub(super) double_moves: Result<()>,
}

pub(super) async fn read(database: &PgPool) -> Result<Book> {
    let broken: i64 = sqlx::query_scalar(BROKEN_LINKS).fetch_one(database).await?;
    let doubled: i64 = sqlx::query_scalar(DOUBLE_MOVES).fetch_one(database).await?;
    Ok(Book {
        movements: counters(database, MOVEMENTS).await?,
        balances: counters(database, BALANCES).await?,
        chain: none(broken, "movements do not continue the one before"),
        double_moves: none(doubled, "reservations took or gave their units more than once"),
    })
}

async fn counters(database: &PgPool, sql: &'static str) -> Result<BySku> {
    let rows: Vec<(String, i64, i64, i64)> = sqlx::query_as(sql).fetch_all(database).await?;
    Ok(rows.into_iter().map(|(sku, received, held, sold)| (sku, Counters { received, held, sold })).collect())
}

fn none(count: i64, what: &str) -> Result<()> {
    ensure!(count == 0, "{count} {what}");
    Ok(())
}
