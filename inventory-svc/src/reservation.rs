//! The reservation, purely: its states, what each call makes of them, and how each call is answered by where the
//! reservation then stands. The scripts carry the same table out in Redis (`tests/matrix.rs` holds them to it).
//! No tonic, sqlx, redis or tokio.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::{
    partition::Position,
    sku::{Lines, Sku},
};

/// A caller's id of a reservation or a request: 1 to 128 of `[A-Za-z0-9_.:-]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallerId(String);

/// Text that is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 128 characters of [A-Za-z0-9_.:-]")]
pub struct NotAnId;

impl CallerId {
    /// Takes text that is an id.
    pub fn parse(text: &str) -> Result<Self, NotAnId> {
        let fits = (1..=128).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte));
        if fits { Ok(Self(text.to_owned())) } else { Err(NotAnId) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallerId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A hash of what a request means. Times and attempts are no part of it: a repeat means the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Of a reservation: who, and which lines.
    pub fn of_reservation(customer: Option<&CallerId>, lines: &Lines) -> Self {
        Self::of(&["reserve", customer.map_or("", CallerId::as_str), &lines.to_text()])
    }

    /// Of parts that cannot contain a NUL.
    pub(crate) fn of(parts: &[&str]) -> Self {
        Self(hex::encode(Sha256::digest(parts.join("\0"))))
    }

    /// One that was recorded; `None` for an id that was marked before it was ever reserved.
    pub fn recorded(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Where a reservation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Units are set aside.
    Held,
    /// The units are sold.
    Confirmed,
    /// The units were given back, or the caller released an id that holds nothing: a tombstone.
    Released,
    /// The hold outlived its time, or a confirm found nothing to sell.
    Expired,
    /// Nothing was ever held.
    Refused,
}

/// Text that is not a state.
#[derive(Debug, thiserror::Error)]
#[error("not a reservation state")]
pub struct NotAState;

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Held, Self::Confirmed, Self::Released, Self::Expired, Self::Refused];

    /// The name in Redis and in the ledger.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held => "HELD",
            Self::Confirmed => "CONFIRMED",
            Self::Released => "RELEASED",
            Self::Expired => "EXPIRED",
            Self::Refused => "REFUSED",
        }
    }

    /// Reads [`State::name`] back.
    pub fn from_name(name: &str) -> Result<Self, NotAState> {
        Self::ALL.into_iter().find(|state| state.name() == name).ok_or(NotAState)
    }
}

/// What is asked of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Hold its lines; by now the stock was found to suffice or not.
    Reserve(Stock),
    /// Sell what it holds.
    Confirm,
    /// Give back what it holds.
    Release,
    /// End it if its time is over.
    Expire,
}

/// Whether there is enough for every line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stock {
    /// Enough.
    Suffices,
    /// Not enough, or a SKU is unknown.
    Falls,
}

/// Whether a hold's time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Not yet.
    Left,
    /// Over.
    Over,
}

/// The state a call leaves behind; `None` is an id nobody has used.
pub const fn next(state: Option<State>, call: Call, time: Time) -> Option<State> {
    use State::{Confirmed, Expired, Held, Refused, Released};
    Some(match (state, call) {
        (None, Call::Reserve(Stock::Suffices)) => Held,
        (None, Call::Reserve(Stock::Falls)) => Refused,
        (None | Some(Refused), Call::Confirm) => Expired,
        (None | Some(Refused | Expired | Held), Call::Release) => Released,
        (None, Call::Expire) => return None,
        (Some(Held), call) => match (call, time) {
            // Given back is given back, whether or not the backstop would have come.
            (Call::Release, _) => Released,
            (_, Time::Over) => Expired,
            (Call::Confirm, Time::Left) => Confirmed,
            (Call::Reserve(_) | Call::Expire, Time::Left) => Held,
        },
        (Some(settled), _) => settled,
    })
}

/// Why a reservation was refused when it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// Every SKU that stood in the way.
    pub skus: Vec<Sku>,
}

/// Why nothing was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// Fewer units are available than asked for.
    InsufficientStock,
    /// A SKU was never received.
    UnknownSku,
}

/// A reservation as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it stands.
    pub state: State,
    /// What it was reserved as; `None` if it never was.
    pub fingerprint: Option<Fingerprint>,
    /// The movement that made the state; `None` for a refusal, which moves nothing.
    pub movement: Option<Position>,
    /// What it holds or held.
    pub lines: Lines,
    /// When the hold lapses, in ms of the ledger database's clock.
    pub expires_ms: Option<i64>,
    /// For [`State::Refused`].
    pub refusal: Option<Refusal>,
}

/// Why a call on a reservation is not granted. Final: repeating it changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// Reserve: nothing was held.
    Refused(Refusal),
    /// The hold lapsed.
    Expired,
    /// The units are sold.
    Confirmed,
    /// It was given back, or released before it was made.
    Released,
    /// The id was used for something else.
    Reused,
}

impl Record {
    /// What a Reserve of this fingerprint is told.
    pub fn answer_reserve(self, asked: &Fingerprint) -> Result<Self, Denied> {
        if self.fingerprint.as_ref().is_some_and(|recorded| recorded != asked) {
            return Err(Denied::Reused);
        }
        match (self.state, self.refusal.clone()) {
            (State::Held | State::Confirmed, _) => Ok(self),
            (State::Refused, Some(refusal)) => Err(Denied::Refused(refusal)),
            (State::Released, _) => Err(Denied::Released),
            (State::Expired | State::Refused, _) => Err(Denied::Expired),
        }
    }

    /// What a Confirm is told.
    pub fn answer_confirm(self) -> Result<Self, Denied> {
        match self.state {
            State::Confirmed => Ok(self),
            State::Released => Err(Denied::Released),
            State::Held | State::Expired | State::Refused => Err(Denied::Expired),
        }
    }

    /// What a Release is told.
    pub fn answer_release(self) -> Result<Self, Denied> {
        match self.state {
            State::Confirmed => Err(Denied::Confirmed),
            State::Held | State::Released | State::Expired | State::Refused => Ok(self),
        }
    }
}

#[cfg(test)]
#[path = "reservation_tests.rs"]
mod tests;
