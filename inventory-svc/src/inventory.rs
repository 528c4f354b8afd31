//! The use cases: a script decides, the ledger is waited for, the answer leaves. What Redis has forgotten, the ledger
//! answers. Absent: transport, and the text of errors.

mod change_stock;
mod end;
mod read;
mod reserve;

pub use reserve::ReserveOrder;

use std::{collections::HashSet, sync::Arc, time::Duration};

use tracing::{Instrument, field::Empty};

use crate::{
    clock::Clock,
    grouped::Grouped,
    ledger::{Balance, Ledger, MadeChange},
    partition::Position,
    reservation::{Denied, Record, RefusalReason},
    sku::Sku,
    standing::{NotReady, Open, Standing},
    stock::Gate,
};

/// The most an answer waits for the ledger, whatever the caller's patience.
const LEDGER_PATIENCE: Duration = Duration::from_secs(5);
/// Kept of the caller's patience for the answer itself.
const ANSWER_MARGIN: Duration = Duration::from_millis(20);
/// How often a script may ask back before the caller is told to come again. Two questions are usual; more means that
/// the same id is being used at the same moment.
const QUESTIONS_MAX: usize = 6;

/// Why a call was not granted.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The reservation's state forbids it; final.
    #[error("denied")]
    Denied(Denied),
    /// The stock forbids this change; final.
    #[error("refused")]
    ChangeRefused(RefusalReason),
    /// More would be received than can be counted.
    #[error("too much")]
    TooMuch,
    /// No reservation has this id.
    #[error("unknown reservation")]
    UnknownReservation,
    /// Never received.
    #[error("unknown SKU")]
    UnknownSku,
    /// Ask again.
    #[error(transparent)]
    NotReady(#[from] NotReady),
}

/// One partition's stock.
#[derive(Debug)]
pub struct Inventory {
    gate: Gate,
    ledger: Ledger,
    standing: Arc<Standing>,
    clock: Arc<Clock>,
    outcome_ttl: Duration,
    reservations: Grouped<Record>,
    changes: Grouped<MadeChange>,
    balances: Grouped<Balance>,
}

impl Inventory {
    /// Over a gate and its ledger. Needs a runtime, for the grouped reads.
    pub fn new(
        gate: Gate,
        ledger: Ledger,
        standing: Arc<Standing>,
        clock: Arc<Clock>,
        outcome_ttl: Duration,
    ) -> Self {
        let (first, second, third) = (ledger.clone(), ledger.clone(), ledger.clone());
        let reservations = Grouped::new(move |ids| {
            let ledger = first.clone();
            async move { ledger.reservations(&ids).await }
        });
        let changes = Grouped::new(move |ids| {
            let ledger = second.clone();
            async move { ledger.changes(&ids).await }
        });
        let balances = Grouped::new(move |skus| {
            let ledger = third.clone();
            async move { ledger.balances(&skus).await }
        });
        Self { gate, ledger, standing, clock, outcome_ttl, reservations, changes, balances }
    }

    /// What the ledger has recorded for a reservation id that Redis may have forgotten.
    async fn recorded(&self, open: &Open, id: &str) -> Result<Option<Record>, NotReady> {
        let vouches = self.vouches(open);
        vouched(vouches, self.reservations.get(id).await.map_err(|error| away(&error))?)
    }

    /// What the ledger has recorded for a request id that Redis may have forgotten.
    async fn recorded_change(&self, open: &Open, id: &str) -> Result<Option<MadeChange>, NotReady> {
        let vouches = self.vouches(open);
        vouched(vouches, self.changes.get(id).await.map_err(|error| away(&error))?)
    }

    /// Whether the ledger knows all that Redis may have forgotten. To be asked before the ledger is read: what was
    /// appended after the read would vouch for something the read did not see.
    fn vouches(&self, open: &Open) -> Result<(), NotReady> {
        if open.ledger_vouches(self.clock.now_ms(), self.outcome_ttl) {
            Ok(())
        } else {
            Err(NotReady::Backlogged)
        }
    }

    /// Whether the ledger knows this SKU.
    async fn knows(&self, sku: &Sku) -> Result<bool, NotReady> {
        Ok(self.balances.get(sku.as_str()).await.map_err(|error| away(&error))?.is_some())
    }

    /// Which of these SKUs the ledger knows.
    async fn known(&self, skus: &[Sku]) -> Result<HashSet<Sku>, NotReady> {
        let names: Vec<String> = skus.iter().map(|sku| sku.as_str().to_owned()).collect();
        let known = self.ledger.balances(&names).await.map_err(|error| away(&error))?;
        Ok(known.into_values().map(|balance| balance.sku).collect())
    }

    /// Waits until what is about to be told is in the ledger.
    async fn in_ledger(&self, open: &Open, movement: Position) -> Result<(), NotReady> {
        let left = runtime::deadline::remaining().map(|left| left.saturating_sub(ANSWER_MARGIN));
        let patience = left.map_or(LEDGER_PATIENCE, |left| left.min(LEDGER_PATIENCE));
        let span = tracing::info_span!(
            "ledger.append",
            otel.name = "ledger append",
            otel.kind = "client",
            otel.status_code = Empty,
            db.system = "postgresql",
            db.operation.name = "append",
            holdfast.movement = %movement,
        );
        let reached = self.standing.in_ledger(open, movement, patience).instrument(span.clone()).await;
        if reached.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        reached
    }

    fn fenced(&self, open: &Open, why: &str) -> CallError {
        self.standing.fence(open.generation(), &why);
        NotReady::Fenced.into()
    }
}

/// What is found is true. That nothing is found means something only if the ledger vouches for it.
fn vouched<T>(vouches: Result<(), NotReady>, found: Option<T>) -> Result<Option<T>, NotReady> {
    if found.is_none() { vouches.map(|()| None) } else { Ok(found) }
}

/// A store that does not answer is not the caller's fault and says nothing about what happened. Not a warning for each
/// caller: the appender, the expiry loop and the clock each warn once when their store is away.
fn away(error: &dyn std::fmt::Display) -> NotReady {
    tracing::debug!(%error, "a store did not answer");
    NotReady::StoreAway
}

/// A script and this version of the service disagree about what was said.
fn misunderstood() -> NotReady {
    tracing::error!("a script asked for what it was told");
    NotReady::StoreAway
}
