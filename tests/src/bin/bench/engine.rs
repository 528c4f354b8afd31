//! Completed three-step sagas per second: the engine at 256 and at 1,024 in flight, against one statement per transition
//! at 256, in turns on the same server. Each caller starts a saga, waits for its durable end and starts the next.
//!
//! Absent: tracing, attributes, side rows. The plain baseline has none of them either.

use std::time::Duration;

use anyhow::Result;
use saga::{Engine, EngineConfig};

use crate::line::{Line, median};
use crate::load::{Closed, Phase, closed};
use crate::server::Server;
use crate::{plain, sagas};

const FEW: usize = 256;
const MANY: usize = 1_024;
/// Connections of the engine's pool, beside those it opens itself.
const CONNECTIONS: u32 = 8;
const STOP_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(quick: bool) -> Result<Line> {
    let server = Server::create(quick).await?;
    let pool = server.pool(plain::CONNECTIONS).await?;
    plain::prepare(&pool).await?;
    let (rounds, phase) = if quick {
        (1, Phase { warm_up: Duration::from_millis(300), window: Duration::from_secs(1) })
    } else {
        (3, Phase { warm_up: Duration::from_secs(2), window: Duration::from_secs(8) })
    };
    println!(
        "{rounds} rounds; each phase counts {:?} after {:?} of warm-up; medians",
        phase.window, phase.warm_up
    );
    let (mut few, mut plain, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        few.push(report(round, "engine", FEW, &of_engine(&server, FEW, phase).await?));
        server.settle().await?;
        let pool = pool.clone();
        let one = move || {
            let pool = pool.clone();
            async move { plain::once(&pool).await }
        };
        plain.push(report(round, "plain", FEW, &closed(&server, FEW, phase, one).await?));
        many.push(report(round, "engine", MANY, &of_engine(&server, MANY, phase).await?));
    }
    let (few, plain, many) = (median(few), median(plain), median(many));
    Ok(Line::of("engine")
        .figure("sagas_per_s_256", few, 0)
        .figure("sagas_per_s_1024", many, 0)
        .figure("plain_per_s_256", plain, 0)
        .figure("ratio_256", few / plain, 2))
}

async fn of_engine(server: &Server, in_flight: usize, phase: Phase) -> Result<Closed> {
    server.settle().await?;
    let pool = server.pool(CONNECTIONS).await?;
    let engine = Engine::open(pool, EngineConfig::named("bench"), [sagas::three()]).await?;
    let one = {
        let engine = engine.clone();
        move || {
            let engine = engine.clone();
            async move { sagas::once(&engine).await }
        }
    };
    let done = closed(server, in_flight, phase, one).await?;
    engine.stop(STOP_WITHIN).await?;
    Ok(done)
}

fn report(round: u32, what: &str, in_flight: usize, done: &Closed) -> f64 {
    println!("round {round}, {what:<6} {in_flight:>5} in flight: {}", done.describe());
    done.per_second()
}
