//! Where a movement stands: partition, generation, seq, and the nonces that chain movements together.
//! No I/O, and nothing about what a movement moves.

use std::{fmt, str::FromStr};

use uuid::Uuid;

/// A slice of the SKUs whose keys live together. One in this version; every key and row names it all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartitionId(pub i32);

impl PartitionId {
    /// The partition every SKU belongs to as long as there is one.
    pub const FIRST: Self = Self(0);
}

/// Counts the rebuilds of a partition. What an older generation decided and the ledger does not have is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub i64);

/// The number of a movement in its partition, counted on across generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub i64);

impl Seq {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The place of a movement: `<generation>-<seq>`, which is also its stream entry's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The generation that made it.
    pub generation: Generation,
    /// Its number.
    pub seq: Seq,
}

/// Text that is not a position.
#[derive(Debug, thiserror::Error)]
#[error("not a position")]
pub struct NotAPosition;

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.generation.0, self.seq.0)
    }
}

impl FromStr for Position {
    type Err = NotAPosition;

    fn from_str(text: &str) -> Result<Self, NotAPosition> {
        let (generation, seq) = text.split_once('-').ok_or(NotAPosition)?;
        let number = |digits: &str| digits.parse::<i64>();
        match (number(generation), number(seq)) {
            (Ok(generation), Ok(seq)) if generation >= 0 && seq >= 0 => {
                Ok(Self { generation: Generation(generation), seq: Seq(seq) })
            }
            _ => Err(NotAPosition),
        }
    }
}

/// The random name of one movement. A movement names its predecessor's, so a lost or foreign one shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonce(pub String);

impl Nonce {
    /// A new one.
    pub fn random() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }
}

/// Where a chain ends: its last movement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The generation it is in.
    pub generation: Generation,
    /// Its last movement's number.
    pub seq: Seq,
    /// Its last movement's nonce.
    pub chain: Nonce,
}

impl Head {
    /// The place of the last movement.
    pub const fn position(&self) -> Position {
        Position { generation: self.generation, seq: self.seq }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back() {
        let position = Position { generation: Generation(3), seq: Seq(9_000_000_000) };
        assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
        for wrong in ["", "1", "-", "1-", "-1", "1-2-3", "a-1", "1--2"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
    }
}
