//! The Postgres of one bench: a database of its own, gone afterwards, and an observer who looks on from another one,
//! so that what he asks is not counted.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use harness::postgres::Postgres;
use harness::stores::{Database, drop_databases};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

/// Commits of one row by one connection, to say what the disk costs.
const COMMITS: usize = 200;

/// A database to measure in.
pub(crate) struct Server {
    admin_url: String,
    database: Database,
    observatory: Database,
    observer: PgPool,
}

/// How the statements of our database are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// One by one.
    Statements,
    /// `pg_stat_statements` is not loaded in this server.
    Transactions,
}

impl Counted {
    /// For the report.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Statements => "calls in pg_stat_statements, BEGIN and COMMIT included",
            Self::Transactions => "transactions in pg_stat_database, since pg_stat_statements is not loaded",
        }
    }
}

/// What the server did so far: our database's commits, and the log of all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) commits: i64,
    /// Times the log was forced to disk.
    pub(crate) syncs: i64,
    pub(crate) log_bytes: i64,
}

impl Work {
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            commits: self.commits - earlier.commits,
            syncs: self.syncs - earlier.syncs,
            log_bytes: self.log_bytes - earlier.log_bytes,
        }
    }
}

impl Server {
    /// Makes the databases, brings the journal's schema up, and prints what the machine is. A server that does not
    /// sync its commits is good enough for `quick` only.
    pub(crate) async fn create(quick: bool) -> Result<Self> {
        let postgres = Postgres::find()?;
        let admin_url = postgres.admin_url();
        let run = format!("hf_bench_{}", std::process::id());
        let database = Database::create(&admin_url, run.clone()).await?;
        let observatory = Database::create(&admin_url, format!("{run}_observer")).await?;
        let observer = PgPoolOptions::new().max_connections(1).connect(&observatory.url).await?;
        let server = Self { admin_url, database, observatory, observer };
        server.introduce(quick).await?;
        saga::migrate(&server.pool(1).await?).await?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> &str {
        &self.database.url
    }

    pub(crate) async fn pool(&self, connections: u32) -> Result<PgPool> {
        pool(self.url(), connections).await
    }

    /// Writes out what earlier phases left dirty, so that the next does not pay for it.
    pub(crate) async fn settle(&self) -> Result<()> {
        match sqlx::query("CHECKPOINT").execute(&self.observer).await {
            Ok(_) => Ok(()),
            // Somebody else's server: its owner decides when.
            Err(error) if is_forbidden(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What the server did so far.
    pub(crate) async fn work(&self) -> Result<Work> {
        let sql = "SELECT d.xact_commit, w.wal_sync, w.wal_bytes::bigint
                   FROM pg_stat_database d, pg_stat_wal w WHERE d.datname = $1";
        let (commits, syncs, log_bytes) =
            sqlx::query_as(sql).bind(&self.database.name).fetch_one(&self.observer).await?;
        Ok(Work { commits, syncs, log_bytes })
    }

    /// Begins to count the statements of connections made from now on. Counting costs time, so it is off elsewhere.
    pub(crate) async fn count_statements(&self) -> Result<Counted> {
        let loaded: String = sqlx::query_scalar("SELECT current_setting('shared_preload_libraries')")
            .fetch_one(&self.observer)
            .await?;
        if !loaded.contains("pg_stat_statements") {
            return Ok(Counted::Transactions);
        }
        sqlx::query("CREATE EXTENSION pg_stat_statements").execute(&self.observer).await?;
        let track = format!("ALTER DATABASE {} SET pg_stat_statements.track = 'all'", self.database.name);
        sqlx::query(AssertSqlSafe(track)).execute(&self.observer).await?;
        Ok(Counted::Statements)
    }

    /// Forgets the statements counted so far.
    pub(crate) async fn count_anew(&self, counted: Counted) -> Result<()> {
        if counted == Counted::Statements {
            let sql = "SELECT pg_stat_statements_reset(0, oid, 0) FROM pg_database WHERE datname = $1";
            sqlx::query(sql).bind(&self.database.name).execute(&self.observer).await?;
        }
        Ok(())
    }

    /// How often each statement of our database was called, the most frequent first.
    pub(crate) async fn statements(&self, counted: Counted) -> Result<Vec<(i64, String)>> {
        let sql = match counted {
            Counted::Statements => {
                r"SELECT s.calls, left(regexp_replace(s.query, '\s+', ' ', 'g'), 100)
                 FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
                 WHERE d.datname = $1 ORDER BY s.calls DESC"
            }
            Counted::Transactions => {
                "SELECT xact_commit + xact_rollback, 'transactions' FROM pg_stat_database WHERE datname = $1"
            }
        };
        Ok(sqlx::query_as(sql).bind(&self.database.name).fetch_all(&self.observer).await?)
    }

    async fn introduce(&self, quick: bool) -> Result<()> {
        let sql = "SELECT current_setting('server_version'), current_setting('fsync'),
                          current_setting('synchronous_commit'), current_setting('shared_buffers')";
        let (version, fsync, commit, buffers): (String, String, String, String) =
            sqlx::query_as(sql).fetch_one(&self.observer).await?;
        let durable = fsync == "on" && commit != "off";
        ensure!(
            durable || quick,
            "fsync={fsync} synchronous_commit={commit}: such figures would mean nothing"
        );
        let cores = std::thread::available_parallelism()?;
        println!(
            "machine: {cores} cores for everything; Postgres {version}, fsync={fsync}, synchronous_commit={commit}, \
             shared_buffers={buffers}; a commit of one row takes {:.2} ms (median of {COMMITS})",
            self.commit_ms().await?
        );
        if quick {
            println!("quick: a slice that shows that the bench works; its figures mean nothing");
        }
        Ok(())
    }

    async fn commit_ms(&self) -> Result<f64> {
        let mut connection = PgConnection::connect(&self.observatory.url).await?;
        sqlx::query("CREATE TABLE commits (number integer)").execute(&mut connection).await?;
        let mut took = Vec::with_capacity(COMMITS);
        for _ in 0..COMMITS {
            let begun = Instant::now();
            sqlx::query("INSERT INTO commits VALUES (1)").execute(&mut connection).await?;
            took.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(crate::line::median(took))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let names = BTreeSet::from([self.database.name.clone(), self.observatory.name.clone()]);
        drop_databases(self.admin_url.clone(), names);
    }
}

/// A pool as the services open theirs: no question before each use.
pub(crate) async fn pool(url: &str, connections: u32) -> Result<PgPool> {
    let options = PgPoolOptions::new().max_connections(connections).test_before_acquire(false);
    options.connect(url).await.context("cannot connect to Postgres")
}

fn is_forbidden(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("42501"))
}
