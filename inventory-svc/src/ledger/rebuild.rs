//! What a rebuild needs: raising the generation by compare-and-set, and everything Redis should then hold, page by
//! page. Between the raise and the opening of the generation nobody can append, so the pages are one picture.

use super::{
    Ledger, LedgerError,
    read::{self, Recorded},
    sql,
};
use crate::{
    partition::{Generation, Head, Nonce, Seq},
    reservation::CallerId,
    stock::{GateError, Load},
};

/// Rows per page, and so per write to Redis.
const PAGE_ROWS: i64 = 500;

/// A partition's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Where its chain ends.
    pub head: Head,
    /// Which process raised the generation.
    pub raised_by: String,
    /// How long ago, in ms.
    pub raised_ago_ms: i64,
}

/// How a raise went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raise {
    /// The chain now ends here, in a generation this process alone builds.
    Raised(Head),
    /// The chain went on, or another process raised it: look again.
    Moved,
}

/// Why a generation could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Reading failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Writing failed.
    #[error(transparent)]
    Gate(#[from] GateError),
}

impl Ledger {
    /// The partition's row.
    pub async fn partition(&self) -> Result<Partition, LedgerError> {
        let (generation, seq, chain, raised_by, raised_ago_ms): (i64, i64, String, String, i64) =
            sqlx::query_as(sql::PARTITION).bind(self.partition.0).fetch_one(&self.readers).await?;
        let head = Head { generation: Generation(generation), seq: Seq(seq), chain: Nonce(chain) };
        Ok(Partition { head, raised_by, raised_ago_ms })
    }

    /// Begins a new generation behind `end`, if the chain still ends there.
    pub async fn raise(&self, end: &Head, process: &str) -> Result<Raise, LedgerError> {
        let chain = Nonce::random();
        let mut transaction = self.readers.begin().await?;
        let raised: Option<(i64, i64)> = sqlx::query_as(sql::PARTITION_RAISE)
            .bind(self.partition.0)
            .bind(end.generation.0)
            .bind(end.seq.0)
            .bind(&end.chain.0)
            .bind(&chain.0)
            .bind(process)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some((generation, seq)) = raised else {
            transaction.rollback().await?;
            return Ok(Raise::Moved);
        };
        sqlx::query(sql::MOVEMENT_OPEN)
            .bind(self.partition.0)
            .bind(seq)
            .bind(generation)
            .bind(&chain.0)
            .bind(&end.chain.0)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(Raise::Raised(Head { generation: Generation(generation), seq: Seq(seq), chain }))
    }

    /// Writes all that Redis should hold into a generation that is not open yet: counters, open holds, and the
    /// outcomes of the last `outcome_ttl_ms`.
    pub async fn build(&self, load: &mut Load<'_>, outcome_ttl_ms: i64) -> Result<(), BuildError> {
        self.build_counters(load).await?;
        self.build_holds(load).await?;
        let now_ms = self.clock_ms().await?;
        self.build_outcomes(load, now_ms, outcome_ttl_ms).await?;
        self.build_changes(load, now_ms, outcome_ttl_ms).await
    }

    async fn build_counters(&self, load: &mut Load<'_>) -> Result<(), BuildError> {
        let mut after = None;
        loop {
            let page = self.balances_after(after.as_ref(), PAGE_ROWS).await?;
            for balance in &page {
                load.counters(&balance.sku, &balance.counters);
            }
            load.flush().await?;
            match page.into_iter().next_back() {
                Some(last) => after = Some(last.sku),
                None => return Ok(()),
            }
        }
    }

    async fn build_holds(&self, load: &mut Load<'_>) -> Result<(), BuildError> {
        let mut after = String::new();
        loop {
            let query =
                sqlx::query(sql::RESERVATIONS_HELD_PAGE).bind(self.partition.0).bind(&after).bind(PAGE_ROWS);
            let rows = query.fetch_all(&self.readers).await.map_err(LedgerError::from)?;
            let page = rows.iter().map(read::recorded).collect::<Result<Vec<_>, _>>()?;
            for held in &page {
                add(load, held, 0)?;
            }
            load.flush().await?;
            match page.into_iter().next_back() {
                Some(last) => after = last.id,
                None => return Ok(()),
            }
        }
    }

    async fn build_outcomes(&self, load: &mut Load<'_>, now_ms: i64, ttl_ms: i64) -> Result<(), BuildError> {
        let mut after = (now_ms - ttl_ms, String::new());
        loop {
            let query = sqlx::query(sql::RESERVATIONS_ENDED_PAGE)
                .bind(self.partition.0)
                .bind(after.0)
                .bind(&after.1)
                .bind(PAGE_ROWS);
            let rows = query.fetch_all(&self.readers).await.map_err(LedgerError::from)?;
            let page = rows.iter().map(read::recorded).collect::<Result<Vec<_>, _>>()?;
            for ended in &page {
                add(load, ended, ended.changed_ms + ttl_ms - now_ms)?;
            }
            load.flush().await?;
            match page.into_iter().next_back() {
                Some(last) => after = (last.changed_ms, last.id),
                None => return Ok(()),
            }
        }
    }

    async fn build_changes(&self, load: &mut Load<'_>, now_ms: i64, ttl_ms: i64) -> Result<(), BuildError> {
        let mut after = 0;
        loop {
            let query = sqlx::query(sql::CHANGES_PAGE)
                .bind(self.partition.0)
                .bind(after)
                .bind(now_ms - ttl_ms)
                .bind(PAGE_ROWS);
            let rows = query.fetch_all(&self.readers).await.map_err(LedgerError::from)?;
            let page = rows.iter().map(read::made_change).collect::<Result<Vec<_>, _>>()?;
            for (id, made) in &page {
                load.request(&caller_id(id)?, made, made.at_ms + ttl_ms - now_ms);
            }
            load.flush().await?;
            match page.last() {
                Some((_, last)) => after = last.movement.seq.0,
                None => return Ok(()),
            }
        }
    }
}

fn add(load: &mut Load<'_>, recorded: &Recorded, ttl_ms: i64) -> Result<(), LedgerError> {
    load.reservation(&caller_id(&recorded.id)?, recorded.customer.as_deref(), &recorded.record, ttl_ms);
    Ok(())
}

fn caller_id(id: &str) -> Result<CallerId, LedgerError> {
    CallerId::parse(id).map_err(|_| LedgerError::Unreadable("an id"))
}
