//! One saga in one worker's memory: it runs ahead of the disk, and waits for it where the rules say so.

use crate::{
    bounds::Rule,
    journal::{End, Event, Log, Phase, Round, Standing},
    participants::{Answer, Request, Sent},
};

/// What a worker holds of a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) epoch: u8,
    /// All it recorded, on disk or not.
    pub(crate) log: Log,
    /// How much of it is known to be on disk.
    pub(crate) durable: u8,
    pub(crate) flush: Flush,
    /// Calls under way: to the goods' side and to the money's.
    pub(crate) calls: [Option<Call>; 2],
}

/// A call under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) request: Request,
    /// On its way back. By the time it arrives it may be stale.
    pub(crate) answer: Option<Answer>,
}

/// Where its last flush is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Flush {
    /// None is under way.
    Idle,
    /// One up to here is.
    Flying(u8),
    /// Of one up to here nobody knows what became of it: the row must be read.
    Unknown(u8),
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Record(Event),
    Ask([Option<Request>; 2]),
    Rest,
}

/// What comes next: the mirror of the engine's `decide`.
pub(crate) fn decide(standing: &Standing, finish: bool, without: Option<Rule>) -> Next {
    match standing.phase {
        Phase::Ended(_) => Next::Rest,
        Phase::Forward if !standing.reserved => Next::Ask([Some(Request::Reserve(standing.round)), None]),
        Phase::Forward if !standing.paid => Next::Ask([None, Some(Request::Charge)]),
        Phase::Forward if !standing.confirmed && !standing.pivot_begun => Next::Record(Event::PivotBegun),
        Phase::Forward if !standing.confirmed => Next::Ask([Some(Request::Confirm(standing.round)), None]),
        Phase::Forward if finish && !standing.finished => Next::Ask([Some(Request::Finish), None]),
        Phase::Forward => Next::Record(Event::Completed),
        Phase::Undoing => {
            let only_known = without == Some(Rule::FullUndo);
            let release = !standing.reserve_undone && (standing.reserve_answered || !only_known);
            let cancel = !standing.pay_undone && (standing.paid || !only_known);
            if release || cancel {
                let last = if without == Some(Rule::EveryRound) { standing.round } else { Round::Second };
                Next::Ask([
                    release.then_some(Request::Release(last)),
                    cancel.then_some(Request::CancelPayment),
                ])
            } else {
                Next::Record(Event::Undone)
            }
        }
    }
}

/// What an answer records.
pub(crate) fn record(request: Request, answer: Answer) -> Event {
    match (request, answer) {
        (Request::Reserve(_), Answer::Done) => Event::Reserved,
        (Request::Charge, Answer::Done) => Event::Paid,
        (Request::Confirm(_), Answer::Done) => Event::Confirmed,
        (Request::Confirm(Round::First), Answer::Lapsed) => Event::Restarted,
        (Request::Reserve(_) | Request::Charge | Request::Confirm(_), Answer::Refused | Answer::Lapsed) => {
            Event::Turned
        }
        (Request::Finish, _) => Event::Finished,
        (Request::Release(_), _) => Event::ReserveUndone,
        (Request::CancelPayment, _) => Event::PayUndone,
    }
}

impl Run {
    /// A saga that is begun here, not on disk yet.
    pub(crate) fn starting() -> Self {
        let mut log = Log::default();
        log.push(Event::Started);
        Self { epoch: 1, log, durable: 0, flush: Flush::Idle, calls: [None; 2] }
    }

    /// A saga read from its row.
    pub(crate) fn claimed(epoch: u8, log: Log) -> Self {
        Self { epoch, log, durable: log.len(), flush: Flush::Idle, calls: [None; 2] }
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing::of(self.log).expect("a run records only what may follow")
    }

    /// Records one event. What was asked before it is not waited for any more, except beside an undo.
    pub(crate) fn record(&mut self, event: Event) {
        self.log.push(event);
        match event {
            Event::ReserveUndone => self.calls[0] = None,
            Event::PayUndone => self.calls[1] = None,
            _ => self.calls = [None; 2],
        }
    }

    /// Sends what comes next, as far as the disk allows. Sending at once loses no history: a request that was sent may
    /// always arrive late or never.
    pub(crate) fn ask(&mut self, sent: &mut Sent, finish: bool, without: Option<Rule>) {
        let Next::Ask(requests) = decide(&self.standing(), finish, without) else { return };
        for (lane, request) in requests.into_iter().enumerate() {
            if let Some(request) = request.filter(|request| self.may_ask(*request, without))
                && self.calls[lane].is_none()
            {
                sent.insert(request);
                self.calls[lane] = Some(Call { request, answer: None });
            }
        }
    }

    /// The four moments that wait.
    fn may_ask(&self, request: Request, without: Option<Rule>) -> bool {
        match request {
            Request::Reserve(_) | Request::Charge => self.durable > 0 || without == Some(Rule::StartWait),
            Request::Confirm(round) => {
                self.durable == self.log.len()
                    || without == Some(Rule::PivotRecord)
                    || (without == Some(Rule::PivotRecordAgain) && round == Round::Second)
                    || (without == Some(Rule::PivotRecordEach) && self.had_begun(round))
            }
            Request::Finish => true,
            Request::Release(_) | Request::CancelPayment => {
                self.durable_log().has(Event::Turned) || without == Some(Rule::TurnWait)
            }
        }
    }

    /// What the caller may be told.
    pub(crate) fn end_to_tell(&self, without: Option<Rule>) -> Option<End> {
        let told = self.durable == self.log.len() || without == Some(Rule::RestWait);
        self.standing().end().filter(|_| told)
    }

    /// Whether any pivot attempt of this round is on disk.
    fn had_begun(&self, round: Round) -> bool {
        Standing::of(self.durable_log())
            .is_ok_and(|durable| durable.round == round && durable.pivoted && durable.reserved)
    }

    fn durable_log(&self) -> Log {
        self.log.part(0, self.durable)
    }
}
