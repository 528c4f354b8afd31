//! The stores of one stack: a Redis and a database of its own, or three, dropped at the end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use tempfile::TempDir;

use crate::postgres::Postgres;
use crate::redis::Redis;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Readers of the harness per database; a few are enough and leave the server's connections to the services.
const READERS_MAX: u32 = 2;

/// How a stack's services share databases. Their schemas never meet, so both are as good for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All in one: the quickest to make and to drop.
    Shared,
    /// One each, so that one can be taken away from its service.
    Own,
}

/// A database of a stack.
#[derive(Debug, Clone)]
pub struct Database {
    /// Its name in the server.
    pub name: String,
    /// The URL its service is given.
    pub url: String,
}

/// Everything that outlives a killed service.
#[derive(Debug)]
pub struct Stores {
    /// order-svc: schemas `orders` and `saga`.
    pub orders: Database,
    /// inventory-svc: schema `inventory`.
    pub inventory: Database,
    /// payment-svc: schema `payment`.
    pub payment: Database,
    /// The gate of inventory-svc.
    pub redis: Redis,
    folder: TempDir,
    postgres: Postgres,
}

impl Stores {
    /// Makes the databases in `postgres` and starts Redis.
    pub async fn create(postgres: Postgres, layout: Layout) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("holdfast-").tempdir_in("/tmp")?;
        let run = format!("hf_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let admin_url = postgres.admin_url();
        let make = |name: &str| Database::create(&admin_url, format!("{run}_{name}"));
        let databases = async {
            match layout {
                Layout::Shared => {
                    let one = make("all").await?;
                    Ok((one.clone(), one.clone(), one))
                }
                Layout::Own => tokio::try_join!(make("orders"), make("inventory"), make("payment")),
            }
        };
        let (redis, databases) = tokio::try_join!(Redis::start(folder.path()), databases)?;
        let (orders, inventory, payment) = databases;
        Ok(Self { orders, inventory, payment, redis, folder, postgres })
    }

    /// A folder for logs, gone with the stores.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// A connection to the server, beside our databases: for tests that take one of them away.
    pub async fn admin(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.postgres.admin_url()).await?)
    }
}

impl Database {
    /// Makes it in the server of `admin_url`. Its maker drops it: [`drop_databases`].
    pub async fn create(admin_url: &str, name: String) -> Result<Self> {
        let mut admin = PgConnection::connect(admin_url).await.context("cannot connect to Postgres")?;
        // template0 has no sessions of its own, so parallel tests can copy it at the same time.
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE template0")))
            .execute(&mut admin)
            .await?;
        admin.close().await?;
        Ok(Self { url: with_database(admin_url, &name), name })
    }

    /// A pool of readers.
    pub fn pool(&self) -> Result<PgPool> {
        Ok(PgPoolOptions::new().max_connections(READERS_MAX).connect_lazy(&self.url)?)
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        let names = [&self.orders, &self.inventory, &self.payment].map(|database| database.name.clone());
        drop_databases(self.postgres.admin_url(), BTreeSet::from(names));
    }
}

/// Drops databases, also from a `Drop`: that cannot await and may run inside a runtime, so a thread with a runtime of
/// its own does it. What fails is left behind in a server of tests: nothing to tell a test that has ended.
pub fn drop_databases(admin_url: String, names: BTreeSet<String>) {
    let dropping = std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut admin = PgConnection::connect(&admin_url).await?;
            for name in names {
                let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                sqlx::query(AssertSqlSafe(sql)).execute(&mut admin).await?;
            }
            Ok(())
        })
    });
    let _ = dropping.join();
}

/// The URL of another database of the same server; parameters stay.
fn with_database(admin_url: &str, name: &str) -> String {
    let (address, parameters) = match admin_url.split_once('?') {
        Some((address, parameters)) => (address, format!("?{parameters}")),
        None => (admin_url, String::new()),
    };
    let authority = address.find("://").map_or(0, |at| at + 3);
    let server = address[authority..].find('/').map_or(address, |slash| &address[..authority + slash]);
    format!("{server}/{name}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn the_database_of_a_url_is_replaced() {
        for (admin, expected) in [
            ("postgres://u:p@h:1/postgres", "postgres://u:p@h:1/x"),
            ("postgres://u@h:1", "postgres://u@h:1/x"),
            ("postgres://u@h/a?sslmode=disable", "postgres://u@h/x?sslmode=disable"),
        ] {
            assert_eq!(with_database(admin, "x"), expected);
        }
    }
}
