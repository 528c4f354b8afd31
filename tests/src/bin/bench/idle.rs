//! Statements per second of an engine that has nothing to do, while many sagas wait; first with none that waits, so that
//! the price of a waiting saga can be seen.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use saga::{Engine, EngineConfig};
use tokio::time::{Instant, sleep};

use crate::line::Line;
use crate::server::{Counted, Server};
use crate::waiting::Rows;
use crate::{sagas, waiting};

const WAITING: u64 = 100_000;
const CONNECTIONS: u32 = 8;
const STOP_WITHIN: Duration = Duration::from_secs(5);
const SHOWN: usize = 8;

pub(crate) async fn run(quick: bool) -> Result<Line> {
    let server = Server::create(quick).await?;
    let rows = Rows {
        group: 0,
        count: if quick { 1_000 } else { WAITING },
        first_in: Duration::from_secs(3_600),
        spacing: Duration::ZERO,
        warm_up: 0,
    };
    let seconds = |full, small| Duration::from_secs(if quick { small } else { full });
    let (warm_up, window) = (seconds(5, 1), seconds(20, 3));
    let counted = server.count_statements().await?;
    ensure!(
        counted == Counted::Statements || quick,
        "pg_stat_statements is not loaded: statements cannot be counted"
    );
    println!("counted over {window:?} after {warm_up:?} of warm-up: {}", counted.method());
    let (alone, _) = at_rest(&server, counted, warm_up, seconds(10, 2)).await?;
    println!("nothing waits: {alone:.2} statements/s");
    rows.write(&server.pool(1).await?).await?;
    waiting::analyse(&server).await?;
    let (with_waiting, statements) = at_rest(&server, counted, warm_up, window).await?;
    println!("{} wait: {with_waiting:.2} statements/s; most of them were", rows.count);
    for (calls, statement) in statements.iter().take(SHOWN) {
        println!("{calls:>7} {statement}");
    }
    Ok(Line::of("idle").figure("statements_per_s", with_waiting, 2))
}

/// Statements per second, and how often each was called.
async fn at_rest(
    server: &Server,
    counted: Counted,
    warm_up: Duration,
    window: Duration,
) -> Result<(f64, Vec<(i64, String)>)> {
    let definitions = [sagas::three(), sagas::waiting(&Arc::default())];
    let engine =
        Engine::open(server.pool(CONNECTIONS).await?, EngineConfig::named("bench"), definitions).await?;
    sleep(warm_up).await;
    server.count_anew(counted).await?;
    let (begun, before) = (Instant::now(), total(&server.statements(counted).await?));
    sleep(window).await;
    let statements = server.statements(counted).await?;
    let seconds = begun.elapsed().as_secs_f64();
    engine.stop(STOP_WITHIN).await?;
    let calls = i32::try_from(total(&statements) - before)?;
    Ok((f64::from(calls) / seconds, statements))
}

fn total(statements: &[(i64, String)]) -> i64 {
    statements.iter().map(|(calls, _)| calls).sum()
}
