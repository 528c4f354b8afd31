//! The day partitions of what has ended: made ahead, and dropped once they are kept no longer. What cannot be made or
//! dropped now is left to the next look: what ends on a day without partition is kept beside them until it has one.

use chrono::{NaiveDate, TimeDelta};
use sqlx::AssertSqlSafe;

use super::{CALL_MAX, LOOK_MAX, PgJournal, own::within, sql};

/// Days that are made ahead: a week without a look, or without the right to make tables, goes unnoticed.
const DAYS_AHEAD: i64 = 7;

impl PgJournal {
    /// Makes the days that are near and drops those that are kept no longer.
    pub(super) async fn keep_days(&self, today: NaiveDate, retain_days: u32) {
        self.make_partitions(today).await;
        let oldest = today - TimeDelta::days(i64::from(retain_days));
        if let Err(error) = self.drop_partitions(oldest).await {
            tracing::warn!(%error, "days of finished sagas could not be dropped");
        }
    }

    pub(super) async fn make_partitions(&self, today: NaiveDate) {
        let there = match self.partitions().await {
            Ok(there) => there,
            Err(error) => {
                tracing::warn!(%error, "the days of finished sagas cannot be read");
                return;
            }
        };
        for ahead in 0..=DAYS_AHEAD {
            let day = today + TimeDelta::days(ahead);
            let name = partition(day);
            if there.contains(&name) {
                continue;
            }
            let statements = sql::make_partition(&name, day, day + TimeDelta::days(1));
            if let Err(error) = self.run_apart(statements).await
                // Another worker may have made it at the same time.
                && !self.partitions().await.is_ok_and(|there| there.contains(&name))
            {
                tracing::warn!(%error, partition = name, "a day of finished sagas could not be made");
            }
        }
    }

    /// Drops the days before this one.
    async fn drop_partitions(&self, before: NaiveDate) -> Result<(), sqlx::Error> {
        let mut keeper = self.keeper.take().await?;
        within(LOOK_MAX, sqlx::query(sql::DROP_REST).bind(before).execute(&mut *keeper)).await?;
        keeper.give_back();
        let oldest = partition(before);
        for name in self.partitions().await?.into_iter().filter(|name| *name < oldest) {
            self.run_apart(sql::drop_partition(&name)).await?;
            tracing::info!(partition = name, "finished sagas of one day are dropped");
        }
        Ok(())
    }

    /// Runs statements that are a transaction of their own. Where one fails, its connection is closed in the middle of it.
    async fn run_apart(&self, statements: String) -> Result<(), sqlx::Error> {
        let mut keeper = self.keeper.take().await?;
        within(LOOK_MAX, sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut *keeper)).await?;
        keeper.give_back();
        Ok(())
    }

    /// Those there are, oldest first.
    async fn partitions(&self) -> Result<Vec<String>, sqlx::Error> {
        let mut keeper = self.keeper.take().await?;
        let there = within(CALL_MAX, sqlx::query_scalar(sql::PARTITIONS).fetch_all(&mut *keeper)).await?;
        keeper.give_back();
        Ok(there)
    }
}

/// The name of a day's partition. Names are in the order of their days.
fn partition(day: NaiveDate) -> String {
    format!("finished_{}", day.format("%Y%m%d"))
}
