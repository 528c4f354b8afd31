//! A Redis process and a database that live as long as their test.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    str::FromStr,
    time::{Duration, Instant},
};

use inventory_svc::{
    keys::Keys,
    ledger::Ledger,
    partition::{Generation, PartitionId},
    stock::{Gate, Limits},
};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};

pub(crate) const PARTITION: PartitionId = PartitionId::FIRST;

pub(crate) struct Stores {
    redis: Child,
    folder: PathBuf,
    database: String,
}

fn admin() -> PgConnectOptions {
    let url = std::env::var("TEST_DATABASE_URL")
        .expect("TEST_DATABASE_URL names a Postgres that may create databases");
    PgConnectOptions::from_str(&url).unwrap()
}

impl Stores {
    pub(crate) async fn start() -> Self {
        let name = format!("inventory_{}", uuid::Uuid::new_v4().simple());
        let mut connection = admin().connect().await.unwrap();
        let create = format!("create database {name}");
        sqlx::query(AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir(&folder).unwrap();
        let mut stores = Self { redis: spawn_redis(&folder), folder, database: name };
        stores.wait_for_redis().await;
        stores
    }

    pub(crate) fn redis_url(&self) -> String {
        format!("redis+unix://{}", self.folder.join("redis.sock").display())
    }

    pub(crate) fn database_url(&self) -> String {
        admin().database(&self.database).to_url_lossy().to_string()
    }

    /// Kills Redis and starts an empty one.
    pub(crate) async fn lose_redis(&mut self) {
        self.redis.kill().unwrap();
        self.redis.wait().unwrap();
        self.redis = spawn_redis(&self.folder);
        self.wait_for_redis().await;
    }

    async fn wait_for_redis(&mut self) {
        let give_up = Instant::now() + Duration::from_secs(10);
        while self.try_redis().await.is_err() {
            assert!(Instant::now() < give_up, "redis-server did not come up");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn try_redis(&self) -> redis::RedisResult<String> {
        let mut connection =
            redis::Client::open(self.redis_url())?.get_multiplexed_async_connection().await?;
        redis::cmd("PING").query_async(&mut connection).await
    }

    pub(crate) async fn redis(&self) -> redis::aio::MultiplexedConnection {
        redis::Client::open(self.redis_url()).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    /// Sends one command, written as one would at a prompt; arguments have no spaces.
    pub(crate) async fn command<T: redis::FromRedisValue>(&self, words: &str) -> T {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        command.arg(words.collect::<Vec<_>>());
        command.query_async(&mut self.redis().await).await.unwrap()
    }

    pub(crate) async fn sql(&self) -> PgConnection {
        PgConnection::connect(&self.database_url()).await.unwrap()
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.sql().await).await.unwrap()
    }

    pub(crate) fn gate(&self) -> Gate {
        let limits = Limits { outcome_ttl: Duration::from_secs(3_600), backlog_entries: 1_000 };
        Gate::new(&self.redis_url(), PARTITION, limits).unwrap()
    }

    pub(crate) async fn ledger(&self) -> Ledger {
        Ledger::open(&self.database_url(), PARTITION).await.unwrap()
    }

    /// For every SKU, the ledger's balance is the sum of its movements, and what is held is what open holds hold.
    pub(crate) async fn check_ledger(&self) {
        let contradictions = self
            .count(
                "with lines as (
                     select m.kind, m.from_state, l.sku, l.quantity
                     from inventory.movements m, unnest(m.skus, m.quantities) as l(sku, quantity)),
                 sums as (
                     select sku,
                            sum(case when kind in ('RECEIVE', 'ADJUST') then quantity else 0 end) as received,
                            sum(case when kind = 'RESERVE' then quantity
                                     when from_state = 'HELD' then -quantity else 0 end) as held,
                            sum(case when kind = 'CONFIRM' then quantity else 0 end) as sold
                     from lines group by sku),
                 holds as (
                     select l.sku, sum(l.quantity) as held
                     from inventory.reservations r
                     join inventory.movements m on m.partition = r.partition and m.seq = r.opened_seq,
                     unnest(m.skus, m.quantities) as l(sku, quantity)
                     where r.state = 'HELD' group by l.sku)
                 select count(*) from inventory.balances b
                 left join sums s using (sku) left join holds h using (sku)
                 where (b.received, b.held, b.sold) is distinct from (s.received, s.held, s.sold)
                    or b.held <> coalesce(h.held, 0)",
            )
            .await;
        assert_eq!(contradictions, 0, "balances contradict movements or holds");
        let breaks = self
            .count(
                "select count(*) from (
                     select prev, lag(nonce, 1, 'genesis') over (order by seq) as before,
                            seq, lag(seq, 1, 0::bigint) over (order by seq) as seq_before
                     from inventory.movements) m
                 where prev <> before or seq <> seq_before + 1",
            )
            .await;
        assert_eq!(breaks, 0, "the chain is broken");
    }

    /// For every SKU, Redis (of the open generation) has what the ledger has.
    pub(crate) async fn check_redis(&self) {
        let generation: i64 = self.command("HGET hf:{p0}:head generation").await;
        let keys = Keys::new(PARTITION, Generation(generation));
        let balances = self.ledger().await.balances_after(None, 10_000).await.unwrap();
        let mut redis = self.redis().await;
        for balance in balances {
            let fields = ["received", "held", "sold"];
            let found: Vec<i64> = redis::cmd("HMGET")
                .arg(keys.stock(&balance.sku))
                .arg(&fields)
                .query_async(&mut redis)
                .await
                .unwrap();
            let counters = &balance.counters;
            assert_eq!(found, [counters.received, counters.held, counters.sold], "{}", balance.sku);
        }
    }
}

fn spawn_redis(folder: &std::path::Path) -> Child {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", "redis.sock", "--dir"])
        .arg(folder)
        .current_dir(folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is on the path")
}

impl Drop for Stores {
    fn drop(&mut self) {
        drop(self.redis.kill());
        drop(self.redis.wait());
        drop(std::fs::remove_dir_all(&self.folder));
        let drop_database = format!("drop database if exists {} with (force)", self.database);
        // Drop runs inside the test's runtime, so the connection needs a thread and a runtime of its own.
        let dropped = std::thread::spawn(|| {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async move {
                let mut connection = admin().connect().await?;
                sqlx::query(AssertSqlSafe(drop_database)).execute(&mut connection).await.map(drop)
            })
        });
        drop(dropped.join());
    }
}
