//! Moves the databases of two tenants to another host: `DATABASE_URL=postgres://… cargo run --example move_tenant`.
//!
//! One of them cannot live there, which is found out half-way: its saga is undone. The other one's process dies in the
//! middle, after the tenant was frozen and before anybody heard so; a second process finishes the move. Makes the schemas
//! `saga` and `moving`; whatever is in `moving` is dropped.
#![expect(clippy::print_stdout, reason = "it tells a story")]

mod desk;
mod moves;
mod moving;
mod participants;

use std::{env, error::Error, process::Command, time::Duration};

use saga::{Engine, EngineConfig, Operations, SagaId, Seq, Status};
use serde_json::Value;
use sqlx::{PgPool, postgres::PgPoolOptions};

/// What the first process is started with.
const FIRST: &str = "first";
/// What it ends with.
const DEATH: i32 = 70;
/// Longer than any move takes here.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("DATABASE_URL").map_err(|_| "DATABASE_URL must name a Postgres database")?;
    let pool = PgPoolOptions::new().max_connections(8).connect(&url).await?;
    if env::args().nth(1).as_deref() == Some(FIRST) {
        return first_process(&pool).await;
    }
    saga::migrate(&pool).await?;
    participants::set_up(&pool).await?;

    println!("A first process begins.");
    let program = env::current_exe()?;
    let ended = tokio::task::spawn_blocking(|| Command::new(program).arg(FIRST).status()).await??;
    if ended.code() != Some(DEATH) {
        return Err(format!("the first process should have died in the middle, but {ended}").into());
    }
    println!("It died. {}", tenant(&pool, "acme").await?);
    second_process(&pool).await
}

/// Is refused one move, and dies in the other.
async fn first_process(pool: &PgPool) -> Result<(), Box<dyn Error>> {
    let engine = open(pool, || std::process::exit(DEATH)).await?;
    let globex = moves::ask_for(&engine, "globex").await?.ok_or("globex moves already")?;
    let status = ends(&engine, globex).await?;
    println!("  globex: {}. {}", status.as_str(), tenant(pool, "globex").await?);
    let reason: Option<String> = sqlx::query_scalar("SELECT reason FROM moving.moves WHERE saga = $1")
        .bind(globex.0)
        .fetch_one(pool)
        .await?;
    println!("  It was refused: {}.", reason.unwrap_or_default());

    let acme = moves::ask_for(&engine, "acme").await?.ok_or("acme moves already")?;
    println!("  acme: begins to move.");
    ends(&engine, acme).await?;
    Err("acme moved, and nothing died".into())
}

/// Finishes what the first one left.
async fn second_process(pool: &PgPool) -> Result<(), Box<dyn Error>> {
    println!("A second process begins, under the same name: it takes over at once.");
    let engine = open(pool, || ()).await?;
    let acme =
        sqlx::query_scalar("SELECT saga FROM moving.moves WHERE tenant = 'acme'").fetch_one(pool).await?;
    let acme = SagaId(acme);
    let status = ends(&engine, acme).await?;
    println!("  acme: {}. {}", status.as_str(), tenant(pool, "acme").await?);
    let asked: i32 = sqlx::query_scalar("SELECT asked FROM moving.answers WHERE id = $1")
        .bind(format!("{acme}.freeze.1"))
        .fetch_one(pool)
        .await?;
    println!("  Its freeze was asked for {asked} times, and happened once. Its journal:");
    let told =
        Operations::new(pool.clone(), engine.clone()).get(acme, Seq(0)).await?.ok_or("acme has no saga")?;
    for entry in told.entries {
        let event: Value = serde_json::from_str(&entry.json)?;
        let word = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        println!("  {:>4}  {:<13} {}", entry.seq.0, word("event"), word("step"));
    }
    if moves::ask_for(&engine, "acme").await?.is_some() {
        return Err("the same request began a second move".into());
    }
    println!("  Asked for once more under the same request id, nothing begins.");
    engine.stop(Duration::from_secs(5)).await?;
    if status == Status::Completed { Ok(()) } else { Err("acme did not move".into()) }
}

async fn open(pool: &PgPool, accident: fn()) -> Result<Engine, saga::OpenError> {
    Engine::open(pool.clone(), EngineConfig::named("mover"), [moving::definition(pool, accident)]).await
}

async fn ends(engine: &Engine, saga: SagaId) -> Result<Status, Box<dyn Error>> {
    let standing = engine.wait_for(saga, PATIENCE, |standing| standing.status.is_final()).await?;
    Ok(standing.ok_or("there is no such saga")?.status)
}

/// Where a tenant is, in words.
async fn tenant(pool: &PgPool, name: &str) -> Result<String, sqlx::Error> {
    let (host, is_frozen): (String, bool) =
        sqlx::query_as("SELECT host, frozen_by IS NOT NULL FROM moving.tenants WHERE name = $1")
            .bind(name)
            .fetch_one(pool)
            .await?;
    let frozen = if is_frozen { ", and is frozen" } else { "" };
    Ok(format!("{name} is on host {host}{frozen}."))
}
