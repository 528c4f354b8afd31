//! The example, on a real Postgres: the same saga, participants and accident, with its ends looked at closely. The
//! process that dies is this test's own program, started a second time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must say so at once")]

#[path = "../examples/move_tenant/desk.rs"]
mod desk;
mod lab;
#[path = "../examples/move_tenant/moves.rs"]
mod moves;
#[path = "../examples/move_tenant/moving.rs"]
mod moving;
#[path = "../examples/move_tenant/participants.rs"]
mod participants;

use std::{
    env,
    process::{Command, Stdio},
    time::Duration,
};

use desk::{Answer, Desk, Name};
use lab::with_database;
use participants::Fleet;
use saga::{Engine, EngineConfig, SagaId, Status};
use sqlx::{ConnectOptions as _, PgPool, postgres::PgPoolOptions};

/// The process that dies finds its database here.
const FIRST: &str = "MOVE_TENANT_FIRST";
const DEATH: i32 = 70;
const PATIENCE: Duration = Duration::from_secs(30);

async fn open(pool: &PgPool, accident: fn()) -> Engine {
    let config = EngineConfig::named("mover");
    Engine::open(pool.clone(), config, [moving::definition(pool, accident)]).await.unwrap()
}

async fn ends(engine: &Engine, saga: SagaId) -> Status {
    let standing = engine.wait_for(saga, PATIENCE, |standing| standing.status.is_final()).await.unwrap();
    standing.unwrap().status
}

/// Where a tenant is, and whether it is frozen.
async fn tenant(pool: &PgPool, name: &str) -> (String, bool) {
    sqlx::query_as("SELECT host, frozen_by IS NOT NULL FROM moving.tenants WHERE name = $1")
        .bind(name)
        .fetch_one(pool)
        .await
        .unwrap()
}

async fn free(pool: &PgPool, host: &str) -> i32 {
    sqlx::query_scalar("SELECT free FROM moving.hosts WHERE name = $1")
        .bind(host)
        .fetch_one(pool)
        .await
        .unwrap()
}

/// The row that whoever asked for the move reads: saga, status, reason.
async fn row(pool: &PgPool, tenant: &str) -> (SagaId, String, Option<String>) {
    let (saga, status, reason) =
        sqlx::query_as("SELECT saga, status, reason FROM moving.moves WHERE tenant = $1")
            .bind(tenant)
            .fetch_one(pool)
            .await
            .unwrap();
    (SagaId(saga), status, reason)
}

/// Begins to move acme, and dies right after it was frozen.
#[tokio::main]
async fn first_process(url: &str) {
    let pool = PgPoolOptions::new().max_connections(4).connect(url).await.unwrap();
    let engine = open(&pool, || std::process::exit(DEATH)).await;
    let acme = moves::ask_for(&engine, "acme").await.unwrap().unwrap();
    let status = ends(&engine, acme).await;
    panic!("it came to {status:?}, and nothing died");
}

#[test]
fn a_tenant_moves_although_the_process_dies_in_the_middle() {
    if let Ok(url) = env::var(FIRST) {
        return first_process(&url);
    }
    with_database(async |lab| {
        participants::set_up(&lab.pool).await.unwrap();
        let mut first = Command::new(env::current_exe().unwrap());
        first.args(["--exact", "a_tenant_moves_although_the_process_dies_in_the_middle", "--nocapture"]);
        first.env(FIRST, lab.pool.connect_options().to_url_lossy().as_str()).stdout(Stdio::null());
        let ended = tokio::task::spawn_blocking(move || first.status().unwrap()).await.unwrap();
        assert_eq!(ended.code(), Some(DEATH));
        assert_eq!(tenant(&lab.pool, "acme").await, ("old".to_owned(), true));
        let (acme, status, _) = row(&lab.pool, "acme").await;
        assert_eq!(status, "RUNNING");
        // The freeze is durable_before: what came before it is on disk, what came of it is not.
        assert!(lab.journal(acme).await.ends_with(&["step_done".to_owned()]));

        let engine = open(&lab.pool, || ()).await;
        assert_eq!(ends(&engine, acme).await, Status::Completed);
        assert_eq!(tenant(&lab.pool, "acme").await, ("new".to_owned(), false));
        assert_eq!((free(&lab.pool, "old").await, free(&lab.pool, "new").await), (1, 1));
        assert_eq!(row(&lab.pool, "acme").await, (acme, "COMPLETED".to_owned(), None));
        let asked: Vec<(String, i32)> = sqlx::query_as(
            "SELECT split_part(id, '.', 2), asked FROM moving.answers WHERE refused IS NULL ORDER BY 1",
        )
        .fetch_all(&lab.pool)
        .await
        .unwrap();
        let once = |step: &str| (step.to_owned(), 1);
        let twice = ("freeze".to_owned(), 2);
        assert_eq!(asked, [once("allocate"), once("copy"), once("discard"), twice, once("switch")]);
        assert_eq!(moves::ask_for(&engine, "acme").await.unwrap(), None, "one request is one move");
        engine.stop(PATIENCE).await.unwrap();
    });
}

#[test]
fn a_tenant_that_cannot_live_there_stays_and_leaves_nothing_behind() {
    with_database(async |lab| {
        participants::set_up(&lab.pool).await.unwrap();
        let engine = open(&lab.pool, || ()).await;
        let globex = moves::ask_for(&engine, "globex").await.unwrap().unwrap();
        assert_eq!(ends(&engine, globex).await, Status::Undone);
        assert_eq!(tenant(&lab.pool, "globex").await, ("old".to_owned(), false));
        assert_eq!((free(&lab.pool, "old").await, free(&lab.pool, "new").await), (0, 2));
        let told = Some("EXTENSION_MISSING".to_owned());
        assert_eq!(row(&lab.pool, "globex").await, (globex, "UNDONE".to_owned(), told));
        // Undo covers the freeze, too, which was never asked for: it could not happen any more.
        let tombstones: Vec<String> =
            sqlx::query_scalar("SELECT split_part(scope, '.', 2) FROM moving.tombstones ORDER BY 1")
                .fetch_all(&lab.pool)
                .await
                .unwrap();
        assert_eq!(tombstones, ["allocate", "copy", "freeze"]);
        let fleet = Fleet(Desk { pool: lab.pool.clone(), participant: "fleet" });
        let scope = format!("{globex}.allocate");
        let late = Name { id: format!("{scope}.2"), scope };
        let answer = fleet.allocate(&late, "new").await.unwrap();
        assert_eq!(answer, Answer::Refused("REVOKED".into()), "a request that arrives late");
        assert_eq!(free(&lab.pool, "new").await, 2);
        engine.stop(PATIENCE).await.unwrap();
    });
}
