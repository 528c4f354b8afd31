//! Orders: all have ended, those confirmed own exactly what they asked for, those cancelled hold and own nothing.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use proto::inventory::v1::{GetReservationRequest, Reservation, reservation};
use proto::orders::v1::{ListOrdersRequest, Order, order};
use tonic::Code;

use super::Found;
use crate::stack::{Stack, has_ended};

const PAGE_SIZE: i32 = 500;
const PAGES_MAX: usize = 1_000;
const LOOKS_IN_FLIGHT: usize = 16;
/// The first hold and its one re-acquire.
const RESERVATIONS: [u32; 2] = [1, 2];

/// Every order there is, through ListOrders.
pub(super) async fn all(stack: &Stack) -> Result<Vec<Order>> {
    let mut orders = Vec::new();
    let mut page_token = String::new();
    for _ in 0..PAGES_MAX {
        let request = ListOrdersRequest { page_size: PAGE_SIZE, page_token, ..Default::default() };
        let page = stack.clients.orders.clone().list_orders(request).await?.into_inner();
        orders.extend(page.orders);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(orders);
        }
    }
    anyhow::bail!("ListOrders does not end after {PAGES_MAX} pages")
}

pub(super) async fn check(stack: &Stack, orders: &[Order], found: &mut Found) -> Result<()> {
    for order in orders {
        found.look("every order ends", ended(order));
    }
    let looks = orders.iter().map(|order| async move {
        let reservations = reservations(stack, order).await?;
        anyhow::Ok(fits(order, &reservations))
    });
    let verdicts: Vec<Result<()>> =
        stream::iter(looks).buffer_unordered(LOOKS_IN_FLIGHT).try_collect().await?;
    for verdict in verdicts {
        found.look("an order owns what it confirmed and holds nothing when it has ended", verdict);
    }
    Ok(())
}

fn ended(order: &Order) -> Result<()> {
    ensure!(has_ended(order.state()), "{} is {:?}", order.order_id, order.state());
    Ok(())
}

async fn reservations(stack: &Stack, order: &Order) -> Result<Vec<Reservation>> {
    let mut known = Vec::new();
    for attempt in RESERVATIONS {
        let request =
            GetReservationRequest { reservation_id: format!("{}.reserve.{attempt}", order.saga_id) };
        match stack.clients.inventory.clone().get_reservation(request).await {
            Ok(reservation) => known.push(reservation.into_inner()),
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => return Err(status.into()),
        }
    }
    Ok(known)
}

fn fits(order: &Order, reservations: &[Reservation]) -> Result<()> {
    let id = &order.order_id;
    let in_state = |state| reservations.iter().filter(move |reservation| reservation.state() == state);
    if !has_ended(order.state()) {
        return Ok(());
    }
    let held = in_state(reservation::State::Held).count();
    ensure!(held == 0, "{id} is {:?} and still holds {held} reservations", order.state());
    let sold: Vec<&Reservation> = in_state(reservation::State::Confirmed).collect();
    if order.state() != order::State::Confirmed {
        ensure!(sold.is_empty(), "{id} is {:?} and owns {} reservations", order.state(), sold.len());
        return Ok(());
    }
    ensure!(sold.len() == 1, "{id} is confirmed and owns {} reservations", sold.len());
    let mut asked: BTreeMap<&str, i64> = BTreeMap::new();
    for line in &order.lines {
        *asked.entry(&line.sku).or_default() += line.quantity;
    }
    let owned: BTreeMap<&str, i64> = sold[0].lines.iter().map(|line| (&*line.sku, line.quantity)).collect();
    ensure!(asked == owned, "{id} asked for {asked:?} and owns {owned:?}");
    Ok(())
}
