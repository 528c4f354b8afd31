//! A movement as the scripts write it to the stream and the ledger keeps it, and the pure rule that decides which
//! movements continue a chain. No I/O.

use crate::{
    partition::{Generation, Head, Nonce, Position},
    reservation::{CallerId, State},
    sku::{Lines, Sku},
};

/// What a movement does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A reservation changes its state.
    Reservation(Change),
    /// The number received changes.
    Stock(StockChange),
}

/// A reservation's change of state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which reservation.
    pub id: CallerId,
    /// The state before; `None` where the ledger knows nothing (an unused or a refused id).
    pub from: Option<State>,
    /// The state after.
    pub to: State,
    /// The units that move; empty where none do.
    pub lines: Lines,
    /// What it was reserved as; `None` for a tombstone.
    pub fingerprint: Option<String>,
    /// For whom.
    pub customer: Option<CallerId>,
    /// When the hold lapses, in ms of the ledger database's clock.
    pub expires_ms: Option<i64>,
}

/// A receipt or an adjustment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockChange {
    /// Which request.
    pub request_id: CallerId,
    /// Whether units came in or a number was corrected.
    pub act: Act,
    /// Of what.
    pub sku: Sku,
    /// How many, signed.
    pub delta: i64,
    /// What the request meant.
    pub fingerprint: String,
    /// Why.
    pub reason: String,
    /// Received, held and sold right after: the recorded answer.
    pub counters: [i64; 3],
}

/// How the number received is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Units came in; the SKU may be new.
    Receive,
    /// A number was corrected.
    Adjust,
}

impl Act {
    /// The name in Redis and in the ledger.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "RECEIVE",
            Self::Adjust => "ADJUST",
        }
    }
}

/// One movement in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// Its place.
    pub position: Position,
    /// Its own nonce.
    pub nonce: Nonce,
    /// The nonce of the movement before it.
    pub prev: Nonce,
    /// When the script decided it, in ms of the ledger database's clock.
    pub at_ms: i64,
    /// What it does.
    pub kind: Kind,
}

impl Kind {
    /// The name in Redis and in the ledger.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Reservation(change) => match change.to {
                State::Held | State::Refused => "RESERVE",
                State::Confirmed => "CONFIRM",
                State::Released => "RELEASE",
                State::Expired => "EXPIRE",
            },
            Self::Stock(change) => change.act.name(),
        }
    }

    /// How many lines it carries.
    pub fn lines(&self) -> usize {
        match self {
            Self::Reservation(change) => change.lines.len(),
            Self::Stock(_) => 1,
        }
    }
}

/// Why movements are void and the partition is doubtful.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// The generation was raised: these movements are of one that is over.
    #[error("the ledger is at generation {0:?}")]
    Generation(Generation),
    /// Movements are missing.
    #[error("the ledger ends at {ledger}, and what follows begins at {found}")]
    Gap {
        /// Where the ledger ends.
        ledger: Position,
        /// The first movement offered.
        found: Position,
    },
    /// The movement before is not the one the ledger has.
    #[error("the movement at {0} does not follow the ledger's")]
    Chain(Position),
    /// A movement contradicts what the ledger has recorded of its reservation, request or SKU.
    #[error("the ledger contradicts what was decided: {0}")]
    Contradiction(&'static str),
}

/// The part of `movements` (in stream order) that the ledger does not have yet, if it continues the chain at `head`
/// without a gap. Movements the ledger already has are passed over, but the one at its head must be the same one.
pub fn continuation<'a>(head: &Head, movements: &'a [Movement]) -> Result<&'a [Movement], Break> {
    let mut expected = head.clone();
    let known = movements.iter().take_while(|movement| movement.position.seq <= head.seq).count();
    if movements.iter().any(|movement| movement.position.generation != head.generation) {
        return Err(Break::Generation(head.generation));
    }
    for movement in &movements[..known] {
        if movement.position.seq == head.seq && movement.nonce != head.chain {
            return Err(Break::Chain(movement.position));
        }
    }
    for movement in &movements[known..] {
        if movement.position.seq != expected.seq.next() {
            return Err(Break::Gap { ledger: expected.position(), found: movement.position });
        }
        if movement.prev != expected.chain {
            return Err(Break::Chain(movement.position));
        }
        expected =
            Head { generation: head.generation, seq: movement.position.seq, chain: movement.nonce.clone() };
    }
    Ok(&movements[known..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::partition::Seq;

    fn nonce(seq: i64) -> Nonce {
        Nonce(format!("n{seq}"))
    }

    fn movement(seq: i64) -> Movement {
        let change = Change {
            id: CallerId::parse("r").unwrap(),
            from: None,
            to: State::Released,
            lines: Lines::default(),
            fingerprint: None,
            customer: None,
            expires_ms: None,
        };
        Movement {
            position: Position { generation: Generation(2), seq: Seq(seq) },
            nonce: nonce(seq),
            prev: nonce(seq - 1),
            at_ms: 0,
            kind: Kind::Reservation(change),
        }
    }

    fn head(seq: i64) -> Head {
        Head { generation: Generation(2), seq: Seq(seq), chain: nonce(seq) }
    }

    #[test]
    fn what_breaks_a_chain() {
        let run: Vec<_> = (8..=12).map(movement).collect();
        assert_eq!(continuation(&head(7), &run).unwrap().len(), 5);
        assert_eq!(continuation(&head(10), &run).unwrap().len(), 2);
        assert_eq!(continuation(&head(12), &run).unwrap().len(), 0);
        assert_eq!(continuation(&head(12), &[]).unwrap().len(), 0);
        assert!(matches!(continuation(&head(6), &run), Err(Break::Gap { .. })));

        let other_end = Head { chain: Nonce("other".into()), ..head(10) };
        assert!(matches!(continuation(&other_end, &run), Err(Break::Chain(_))));
        let other_start = Head { chain: Nonce("other".into()), ..head(7) };
        assert!(matches!(continuation(&other_start, &run), Err(Break::Chain(_))));
        let raised = Head { generation: Generation(3), ..head(7) };
        assert_eq!(continuation(&raised, &run), Err(Break::Generation(Generation(3))));
    }

    proptest! {
        /// Whatever is taken out of or changed in a run, nothing but a true continuation is ever appended.
        #[test]
        fn only_a_true_continuation_is_taken(at in 0..20i64, from in 1..20i64, to in 1..20i64, drop in 0..20usize, fork in 0..20usize) {
            let mut run: Vec<_> = (from..=to).map(movement).collect();
            if drop < run.len() { run.remove(drop); }
            if fork < run.len() { run[fork].nonce = Nonce("fork".into()); }
            if let Ok(taken) = continuation(&head(at), &run) {
                let mut end = (at, nonce(at));
                for movement in taken {
                    prop_assert_eq!(movement.position.seq.0, end.0 + 1);
                    prop_assert_eq!(&movement.prev, &end.1);
                    end = (movement.position.seq.0, movement.nonce.clone());
                }
            }
        }
    }
}
