//! Where a partition stands in this process: open in which generation or closed, and how far the ledger has come.
//! The guard opens, anyone who finds a doubt closes, callers wait for the ledger here. No I/O.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    partition::{Generation, Position, Seq},
    stock::Fence,
};

/// Why nothing can be decided or told now. Whatever was asked may have happened: asking again with the same id tells.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// No generation is open.
    #[error("stock is being loaded")]
    Closed,
    /// The open generation turned out to be doubtful.
    #[error("stock is being checked against the ledger")]
    Fenced,
    /// Too many movements wait for the ledger.
    #[error("the ledger is behind")]
    Backlogged,
    /// A store did not answer.
    #[error("a store did not answer")]
    StoreAway,
    /// The ledger did not get there in time.
    #[error("the outcome is not in the ledger yet")]
    NotInLedger,
}

/// An open generation.
#[derive(Debug)]
pub struct Open {
    generation: Generation,
    floor: AtomicI64,
    complete_ms: AtomicI64,
}

impl Open {
    /// Opened at the seq its head showed.
    pub const fn new(generation: Generation, floor: Seq) -> Self {
        Self { generation, floor: AtomicI64::new(floor.0), complete_ms: AtomicI64::new(i64::MIN) }
    }

    /// Which generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// What scripts are given: they refuse a Redis that is behind what this process has seen.
    pub fn fence(&self, now_ms: i64) -> Fence {
        Fence { generation: self.generation, floor: self.floor(), now_ms }
    }

    /// The highest seq seen.
    pub fn floor(&self) -> Seq {
        Seq(self.floor.load(Ordering::Acquire))
    }

    /// Notes a seq that was seen.
    pub fn saw(&self, seq: Seq) {
        self.floor.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// Notes that whatever was decided before this moment is in the ledger.
    pub fn complete_until(&self, at_ms: i64) {
        self.complete_ms.fetch_max(at_ms, Ordering::AcqRel);
    }

    /// Whether the ledger knows everything that Redis may have forgotten, so that an id neither knows is new. Redis
    /// forgets after `outcome_ttl`; half of it leaves room for the time between asking and deciding.
    pub fn ledger_vouches(&self, now_ms: i64, outcome_ttl: Duration) -> bool {
        let half_ms = i64::try_from(outcome_ttl.as_millis() / 2).unwrap_or(i64::MAX);
        self.complete_ms.load(Ordering::Acquire) > now_ms.saturating_sub(half_ms)
    }
}

/// Open in a generation, or closed.
#[derive(Debug, Clone)]
pub enum Stand {
    /// Open.
    Open(Arc<Open>),
    /// Closed; a generation here is one found doubtful, that must never be opened again.
    Closed(Option<Generation>),
}

/// A partition's standing in this process.
#[derive(Debug)]
pub struct Standing {
    stand: watch::Sender<Stand>,
    head: watch::Sender<Position>,
}

impl Default for Standing {
    fn default() -> Self {
        Self::new()
    }
}

impl Standing {
    /// Closed, nothing known of the ledger.
    pub fn new() -> Self {
        let nothing = Position { generation: Generation(0), seq: Seq(0) };
        Self { stand: watch::Sender::new(Stand::Closed(None)), head: watch::Sender::new(nothing) }
    }

    /// The open generation.
    pub fn open(&self) -> Result<Arc<Open>, NotReady> {
        match &*self.stand.borrow() {
            Stand::Open(open) => Ok(Arc::clone(open)),
            Stand::Closed(_) => Err(NotReady::Closed),
        }
    }

    /// A view that tells when the standing changes.
    pub fn watch(&self) -> watch::Receiver<Stand> {
        self.stand.subscribe()
    }

    /// Opens a generation.
    pub fn opened(&self, open: Open, ledger: Position) {
        tracing::info!(generation = open.generation.0, %ledger, "stock is open");
        self.ledger_at(ledger);
        self.stand.send_replace(Stand::Open(Arc::new(open)));
    }

    /// Closes the partition because this generation is doubtful. Only the first to find it is heard.
    pub fn fence(&self, generation: Generation, why: &dyn std::fmt::Display) {
        self.stand.send_if_modified(|stand| {
            let Stand::Open(open) = &*stand else { return false };
            if open.generation != generation {
                return false;
            }
            tracing::error!(generation = generation.0, %why, "stock is fenced: nothing is decided until it is rebuilt");
            *stand = Stand::Closed(Some(generation));
            true
        });
    }

    /// Notes how far the ledger has come.
    pub fn ledger_at(&self, position: Position) {
        self.head.send_if_modified(|head| {
            let further = (position.generation, position.seq) > (head.generation, head.seq);
            if further {
                *head = position;
            }
            further
        });
    }

    /// How far the ledger has come, as far as this process knows.
    pub fn ledger(&self) -> Position {
        *self.head.borrow()
    }

    /// Waits until the ledger has a movement that was decided in this open generation or read from its keys.
    pub async fn in_ledger(
        &self,
        open: &Open,
        movement: Position,
        patience: Duration,
    ) -> Result<(), NotReady> {
        open.saw(movement.seq);
        // What a generation's keys carry from an older one was built from the ledger.
        if movement.generation < open.generation {
            return Ok(());
        }
        let mut head = self.head.subscribe();
        let reached = head.wait_for(|head| {
            head.generation > movement.generation
                || (head.generation == movement.generation && head.seq >= movement.seq)
        });
        match tokio::time::timeout(patience, reached).await {
            // Once the generation was raised, only the ledger can say whether the movement got there before.
            Ok(Ok(head)) if head.generation > movement.generation => Err(NotReady::Fenced),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(NotReady::NotInLedger),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(20);

    fn at(generation: i64, seq: i64) -> Position {
        Position { generation: Generation(generation), seq: Seq(seq) }
    }

    #[tokio::test]
    async fn an_answer_waits_for_its_own_movement() {
        let standing = Standing::new();
        standing.opened(Open::new(Generation(2), Seq(10)), at(2, 10));
        let open = standing.open().unwrap();
        assert_eq!(standing.in_ledger(&open, at(2, 10), PATIENCE).await, Ok(()));
        assert_eq!(standing.in_ledger(&open, at(1, 99), PATIENCE).await, Ok(()));
        assert_eq!(standing.in_ledger(&open, at(2, 12), PATIENCE).await, Err(NotReady::NotInLedger));
        standing.ledger_at(at(2, 12));
        assert_eq!(standing.in_ledger(&open, at(2, 12), PATIENCE).await, Ok(()));
        // A higher seq of a later generation is another movement.
        standing.ledger_at(at(3, 99));
        assert_eq!(standing.in_ledger(&open, at(2, 13), PATIENCE).await, Err(NotReady::Fenced));
    }

    #[test]
    fn a_doubt_closes_its_own_generation_only() {
        let standing = Standing::new();
        standing.opened(Open::new(Generation(2), Seq(10)), at(2, 10));
        standing.fence(Generation(1), &"late");
        assert!(standing.open().is_ok());
        standing.fence(Generation(2), &"doubtful");
        assert_eq!(standing.open().unwrap_err(), NotReady::Closed);
        standing.ledger_at(at(1, 99));
        assert_eq!(standing.ledger(), at(2, 10));
    }

    #[test]
    fn the_ledger_vouches_while_it_is_close_behind() {
        let open = Open::new(Generation(1), Seq(0));
        let ttl = Duration::from_secs(10);
        assert!(!open.ledger_vouches(100_000, ttl));
        open.complete_until(96_000);
        assert!(open.ledger_vouches(100_000, ttl));
        assert!(!open.ledger_vouches(101_500, ttl));
    }
}
