//! The slow second look: every few minutes the living orders are compared with their sagas' deadlines and due times, and
//! with their reservations. What deviates by more than [`TOLERANCE`] is counted, said, and mended where a look at the
//! saga mends it, so that no order stays alive because a timer was lost. The saga engine looks over its own rows
//! (`saga::EngineConfig::audit_every`); here is what only orders know.

use std::{fmt, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use proto::inventory::v1::{GetReservationRequest, Reservation, reservation};
use saga::{Engine, SagaId, Schedule, Status};
use serde_json::json;
use uuid::Uuid;

use crate::{
    Config,
    checkout::reserve::reservation_id,
    order::{OrderId, OrderState},
    peers::{Answer, Peers, asking, call},
    store::{Living, Store, StoreError},
};

/// Less is the time that things take.
const TOLERANCE: TimeDelta = TimeDelta::seconds(5);
/// Orders looked at together.
const PAGE: i64 = 500;
/// Most reservations asked for in one look: with more orders than that, each gets its turn in a later look.
const HOLDS_MAX: usize = 1_000;

/// The signal that makes a saga look at itself.
const LOOK: &str = "look";

/// What does not agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deviation {
    /// The order lives and its saga has ended, or there is none.
    WithoutSaga,
    /// The order should be closed by now, and its saga sleeps.
    Overdue,
    /// The saga closes the order at another time than the order says.
    OtherDeadline,
    /// The saga sleeps past its own deadline.
    Oversleeps,
    /// The goods are not held until the order is closed.
    ShortHold,
}

impl Deviation {
    /// Whether the saga mends it when it looks at itself.
    fn is_mended_by_a_look(self) -> bool {
        matches!(self, Self::Overdue | Self::Oversleeps)
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WithoutSaga => "the order lives without a saga",
            Self::Overdue => "the order should be closed by now",
            Self::OtherDeadline => "the saga closes the order at another time",
            Self::Oversleeps => "the saga sleeps past its deadline",
            Self::ShortHold => "the goods are not held until the order is closed",
        })
    }
}

/// What is wrong with an order, given its saga's schedule. `grace` is what a payment in process may add.
pub fn compare(
    order: &Living,
    saga: Option<&Schedule>,
    grace: TimeDelta,
    now: DateTime<Utc>,
) -> Vec<Deviation> {
    let Some(saga) = saga.filter(|saga| !matches!(saga.status, Status::Completed | Status::Undone)) else {
        return vec![Deviation::WithoutSaga];
    };
    let mut found = Vec::new();
    let waits = order.standing.is_at_rest() && saga.status == Status::Running && !saga.is_held;
    if !waits {
        return found;
    }
    if now > order.expires_at + grace + TOLERANCE {
        found.push(Deviation::Overdue);
    }
    let is_as_said = saga.deadline.is_some_and(|deadline| {
        deadline > order.expires_at - TOLERANCE && deadline < order.expires_at + grace + TOLERANCE
    });
    if !is_as_said {
        found.push(Deviation::OtherDeadline);
    }
    if let (Some(due), Some(deadline)) = (saga.due, saga.deadline)
        && due > deadline + TOLERANCE
    {
        found.push(Deviation::Oversleeps);
    }
    found
}

/// Whether a reservation holds an order's goods until it is closed, whatever a payment in process adds.
pub fn holds(order: &Living, reservation: &Reservation, grace: TimeDelta) -> bool {
    let until = reservation.expire_time.as_ref().and_then(|time| {
        DateTime::from_timestamp(time.seconds, u32::try_from(time.nanos).unwrap_or_default())
    });
    reservation.state() == reservation::State::Held
        && until.is_some_and(|until| until > order.expires_at + grace - TOLERANCE)
}

/// Looks, again and again.
pub struct Audit {
    store: Store,
    engine: Engine,
    peers: Peers,
    grace: TimeDelta,
    every: Duration,
}

impl Audit {
    /// Over these orders, their sagas, and the services they are carried by.
    pub fn new(store: &Store, engine: &Engine, peers: &Peers, config: &Config) -> Self {
        let (store, engine, peers) = (store.clone(), engine.clone(), peers.clone());
        let grace = TimeDelta::from_std(config.payment_grace()).unwrap_or(TimeDelta::MAX);
        Self { store, engine, peers, grace, every: Duration::from_millis(config.saga.audit_ms.max(1)) }
    }

    /// Looks at a fixed pace, until it is dropped.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + self.every, self.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut asked_until = OrderId(Uuid::nil());
        loop {
            ticks.tick().await;
            if let Err(error) = self.look(&mut asked_until).await {
                tracing::warn!(%error, "orders could not be looked over");
            }
        }
    }

    /// One look at all living orders. Reservations are asked for from `asked_until` on, which moves.
    async fn look(&self, asked_until: &mut OrderId) -> Result<(), StoreError> {
        let (mut after, mut asked) = (OrderId(Uuid::nil()), 0);
        let ask_from = *asked_until;
        *asked_until = OrderId(Uuid::nil());
        loop {
            let orders = self.store.living(after, PAGE).await?;
            let Some(last) = orders.last() else { return Ok(()) };
            after = last.order_id;
            let sagas: Vec<_> = orders.iter().map(|order| order.saga).collect();
            let schedules = match self.engine.schedules(&sagas).await {
                Ok(schedules) => schedules,
                Err(error) => {
                    tracing::warn!(%error, "sagas could not be looked over");
                    return Ok(());
                }
            };
            for order in &orders {
                let mut found = compare(order, schedules.get(&order.saga), self.grace, self.engine.now());
                if !found.is_empty() {
                    found = self.compare_again(order).await?;
                }
                if order.order_id > ask_from && asked < HOLDS_MAX && self.is_to_be_held(order) {
                    asked += 1;
                    *asked_until = if asked == HOLDS_MAX { order.order_id } else { *asked_until };
                    found.extend(self.short_hold(order).await);
                }
                self.tell(order, &found).await;
            }
        }
    }

    /// The order and its saga were not read at one moment: what is true is still there when both are read again, the
    /// order last.
    async fn compare_again(&self, before: &Living) -> Result<Vec<Deviation>, StoreError> {
        let Ok(schedules) = self.engine.schedules(&[before.saga]).await else { return Ok(Vec::new()) };
        let after = OrderId(Uuid::from_u128(before.order_id.0.as_u128().wrapping_sub(1)));
        let now =
            self.store.living(after, 1).await?.into_iter().find(|order| order.order_id == before.order_id);
        let Some(order) = now.filter(|order| order.standing == before.standing) else {
            return Ok(Vec::new());
        };
        Ok(compare(&order, schedules.get(&order.saga), self.grace, self.engine.now()))
    }

    fn is_to_be_held(&self, order: &Living) -> bool {
        // Close to its end an order may be on its way out.
        order.standing.state == OrderState::AwaitingPayment
            && order.standing.is_at_rest()
            && order.expires_at - TOLERANCE > self.engine.now()
    }

    /// Unknown is no deviation.
    async fn short_hold(&self, order: &Living) -> Option<Deviation> {
        let asked = GetReservationRequest { reservation_id: reservation_id(order.saga, 1) };
        match call(self.peers.inventory.clone().get_reservation(asking(asked))).await {
            Answer::Ok(reservation) => {
                (!holds(order, &reservation, self.grace)).then_some(Deviation::ShortHold)
            }
            Answer::Refused { .. } => Some(Deviation::ShortHold),
            Answer::Unknown(_) => None,
        }
    }

    async fn tell(&self, order: &Living, found: &[Deviation]) {
        for deviation in found {
            tracing::error!(order.id = %order.order_id, saga.id = %order.saga, %deviation, "an order and what carries it do not agree");
        }
        if found.iter().any(|deviation| deviation.is_mended_by_a_look()) {
            self.make_look(order.saga).await;
        }
    }

    async fn make_look(&self, saga: SagaId) {
        // Once per hour, so that a saga that cannot be mended is not told without end.
        let key = format!("look.{}", self.engine.now().timestamp() / 3_600);
        if let Err(error) = self.engine.signal(saga, &key, LOOK, &json!({})).await {
            tracing::warn!(saga.id = %saga, %error, "a saga could not be made to look at itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{OrderEvent, Standing};

    const GRACE: TimeDelta = TimeDelta::seconds(30);

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
    }

    fn order() -> Living {
        Living {
            order_id: OrderId(Uuid::nil()),
            saga: SagaId(Uuid::nil()),
            standing: Standing::NEW.after(OrderEvent::Held).unwrap(),
            expires_at: at(1_000),
        }
    }

    fn waits(due: i64, deadline: Option<i64>) -> Schedule {
        Schedule { status: Status::Running, is_held: false, due: Some(at(due)), deadline: deadline.map(at) }
    }

    #[test]
    fn what_agrees_is_left_alone() {
        assert_eq!(compare(&order(), Some(&waits(1_000, Some(1_000))), GRACE, at(900)), []);
        // In its grace.
        assert_eq!(compare(&order(), Some(&waits(1_010, Some(1_030))), GRACE, at(1_002)), []);
        let runs = Schedule { is_held: true, due: None, ..waits(0, None) };
        assert_eq!(compare(&order(), Some(&runs), GRACE, at(9_999)), [], "somebody is at it");
        let parked = Schedule { status: Status::Parked, due: None, ..waits(0, None) };
        assert_eq!(compare(&order(), Some(&parked), GRACE, at(9_999)), [], "it is listed already");
    }

    #[test]
    fn what_deviates_by_more_than_five_seconds_is_found() {
        assert_eq!(compare(&order(), None, GRACE, at(900)), [Deviation::WithoutSaga]);
        let ended = Schedule { status: Status::Undone, ..waits(0, None) };
        assert_eq!(compare(&order(), Some(&ended), GRACE, at(900)), [Deviation::WithoutSaga]);
        assert_eq!(
            compare(&order(), Some(&waits(1_006, Some(1_000))), GRACE, at(900)),
            [Deviation::Oversleeps]
        );
        assert_eq!(compare(&order(), Some(&waits(1_000, None)), GRACE, at(900)), [Deviation::OtherDeadline]);
        assert_eq!(
            compare(&order(), Some(&waits(990, Some(990))), GRACE, at(900)),
            [Deviation::OtherDeadline]
        );
        assert_eq!(
            compare(&order(), Some(&waits(1_000, Some(1_000))), GRACE, at(1_036)),
            [Deviation::Overdue]
        );
    }

    #[test]
    fn a_hold_must_outlive_deadline_and_grace() {
        let hold = |state: reservation::State, until: i64| Reservation {
            state: state.into(),
            expire_time: Some(prost_types::Timestamp { seconds: until, nanos: 0 }),
            ..Reservation::default()
        };
        assert!(holds(&order(), &hold(reservation::State::Held, 1_090), GRACE));
        assert!(!holds(&order(), &hold(reservation::State::Held, 1_000), GRACE));
        assert!(!holds(&order(), &hold(reservation::State::Expired, 1_090), GRACE));
    }
}
