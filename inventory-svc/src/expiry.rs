//! The backstop: gives back holds that outlived their time because nobody came back for them, and finds a lost Redis
//! when nobody asks. Absent: telling anyone; the reservation's owner learns it when it asks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    reservation::CallerId,
    sku::Lines,
    standing::{Open, Standing},
    stock::{Ending, Gate, GateError, Read, ReservationReply, Word},
};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(250);
/// Holds ended per look; while it finds as many, it looks again at once.
const BATCH_HOLDS: usize = 256;
/// Scripts of one batch on their way at once, so that other callers get in between.
const AT_ONCE: usize = 16;
/// Calls per hold: one learns its lines, one ends it, one more if it changed in between.
const CALLS_MAX: usize = 3;

/// Ends lapsed holds of one partition.
#[derive(Debug)]
pub struct Expiry {
    /// Where holds are.
    pub gate: Gate,
    /// Whether it is open.
    pub standing: Arc<Standing>,
    /// What time it is.
    pub clock: Arc<Clock>,
    /// Told whether Redis answers.
    pub redis_answers: Arc<AtomicBool>,
}

impl Expiry {
    /// Looks again and again until stopped.
    pub async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
            let Ok(open) = self.standing.open() else { continue };
            if stop.run_until_cancelled(self.drain(&open)).await.is_none() {
                return;
            }
        }
    }

    async fn drain(&self, open: &Arc<Open>) {
        loop {
            let ended = self.end_batch(open).await;
            let answered = self.redis_answers.swap(ended.is_ok(), Ordering::Relaxed);
            match ended {
                Ok(BATCH_HOLDS) => {}
                Ok(_) => return,
                Err(error) => {
                    if answered {
                        tracing::warn!(%error, "lapsed holds are not given back");
                    }
                    return;
                }
            }
        }
    }

    /// Ends one batch; how many were ended.
    async fn end_batch(&self, open: &Arc<Open>) -> Result<usize, GateError> {
        let ids = match self.gate.lapsed(&open.fence(self.clock.now_ms()), BATCH_HOLDS).await? {
            Read::Found(ids) => ids,
            Read::Missing => return Ok(0),
            Read::Fenced(why) => {
                self.standing.fence(open.generation(), &why.0);
                return Ok(0);
            }
        };
        let mut ended = 0;
        for some in ids.chunks(AT_ONCE) {
            let mut running = tokio::task::JoinSet::new();
            for id in some {
                let id = CallerId::parse(id).map_err(|_| GateError::Unreadable("an id"))?;
                let end = End {
                    gate: self.gate.clone(),
                    standing: Arc::clone(&self.standing),
                    open: Arc::clone(open),
                    now_ms: self.clock.now_ms(),
                };
                running.spawn(async move { end.hold(&id).await });
            }
            for done in running.join_all().await {
                ended += usize::from(done?);
            }
        }
        if ended > 0 {
            tracing::info!(holds = ended, "lapsed holds were given back");
        }
        Ok(ended)
    }
}

struct End {
    gate: Gate,
    standing: Arc<Standing>,
    open: Arc<Open>,
    now_ms: i64,
}

impl End {
    /// Ends one hold; whether it did. What cannot be ended now is found again by the next look.
    async fn hold(&self, id: &CallerId) -> Result<bool, GateError> {
        let mut lines = Lines::default();
        for _ in 0..CALLS_MAX {
            let fence = self.open.fence(self.now_ms);
            match self.gate.end(&fence, Ending::Expire, id, &lines, Word::Unasked).await? {
                ReservationReply::Lines(of_hold) => lines = of_hold,
                ReservationReply::Record(record) => {
                    if let Some(movement) = record.movement {
                        self.open.saw(movement.seq);
                    }
                    return Ok(true);
                }
                ReservationReply::Fenced(why) => {
                    self.standing.fence(self.open.generation(), &why.0);
                    return Ok(false);
                }
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}
