//! Orders against their sagas, read from the orders database.

use std::time::Duration;

use anyhow::{Result, ensure};
use sqlx::{Connection, PgConnection};

use crate::deadline::eventually;

/// A saga's last record may reach the journal a moment after its order's.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

/// Orders of a run, counted by their state and their saga's.
const PAIRS: &str = "
    -- orders against sagas
    SELECT o.state, coalesce(i.status, 'NONE'), count(*)
    FROM orders.orders o LEFT JOIN saga.sagas i ON i.id = o.saga_id
    WHERE starts_with(o.request_id, $1)
    GROUP BY 1, 2 ORDER BY 1, 2";

/// Sagas of a run whose events are not a gapless run up to the seq of their row.
const TORN: &str = "
    -- gaps in the journal
    SELECT count(*) FROM (
        SELECT i.id FROM orders.orders o
        JOIN saga.sagas i ON i.id = o.saga_id
        LEFT JOIN saga.event_list e ON e.saga_id = i.id
        WHERE starts_with(o.request_id, $1)
        GROUP BY i.id, i.seq
        HAVING count(e.seq) <> i.seq OR max(e.seq) <> i.seq
    ) AS torn";

/// What the journal says about the orders of a run.
#[derive(Debug, Clone)]
pub struct Journal {
    /// (order state, saga status, how many).
    pub pairs: Vec<(String, String, i64)>,
    /// Sagas whose events have a gap.
    pub torn: i64,
    expected: usize,
}

impl Journal {
    /// One verdict per kind of pair, one for gaps, one for the number of orders.
    pub fn verdicts(&self) -> Vec<Result<()>> {
        let mut verdicts: Vec<Result<()>> = self.pairs.iter().map(matching).collect();
        verdicts.push(self.gapless());
        verdicts.push(self.complete());
        verdicts
    }

    fn gapless(&self) -> Result<()> {
        ensure!(self.torn == 0, "{} sagas have a gap in their events", self.torn);
        Ok(())
    }

    fn complete(&self) -> Result<()> {
        let orders: i64 = self.pairs.iter().map(|(_, _, count)| count).sum();
        ensure!(
            i64::try_from(self.expected)? == orders,
            "{} orders sent, {orders} in the database",
            self.expected
        );
        Ok(())
    }
}

fn matching((order, saga, count): &(String, String, i64)) -> Result<()> {
    let fits =
        matches!((order.as_str(), saga.as_str()), ("CONFIRMED", "COMPLETED") | ("CANCELLED", "UNDONE"));
    ensure!(fits, "{count} orders are {order} while their saga is {saga}");
    Ok(())
}

/// The journal once it is as it must be; as it is when that takes too long.
pub async fn settled(database_url: &str, run_id: &str, expected: usize) -> Result<Journal> {
    let mut database = PgConnection::connect(database_url).await?;
    let prefix = format!("{run_id}.");
    let mut last = None;
    let settling = eventually("the journal matches the orders", SETTLED_WITHIN, async || {
        let journal = read(&mut database, &prefix, expected).await?;
        let verdict = journal.verdicts().into_iter().collect::<Result<Vec<()>>>();
        last = Some(journal);
        verdict
    });
    let outcome = settling.await;
    match (last, outcome) {
        (Some(journal), _) => Ok(journal),
        (None, outcome) => Err(outcome.err().unwrap_or_else(|| anyhow::anyhow!("the journal was not read"))),
    }
}

async fn read(database: &mut PgConnection, prefix: &str, expected: usize) -> Result<Journal> {
    let pairs = sqlx::query_as(PAIRS).bind(prefix).fetch_all(&mut *database).await?;
    let torn = sqlx::query_scalar(TORN).bind(prefix).fetch_one(&mut *database).await?;
    Ok(Journal { pairs, torn, expected })
}
