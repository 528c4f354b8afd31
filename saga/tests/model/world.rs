//! Everything together: sagas, two workers, the flushes under way, and every step that may come next.

use stateright::{Model, Property};

use crate::{
    bounds::{Bounds, Faults, Rule},
    journal::{Append, End, Event, Phase, Round, Row, Standing},
    participants::{Mood, REQUESTS, Request, Sent, Shop},
    promises,
    run::{Flush, Next, Run, decide, record},
};

pub(crate) const WORKERS: usize = 2;

/// One moment of a history.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) sagas: Vec<Saga>,
    /// The flush each worker has under way: one transaction.
    pub(crate) flights: [Option<Flight>; WORKERS],
    /// Flushes nobody waits for any more, which the database may still commit.
    pub(crate) stray_flights: Vec<Flight>,
    pub(crate) stock: u8,
    pub(crate) left: Faults,
}

/// One transaction: its appends take or lose one by one, but all at once.
pub(crate) type Flight = [Option<Append>; 2];

/// One saga, seen from everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Saga {
    pub(crate) row: Row,
    /// What each worker holds of it.
    pub(crate) runs: [Option<Run>; WORKERS],
    pub(crate) sent: Sent,
    pub(crate) shop: Shop,
    /// What callers were told.
    pub(crate) told: Told,
}

/// What callers were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Told {
    pub(crate) completed: bool,
    pub(crate) undone: bool,
}

/// One step of a history. Workers and sagas are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A worker takes a saga whose row nobody living holds, or, with its lease run out, from one who lives.
    Claim { worker: usize, saga: usize },
    /// A worker dies and is started anew.
    Crash { worker: usize },
    /// A run records what needs no answer: the pivot's beginning, the end.
    Record { worker: usize, saga: usize },
    /// A cancel or the deadline turns it.
    Turn { worker: usize, saga: usize },
    /// A pivot attempt ends without an answer.
    PivotFails { worker: usize, saga: usize },
    /// A participant takes a call in; its answer is on its way.
    Serve { worker: usize, saga: usize, lane: usize, mood: Mood },
    /// That answer arrives.
    Receive { worker: usize, saga: usize, lane: usize },
    /// A copy of a request arrives, and nobody waits for its answer.
    Stray { saga: usize, request: Request },
    /// A hold ends by the participant's clock.
    Lapse { saga: usize, round: Round },
    /// A worker sends what it has recorded to disk. A flush that fails and is put back is the state before this.
    Send { worker: usize },
    /// It is committed and answered.
    Commit { worker: usize },
    /// Its answer is lost.
    LoseAnswer { worker: usize },
    /// A flush nobody waits for is committed.
    CommitStray { flight: usize },
    /// The row is read after an unknown flush.
    Reread { worker: usize, saga: usize },
}

impl Model for Bounds {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut sent = Sent::default();
        if self.customer_pays {
            sent.insert(Request::Charge);
        }
        let saga = Saga {
            row: Row::default(),
            runs: [Some(Run::starting()), None],
            sent,
            shop: Shop::default(),
            told: Told::default(),
        };
        let mut world = World {
            sagas: vec![saga; self.sagas],
            flights: [None; WORKERS],
            stray_flights: Vec::new(),
            stock: self.stock,
            left: self.faults,
        };
        for saga in 0..self.sagas {
            self.settle(&mut world, 0, saga);
        }
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (saga, one) in world.sagas.iter().enumerate() {
            for (worker, run) in one.runs.iter().enumerate() {
                match run {
                    Some(run) => self.run_actions(world, worker, saga, run, actions),
                    None if one.may_be_claimed(world.left.takeovers) => {
                        actions.push(Action::Claim { worker, saga });
                    }
                    None => {}
                }
            }
            // Nobody can pay for what is not known yet.
            let known = one.row.log.len() > 0;
            let stray = |request: &Request| one.sent.has(*request) && (known || *request != Request::Charge);
            actions.extend(REQUESTS.into_iter().filter(stray).map(|request| Action::Stray { saga, request }));
            if world.left.lapses > 0 {
                actions.extend([Round::First, Round::Second].map(|round| Action::Lapse { saga, round }));
            }
        }
        for worker in 0..WORKERS {
            if world.flights[worker].is_some() {
                actions.push(Action::Commit { worker });
                if world.left.lost_answers > 0 {
                    actions.push(Action::LoseAnswer { worker });
                }
            } else {
                actions.push(Action::Send { worker });
            }
            if world.left.crashes > 0 {
                actions.push(Action::Crash { worker });
            }
        }
        actions.extend((0..world.stray_flights.len()).map(|flight| Action::CommitStray { flight }));
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Claim { worker, saga } => self.claim(&mut world, worker, saga),
            Action::Crash { worker } => crash(&mut world, worker),
            Action::Record { worker, saga } => self.change(&mut world, worker, saga, |run| {
                if let Next::Record(event) = decide(&run.standing(), self.finish, self.without) {
                    run.record(event);
                }
            }),
            Action::Turn { worker, saga } => {
                world.left.turns -= 1;
                self.change(&mut world, worker, saga, |run| run.record(Event::Turned));
            }
            Action::PivotFails { worker, saga } => {
                world.left.pivot_failures -= 1;
                self.change(&mut world, worker, saga, |run| run.record(Event::PivotFailed));
            }
            Action::Serve { worker, saga, lane, mood } => {
                let one = &mut world.sagas[saga];
                let call = one.runs[worker].as_mut().and_then(|run| run.calls[lane].as_mut())?;
                world.left.refusals -= u8::from(mood == Mood::Refuses);
                call.answer = one.shop.serve(call.request, mood, &mut world.stock, self.without);
            }
            Action::Receive { worker, saga, lane } => {
                let call = world.sagas[saga].runs[worker].and_then(|run| run.calls[lane])?;
                let event = record(call.request, call.answer?);
                self.change(&mut world, worker, saga, |run| run.record(event));
            }
            Action::Stray { saga, request } => {
                world.sagas[saga].shop.serve(request, Mood::Grants, &mut world.stock, self.without);
            }
            Action::Lapse { saga, round } => {
                world.sagas[saga].shop.lapse(round, &mut world.stock);
                if world.stock != before.stock {
                    world.left.lapses -= 1;
                }
            }
            Action::Send { worker } => send(&mut world, worker),
            Action::Commit { worker } => self.commit(&mut world, worker),
            Action::LoseAnswer { worker } => {
                world.left.lost_answers -= 1;
                lose_flight(&mut world, worker);
            }
            Action::CommitStray { flight } => {
                let flight = world.stray_flights.remove(flight);
                for append in flight.iter().flatten() {
                    world.sagas[usize::from(append.saga)].row.append(append, self.without);
                }
            }
            Action::Reread { worker, saga } => self.reread(&mut world, worker, saga),
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all()
    }
}

impl Bounds {
    fn run_actions(&self, world: &World, worker: usize, saga: usize, run: &Run, actions: &mut Vec<Action>) {
        let standing = run.standing();
        let turning = standing.phase == Phase::Forward && !standing.pivoted;
        if turning && world.left.turns > 0 {
            actions.push(Action::Turn { worker, saga });
        }
        if matches!(decide(&standing, self.finish, self.without), Next::Record(_)) {
            actions.push(Action::Record { worker, saga });
        }
        for (lane, call) in run.calls.iter().enumerate() {
            let Some(call) = call else { continue };
            if call.answer.is_some() {
                actions.push(Action::Receive { worker, saga, lane });
                continue;
            }
            actions.push(Action::Serve { worker, saga, lane, mood: Mood::Grants });
            if world.left.refusals > 0 && world.sagas[saga].shop.may_refuse(call.request) {
                actions.push(Action::Serve { worker, saga, lane, mood: Mood::Refuses });
            }
            if world.left.pivot_failures > 0 && matches!(call.request, Request::Confirm(_)) {
                actions.push(Action::PivotFails { worker, saga });
            }
        }
        if matches!(run.flush, Flush::Unknown(_)) {
            actions.push(Action::Reread { worker, saga });
        }
    }

    /// Changes a run, then lets it do what follows by itself.
    fn change(&self, world: &mut World, worker: usize, saga: usize, change: impl FnOnce(&mut Run)) {
        if let Some(run) = &mut world.sagas[saga].runs[worker] {
            change(run);
            self.settle(world, worker, saga);
        }
    }

    /// What a run does at once: ask what it may ask, or tell the end and forget the saga.
    fn settle(&self, world: &mut World, worker: usize, saga: usize) {
        let one = &mut world.sagas[saga];
        let Some(run) = &mut one.runs[worker] else { return };
        match run.end_to_tell(self.without) {
            Some(End::Completed) => one.told.completed = true,
            Some(End::Undone) => one.told.undone = true,
            None => run.ask(&mut one.sent, self.finish, self.without),
        }
        if run.standing().end().is_some() && run.durable == run.log.len() {
            one.runs[worker] = None;
        }
    }

    fn claim(&self, world: &mut World, worker: usize, saga: usize) {
        let one = &mut world.sagas[saga];
        if one.is_held() {
            world.left.takeovers -= 1;
            one.row.epoch += 1;
        } else if self.without != Some(Rule::FreshEpoch) {
            one.row.epoch += 1;
        }
        one.runs[worker] = Some(Run::claimed(one.row.epoch, one.row.log));
        self.settle(world, worker, saga);
    }

    fn commit(&self, world: &mut World, worker: usize) {
        let Some(flight) = world.flights[worker].take() else { return };
        for append in flight.iter().flatten() {
            let saga = usize::from(append.saga);
            let one = &mut world.sagas[saga];
            let taken = one.row.append(append, self.without);
            self.change(world, worker, saga, |run| {
                // The saga may have been dropped and claimed anew since: then this is not its flush.
                if let Flush::Flying(end) = run.flush
                    && run.epoch == append.epoch
                {
                    if taken {
                        (run.durable, run.flush) = (end, Flush::Idle);
                    } else {
                        run.flush = Flush::Unknown(end);
                    }
                }
            });
        }
    }

    /// Own row and where it was expected: go on. Else drop it and touch nothing.
    fn reread(&self, world: &mut World, worker: usize, saga: usize) {
        let one = &mut world.sagas[saga];
        let row = one.row;
        let Some(run) = &mut one.runs[worker] else { return };
        let Flush::Unknown(end) = run.flush else { return };
        let own = row.epoch == run.epoch || row.log.len() == 0;
        if own && row.log.len() == end {
            (run.durable, run.flush) = (end, Flush::Idle);
        } else if own && row.log.len() == run.durable {
            run.flush = Flush::Idle;
        } else {
            one.runs[worker] = None;
        }
        self.settle(world, worker, saga);
    }
}

impl Saga {
    /// Whether a living worker holds it under its present epoch.
    pub(crate) fn is_held(&self) -> bool {
        self.runs.iter().flatten().any(|run| run.epoch == self.row.epoch)
    }

    /// Whether its journal says that it ended.
    pub(crate) fn end(&self) -> Option<End> {
        Standing::of(self.row.log).ok().and_then(|standing| standing.end())
    }

    fn may_be_claimed(&self, takeovers: u8) -> bool {
        let open = Standing::of(self.row.log).is_ok_and(|standing| standing.end().is_none());
        open && (!self.is_held() || takeovers > 0)
    }
}

fn send(world: &mut World, worker: usize) {
    let mut flight: Flight = [None; 2];
    for (saga, one) in (0_u8..).zip(&mut world.sagas) {
        if let Some(run) = &mut one.runs[worker]
            && run.flush == Flush::Idle
            && run.durable < run.log.len()
        {
            let events = run.log.part(run.durable, run.log.len());
            flight[usize::from(saga)] = Some(Append { saga, epoch: run.epoch, after: run.durable, events });
            run.flush = Flush::Flying(run.log.len());
        }
    }
    if flight.iter().any(Option::is_some) {
        world.flights[worker] = Some(flight);
    }
}

fn crash(world: &mut World, worker: usize) {
    if world.flights[worker].is_none() && world.sagas.iter().all(|one| one.runs[worker].is_none()) {
        return;
    }
    world.left.crashes -= 1;
    lose_flight(world, worker);
    for one in &mut world.sagas {
        one.runs[worker] = None;
    }
}

/// The flush under way is no longer waited for.
fn lose_flight(world: &mut World, worker: usize) {
    let Some(flight) = world.flights[worker].take() else { return };
    world.stray_flights.push(flight);
    world.stray_flights.sort_unstable();
    for append in flight.iter().flatten() {
        if let Some(run) = &mut world.sagas[usize::from(append.saga)].runs[worker]
            && let Flush::Flying(end) = run.flush
        {
            run.flush = Flush::Unknown(end);
        }
    }
}
