//! The day while every service is killed once: order-svc at a quarter, inventory-svc at half, payment-svc at three
//! quarters of the orders, each back after three seconds. The client repeats by request id and everything adds up.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use harness::invariants::hold;
use harness::replay::stock_plan::Shortage;
use harness::replay::{Replay, replay, report};
use harness::service::Service;
use harness::stack::Stack;
use tokio::sync::watch;

const ORDERS: usize = 126;
/// How long a killed service stays away: part of the case, not a wait for something.
const AWAY: Duration = Duration::from_secs(3);

async fn kill_when(
    answered: &mut watch::Receiver<usize>,
    orders: usize,
    service: &mut Service,
) -> Result<()> {
    answered.wait_for(|count| *count >= orders).await?;
    service.kill();
    tokio::time::sleep(AWAY).await;
    service.start().await
}

#[tokio::test]
async fn the_day_survives_kill_9_of_every_service() -> Result<()> {
    let mut stack = Stack::start().await?;
    let (answered, mut watching) = watch::channel(0);
    let clients = stack.clients.clone();
    let plan = Replay {
        file: Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/online-retail-2011-12-05.csv"),
        shortage: Shortage::Day,
        in_flight: 64,
        run_id: "killed-day".to_owned(),
        database_url: Some(stack.stores.orders.url.clone()),
    };
    let killing = async {
        kill_when(&mut watching, ORDERS / 4, &mut stack.order).await?;
        kill_when(&mut watching, ORDERS / 2, &mut stack.inventory).await?;
        kill_when(&mut watching, ORDERS * 3 / 4, &mut stack.payment).await
    };
    let (day, ()) = tokio::try_join!(replay(&clients, &plan, &answered), killing)?;
    println!("{}", report::render(&day, None));
    assert!(day.reckoning.holds(), "not everything adds up");
    assert_eq!(day.outcomes.iter().filter(|outcome| outcome.order.is_ok()).count(), ORDERS);
    assert!(
        day.outcomes.iter().any(|outcome| outcome.repeats > 0),
        "nothing was repeated: nobody was killed"
    );
    hold(&stack).await
}
