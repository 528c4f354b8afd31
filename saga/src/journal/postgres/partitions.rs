//! The day partitions of what has ended: made ahead, and dropped once they are kept no longer. Absent: the partition for
//! what ends on a day that has none; the migration makes it.

use chrono::{NaiveDate, TimeDelta};
use sqlx::AssertSqlSafe;

use super::{PgJournal, sql};

/// Days that are made ahead: a week without a look, or without the right to make tables, goes unnoticed.
const DAYS_AHEAD: i64 = 7;

impl PgJournal {
    pub(super) async fn make_partitions(&self, today: NaiveDate) -> Result<(), sqlx::Error> {
        let there = self.partitions().await?;
        for ahead in 0..=DAYS_AHEAD {
            let day = today + TimeDelta::days(ahead);
            let name = partition(day);
            if there.contains(&name) {
                continue;
            }
            let statement = sql::make_partition(&name, day, day + TimeDelta::days(1));
            if let Err(error) = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.heart).await
                // Another worker may have made it at the same time.
                && !self.partitions().await?.contains(&name)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Drops the days before this one.
    pub(super) async fn drop_partitions(&self, before: NaiveDate) -> Result<(), sqlx::Error> {
        let oldest = partition(before);
        for name in self.partitions().await?.into_iter().filter(|name| *name < oldest) {
            let statement = sql::drop_partition(&name);
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.heart).await?;
            tracing::info!(partition = name, "finished sagas of one day are dropped");
        }
        Ok(())
    }

    /// Those there are, oldest first.
    async fn partitions(&self) -> Result<Vec<String>, sqlx::Error> {
        sqlx::query_scalar(sql::PARTITIONS).fetch_all(&self.heart).await
    }
}

/// The name of a day's partition. Names are in the order of their days.
fn partition(day: NaiveDate) -> String {
    format!("finished_{}", day.format("%Y%m%d"))
}
