//! Connecting, and bringing the schema up to date.

use sqlx::{
    ConnectOptions, Connection, PgPool, SqlSafeStr,
    migrate::{Migration, MigrationType, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{str::FromStr, time::Duration};

/// How long a caller waits for a connection.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(2);

/// Applied in this order. Their text never changes once released.
const MIGRATIONS: [(i64, &str, &str); 2] = [
    (1, "payment", include_str!("../../migrations/0001_payment.sql")),
    (2, "simulator", include_str!("../../migrations/0002_simulator.sql")),
];

/// A pool of at most `connections_max`, whose sessions cannot hold locks for long, whatever happens to this process.
/// Connects when first used.
pub(crate) fn connect(database_url: &str, name: &str, connections_max: u32) -> Result<PgPool, sqlx::Error> {
    let options = PgConnectOptions::from_str(database_url)?.application_name(name).options([
        ("statement_timeout", "5s"),
        ("lock_timeout", "2s"),
        ("idle_in_transaction_session_timeout", "10s"),
        // The backend of a killed client lets go of its locks.
        ("client_connection_check_interval", "500ms"),
        // Every statement here has an index. A plan made while a table was empty must not scan it later; and the
        // planner's price for a forbidden scan would start the JIT compiler.
        ("enable_seqscan", "off"),
        ("jit", "off"),
    ]);
    Ok(PgPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(ACQUIRE_LIMIT)
        // A connection that died is found by its next statement, whose caller repeats; asking each time costs a round
        // trip per call.
        .test_before_acquire(false)
        .connect_lazy_with(options))
}

/// Brings schema `payment` (and the simulator's) up to date. Several processes may do so at once.
pub(crate) async fn migrate(database_url: &str) -> Result<(), sqlx::Error> {
    // A connection of its own, without the limits above: waiting for another migrator may take its time.
    let mut connection = PgConnectOptions::from_str(database_url)?.connect().await?;
    let migrations = MIGRATIONS
        .into_iter()
        .map(|(version, name, text)| {
            Migration::new(version, name.into(), MigrationType::Simple, text.into_sql_str(), false)
        })
        .collect();
    let mut migrator = Migrator::with_migrations(migrations);
    // The database may be shared with other services, which have migrations of their own.
    migrator.create_schema("payment");
    migrator.dangerous_set_table_name("payment.migrations");
    migrator.run_direct(None, &mut connection, false).await?;
    connection.close().await
}
