//! The journal's one writer: what all running sagas recorded goes out together. What arrived while a flush was under
//! way goes out in the next one, one entry per saga however much it recorded; an idle writer flushes at once what
//! somebody waits for, and lets ride along for a moment what nobody does.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    id::SagaId,
    journal::{Entry, Fate, Journal},
    tail::{Ask, Cut, Tail, TooOften, Verdict},
};

/// Most entries of one flush.
const FLUSH_MAX: usize = 512;
/// What nobody waits for rides along with what somebody does, at most this long.
const RIDE_MAX: Duration = Duration::from_millis(25);
/// What could not be written is tried again after this, and then less and less often.
const AGAIN_FIRST: Duration = Duration::from_millis(20);
const AGAIN_MAX: Duration = Duration::from_millis(500);
/// Most sagas of one hint.
const HINTS_MAX: usize = 200;

/// Hands tails to the writer.
#[derive(Default)]
pub(crate) struct Writer {
    queue: Mutex<Queue>,
    wake: Notify,
}

/// Bounded by the sagas that are held: each is in it once, and a hint is dropped past [`HINTS_MAX`].
#[derive(Default)]
struct Queue {
    now: VecDeque<Arc<Tail>>,
    soon: VecDeque<(Instant, Arc<Tail>)>,
    again: VecDeque<(Instant, Arc<Tail>)>,
    hints: BTreeSet<SagaId>,
}

impl Writer {
    /// Does what a tail asks for.
    pub(crate) fn serve(&self, tail: &Arc<Tail>, ask: Ask) {
        match ask {
            Ask::Nothing => {}
            Ask::Soon => {
                let mut queue = self.queue();
                let is_first = queue.soon.is_empty();
                queue.soon.push_back((Instant::now() + RIDE_MAX, Arc::clone(tail)));
                drop(queue);
                if is_first {
                    self.wake.notify_one();
                }
            }
            Ask::Now => {
                self.queue().now.push_back(Arc::clone(tail));
                self.wake.notify_one();
            }
        }
    }

    /// Waits until everything recorded of the saga is on disk.
    pub(crate) async fn settle(&self, tail: &Arc<Tail>) -> Result<(), Cut> {
        self.serve(tail, tail.urge());
        tail.settled().await
    }

    /// Tells the other workers, with the next flush, that this saga has a signal. Only a hint.
    pub(crate) fn hint(&self, saga: SagaId) {
        let mut queue = self.queue();
        if queue.hints.len() < HINTS_MAX {
            queue.hints.insert(saga);
            drop(queue);
            self.wake.notify_one();
        }
    }

    /// Flushes what waits, for ever, and tells of each entry that is on disk.
    pub(crate) async fn write(&self, journal: &dyn Journal, tell: impl Fn(&Entry)) {
        let mut pause = AGAIN_FIRST;
        loop {
            let (tails, hints) = self.next().await;
            if !hints.is_empty()
                && let Err(error) = journal.hint(&hints).await
            {
                tracing::debug!(%error, "workers could not be told of signals; they will find them");
            }
            let mut flying: Vec<(Arc<Tail>, Entry)> =
                tails.into_iter().filter_map(|tail| tail.take().map(|entry| (tail, entry))).collect();
            if flying.is_empty() {
                continue;
            }
            // In the order of ids, as every writer does.
            flying.sort_by_key(|(tail, _)| tail.saga);
            let (tails, entries): (Vec<_>, Vec<_>) = flying.into_iter().unzip();
            let fates = journal.flush(&entries).await;
            let (mut again, mut doubtful) = (Vec::new(), Vec::new());
            for ((tail, entry), fate) in tails.into_iter().zip(entries).zip(fates) {
                match fate {
                    Fate::Written => self.land(&tail, &entry, &tell),
                    Fate::Declined => tail.end_with(Cut::Declined),
                    Fate::Refused(reason) => match tail.refused(entry) {
                        Ok(()) => {
                            tracing::warn!(saga.id = %tail.saga, reason, "an append is refused");
                            again.push(tail);
                        }
                        Err(TooOften) => park(journal, &tail, reason, &mut again).await,
                    },
                    Fate::Unknown => doubtful.push((tail, entry)),
                }
            }
            self.resolve(journal, doubtful, &mut again, &tell).await;
            let when = Instant::now() + pause;
            pause = if again.is_empty() { AGAIN_FIRST } else { (pause * 2).min(AGAIN_MAX) };
            self.queue().again.extend(again.into_iter().map(|tail| (when, tail)));
        }
    }

    fn land(&self, tail: &Arc<Tail>, entry: &Entry, tell: &impl Fn(&Entry)) {
        // First here, then to those who wait: whoever begins to wait in between looks here.
        let ask = tail.written(entry.standing());
        tell(entry);
        self.serve(tail, ask);
    }

    /// What was not answered, or found its row elsewhere, is read again.
    async fn resolve(
        &self,
        journal: &dyn Journal,
        doubtful: Vec<(Arc<Tail>, Entry)>,
        again: &mut Vec<Arc<Tail>>,
        tell: &impl Fn(&Entry),
    ) {
        if doubtful.is_empty() {
            return;
        }
        let sagas: Vec<_> = doubtful.iter().map(|(tail, _)| tail.saga).collect();
        // While the journal cannot be read, nothing can be written either.
        let mut pause = AGAIN_FIRST;
        let starts = doubtful.iter().any(|(_, entry)| entry.begins.is_some());
        let positions = loop {
            // What is not there after that can be sent again; before, it may be on its way still.
            let read = async {
                if starts {
                    journal.fence_off().await?;
                }
                journal.positions(&sagas).await
            };
            match read.await {
                Ok(positions) => break positions,
                Err(error) => tracing::warn!(%error, sagas = sagas.len(), "the journal cannot be read"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MAX);
        };
        for (tail, entry) in doubtful {
            match entry.judge(positions.get(&tail.saga), journal.owner()) {
                Verdict::Written => self.land(&tail, &entry, tell),
                Verdict::Lost => tail.end_with(Cut::Lost),
                Verdict::Again => {
                    tail.put_back(entry);
                    again.push(tail);
                }
            }
        }
    }

    /// Waits for something to flush.
    async fn next(&self) -> (Vec<Arc<Tail>>, Vec<SagaId>) {
        loop {
            let woken = self.wake.notified();
            let next = {
                let mut queue = self.queue();
                queue.ripen(Instant::now());
                if !queue.now.is_empty() || !queue.hints.is_empty() {
                    let count = queue.now.len().min(FLUSH_MAX);
                    let tails = queue.now.drain(..count).collect();
                    let hints = std::mem::take(&mut queue.hints).into_iter().collect();
                    return (tails, hints);
                }
                let times = [queue.soon.front(), queue.again.front()];
                times.into_iter().flatten().map(|(when, _)| *when).min()
            };
            match next {
                None => woken.await,
                Some(when) => {
                    tokio::select! {
                        biased;
                        () = woken => {}
                        () = tokio::time::sleep_until(when) => {}
                    }
                }
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while it holds the queue")
    }
}

impl Queue {
    /// Moves what rode along long enough, and what may be tried again, to what is flushed now.
    fn ripen(&mut self, now: Instant) {
        while self.soon.front().is_some_and(|(when, _)| *when <= now) {
            let (_, tail) = self.soon.pop_front().expect("it has a front");
            // Most were flushed meanwhile, with something that somebody waited for.
            if tail.is_lazy() && tail.urge() == Ask::Now {
                self.now.push_back(tail);
            }
        }
        while self.again.front().is_some_and(|(when, _)| *when <= now) {
            let (_, tail) = self.again.pop_front().expect("it has a front");
            self.now.push_back(tail);
        }
    }
}

/// Parks the row of a saga whose records are refused again and again.
async fn park(journal: &dyn Journal, tail: &Arc<Tail>, reason: String, again: &mut Vec<Arc<Tail>>) {
    let reason = format!("its progress cannot be recorded: {reason}");
    tracing::error!(saga.id = %tail.saga, reason, "a saga is parked");
    match journal.quarantine(tail.saga, tail.epoch, &reason).await {
        Ok(()) => tail.end_with(Cut::Parked),
        Err(error) => {
            tracing::warn!(saga.id = %tail.saga, %error, "a saga cannot be parked");
            again.push(Arc::clone(tail));
        }
    }
}
