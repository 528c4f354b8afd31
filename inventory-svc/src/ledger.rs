//! The ledger: Postgres, where every movement of stock stands for ever. Nothing is true before it is here.
//! Absent: decisions. It takes movements that continue its chain, and answers what it has.

mod append;
mod read;
mod rebuild;
mod sql;

use std::{str::FromStr, time::Duration};

use sqlx::{
    PgPool,
    migrate::{MigrateError, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
};

pub use append::AppendError;
pub use read::{Balance, MadeChange};
pub use rebuild::{BuildError, Partition, Raise};

use crate::partition::PartitionId;

/// Readers at once. Most reads are grouped, so few connections go a long way.
const READERS_MAX: u32 = 8;
/// How long a caller waits for a connection; beyond it the database counts as away.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long start-up tries to reach a database that is not there yet.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_PAUSE: Duration = Duration::from_millis(250);

/// Set for every session. A killed process must not keep the partition's row locked; a statement that hangs must
/// not hang its caller. Names are always schema-qualified, so the search path does not matter.
const SESSION: [(&str, &str); 5] = [
    ("application_name", "inventory-svc"),
    ("statement_timeout", "10s"),
    ("lock_timeout", "2s"),
    ("idle_in_transaction_session_timeout", "10s"),
    ("client_connection_check_interval", "500ms"),
];

/// Set for the appender's session. `UPDATE … FROM unnest` planned while a table is small gets a scan over all of it,
/// and the cached plan stays when the table has grown; with these off, index lookups are the only plan.
const INDEX_LOOKUPS_ONLY: [(&str, &str); 3] =
    [("enable_hashjoin", "off"), ("enable_mergejoin", "off"), ("enable_seqscan", "off")];

/// What the ledger can fail with.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The database cannot be reached or refused the statement.
    #[error("ledger: {0}")]
    Store(#[from] sqlx::Error),
    /// The schema cannot be brought up to date.
    #[error("ledger schema: {0}")]
    Migrate(#[from] MigrateError),
    /// A row holds something this version never writes.
    #[error("unreadable in the ledger: {0}")]
    Unreadable(&'static str),
}

/// One partition's ledger. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    partition: PartitionId,
    readers: PgPool,
    appender: PgPool,
}

impl Ledger {
    /// Connects, retrying for a while, and brings the schema `inventory` up to date.
    pub async fn open(url: &str, partition: PartitionId) -> Result<Self, LedgerError> {
        let options = PgConnectOptions::from_str(url)?.options(SESSION);
        // A connection that died is found by its next statement, whose caller repeats; asking each time costs a round
        // trip per call.
        let pool = || PgPoolOptions::new().acquire_timeout(ACQUIRE_TIMEOUT).test_before_acquire(false);
        let readers = pool().max_connections(READERS_MAX).connect_lazy_with(options.clone());
        let appender = pool().max_connections(1).connect_lazy_with(options.options(INDEX_LOOKUPS_ONLY));

        let give_up = tokio::time::Instant::now() + CONNECT_PATIENCE;
        while let Err(error) = readers.acquire().await {
            if tokio::time::Instant::now() >= give_up {
                return Err(error.into());
            }
            tracing::warn!(%error, "the ledger's database is away, trying again");
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
        migrator().run(&readers).await?;
        Ok(Self { partition, readers, appender })
    }

    /// The database's clock, in ms since 1970.
    pub async fn clock_ms(&self) -> Result<i64, LedgerError> {
        Ok(sqlx::query_scalar(sql::CLOCK).fetch_one(&self.readers).await?)
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.readers.close().await;
        self.appender.close().await;
    }
}

/// Migrations with a table of their own inside the schema: several services may share one database.
fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("./migrations");
    migrator.create_schema("inventory");
    migrator.dangerous_set_table_name("inventory._migrations");
    migrator
}
