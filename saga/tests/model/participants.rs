//! The other side: what inventory and payment do with the requests of one saga. Outcomes are kept by id; an undo of
//! something unknown leaves a tombstone. A refusal is *not* kept: a later copy of the same request may be granted,
//! which is harsher than the real participants are.

use crate::{bounds::Rule, journal::Round};

/// A request, named by its saga, step and round. Whoever sends it twice sends the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    Reserve(Round),
    Charge,
    Confirm(Round),
    Finish,
    /// Of the holds of all rounds up to this one.
    Release(Round),
    CancelPayment,
}

pub(crate) const REQUESTS: [Request; 9] = [
    Request::Reserve(Round::First),
    Request::Reserve(Round::Second),
    Request::Charge,
    Request::Confirm(Round::First),
    Request::Confirm(Round::Second),
    Request::Finish,
    Request::Release(Round::First),
    Request::Release(Round::Second),
    Request::CancelPayment,
];

/// Which requests were ever sent: the network. Each may arrive at any time, any number of times, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Sent(u16);

impl Sent {
    pub(crate) fn insert(&mut self, request: Request) {
        self.0 |= Self::bit(request);
    }

    pub(crate) fn has(self, request: Request) -> bool {
        self.0 & Self::bit(request) != 0
    }

    fn bit(request: Request) -> u16 {
        let at = REQUESTS.iter().position(|one| *one == request);
        1 << at.expect("every request is listed")
    }
}

/// A hold of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Hold {
    #[default]
    Unknown,
    Held,
    Lapsed,
    /// Let go, or never made: the tombstone.
    Released,
    Sold,
}

/// The money of the saga's scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Money {
    #[default]
    Unknown,
    /// Taken this often.
    Captured(u8),
    Refunded,
    /// Cancelled before it was asked for: the tombstone.
    Void,
}

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Done,
    Refused,
    /// To a confirm: the hold lapsed.
    Lapsed,
}

/// Whether a participant grants what it is free to refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mood {
    Grants,
    Refuses,
}

/// What the participants hold of one saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Shop {
    pub(crate) holds: [Hold; 2],
    pub(crate) money: Money,
    pub(crate) finished: bool,
}

impl Shop {
    /// Whether it is for the participant to decide about this request, now.
    pub(crate) fn may_refuse(self, request: Request) -> bool {
        match request {
            Request::Reserve(round) => self.holds[round as usize] == Hold::Unknown,
            Request::Charge => self.money == Money::Unknown,
            Request::Confirm(_) | Request::Finish | Request::Release(_) | Request::CancelPayment => false,
        }
    }

    /// Takes one request in. No answer: it cannot be done, ask again.
    pub(crate) fn serve(
        &mut self,
        request: Request,
        mood: Mood,
        stock: &mut u8,
        without: Option<Rule>,
    ) -> Option<Answer> {
        if mood == Mood::Refuses {
            return Some(Answer::Refused);
        }
        match request {
            Request::Reserve(round) => {
                let hold = &mut self.holds[round as usize];
                match hold {
                    Hold::Unknown if *stock == 0 => Some(Answer::Refused),
                    Hold::Unknown => {
                        *stock -= 1;
                        *hold = Hold::Held;
                        Some(Answer::Done)
                    }
                    Hold::Held | Hold::Sold => Some(Answer::Done),
                    Hold::Lapsed | Hold::Released => Some(Answer::Refused),
                }
            }
            Request::Confirm(round) => {
                let hold = &mut self.holds[round as usize];
                match hold {
                    Hold::Held | Hold::Sold => {
                        *hold = Hold::Sold;
                        Some(Answer::Done)
                    }
                    Hold::Lapsed => Some(Answer::Lapsed),
                    Hold::Unknown | Hold::Released => Some(Answer::Refused),
                }
            }
            Request::Charge => match &mut self.money {
                Money::Unknown => {
                    self.money = Money::Captured(1);
                    Some(Answer::Done)
                }
                Money::Captured(times) => {
                    if without == Some(Rule::RecordedOutcome) && *times < 2 {
                        *times += 1;
                    }
                    Some(Answer::Done)
                }
                Money::Refunded | Money::Void => Some(Answer::Refused),
            },
            Request::Finish => {
                self.finished = true;
                Some(Answer::Done)
            }
            Request::Release(last) => {
                for hold in &mut self.holds[..=last as usize] {
                    match hold {
                        Hold::Unknown if without == Some(Rule::Tombstone) => {}
                        Hold::Unknown => *hold = Hold::Released,
                        Hold::Held => {
                            *stock += 1;
                            *hold = Hold::Released;
                        }
                        Hold::Lapsed | Hold::Released | Hold::Sold => {}
                    }
                }
                (!self.sold()).then_some(Answer::Done)
            }
            Request::CancelPayment => {
                match self.money {
                    Money::Unknown if without == Some(Rule::Tombstone) => {}
                    Money::Unknown => self.money = Money::Void,
                    Money::Captured(_) => self.money = Money::Refunded,
                    Money::Refunded | Money::Void => {}
                }
                Some(Answer::Done)
            }
        }
    }

    /// The participant's own clock ends a hold.
    pub(crate) fn lapse(&mut self, round: Round, stock: &mut u8) {
        let hold = &mut self.holds[round as usize];
        if *hold == Hold::Held {
            *hold = Hold::Lapsed;
            *stock += 1;
        }
    }

    pub(crate) fn sold(self) -> bool {
        self.holds.contains(&Hold::Sold)
    }
}
