//! Carries the stream of the open generation into the ledger. Every process runs one; whoever locks the partition's
//! row appends for all, and the others learn from the row how far the ledger has come.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    ledger::{AppendError, Ledger},
    movement::{Break, Movement},
    partition::{Generation, Head},
    standing::{Open, Stand, Standing},
    stock::{Gate, GateError, StreamReader},
};

/// Movements read at once.
const BATCH_ENTRIES: usize = 512;
/// Lines in one transaction: a batch of the largest orders is cut to about this many, so that no commit takes long.
const BATCH_LINES: usize = 20_000;
/// How long a read waits for a movement. Also how late a process learns what another one appended, and how often an
/// idle one asks.
const BLOCK: Duration = Duration::from_millis(250);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Carries movements from a gate to its ledger.
#[derive(Debug)]
pub struct Appender {
    /// Where movements come from.
    pub gate: Gate,
    /// Where they go.
    pub ledger: Ledger,
    /// What is told about it.
    pub standing: Arc<Standing>,
    /// What time it is.
    pub clock: Arc<Clock>,
}

#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Broken(#[from] Break),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error("{0}")]
    Ledger(String),
}

impl Appender {
    /// Follows whatever generation is open until stopped.
    pub async fn run(self, stop: CancellationToken) {
        let mut stand = self.standing.watch();
        loop {
            let open = match &*stand.borrow_and_update() {
                Stand::Open(open) => Some(Arc::clone(open)),
                Stand::Closed(_) => None,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = stand.changed() => if changed.is_err() { return },
                () = self.follow(open) => {}
            }
        }
    }

    /// Follows one generation until it is doubtful; for ever if there is none.
    async fn follow(&self, open: Option<Arc<Open>>) {
        let Some(open) = open else { return std::future::pending().await };
        let mut pause = PAUSE_MIN;
        loop {
            // In its own task: a transaction must not be dropped half-way when the standing changes.
            match self.carry(&open, &mut pause).await {
                Stopped::Broken(why) => {
                    self.standing.fence(open.generation(), &why);
                    return std::future::pending().await;
                }
                why => {
                    tracing::warn!(%why, "movements wait for the ledger");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Carries movements until something fails.
    async fn carry(&self, open: &Arc<Open>, pause: &mut Duration) -> Stopped {
        let mut reader = match self.gate.stream_reader(open.generation(), BLOCK).await {
            Ok(reader) => reader,
            Err(error) => return error.into(),
        };
        loop {
            if let Err(stopped) = self.carry_batch(open, &mut reader).await {
                return stopped;
            }
            *pause = PAUSE_MIN;
        }
    }

    async fn carry_batch(&self, open: &Arc<Open>, reader: &mut StreamReader) -> Result<(), Stopped> {
        let ledger = self.standing.ledger();
        if ledger.generation != open.generation() {
            return Err(Break::Generation(ledger.generation).into());
        }
        let asked_ms = self.clock.now_ms();
        let movements = reader.read(ledger, BATCH_ENTRIES, BLOCK).await?;
        if movements.is_empty() {
            if open.floor() > ledger.seq {
                // Scripts have decided more than the stream shows: another process appended and cut it off.
                return self.learn(open.generation()).await;
            }
            open.complete_until(asked_ms);
            return Ok(());
        }
        for batch in batches(&movements) {
            let head = self.append(batch).await?;
            if head.generation != open.generation() {
                return Err(Break::Generation(head.generation).into());
            }
            if let Some(last) = batch.last().filter(|last| last.position.seq <= head.seq) {
                open.complete_until(last.at_ms);
            }
            self.standing.ledger_at(head.position());
        }
        reader.trim(self.standing.ledger()).await?;
        Ok(())
    }

    /// Appends in a task of its own, so that a change of standing cannot cut the transaction.
    async fn append(&self, batch: &[Movement]) -> Result<Head, Stopped> {
        let (ledger, movements) = (self.ledger.clone(), batch.to_vec());
        match tokio::spawn(async move { ledger.append(&movements).await }).await {
            Ok(Ok(head)) => Ok(head),
            Ok(Err(AppendError::Broken(why))) => Err(why.into()),
            Ok(Err(error)) => Err(Stopped::Ledger(error.to_string())),
            Err(error) => Err(Stopped::Ledger(error.to_string())),
        }
    }

    async fn learn(&self, generation: Generation) -> Result<(), Stopped> {
        let row = self.ledger.partition().await.map_err(|error| Stopped::Ledger(error.to_string()))?;
        if row.head.generation != generation {
            return Err(Break::Generation(row.head.generation).into());
        }
        self.standing.ledger_at(row.head.position());
        Ok(())
    }
}

/// Cuts movements into runs of about [`BATCH_LINES`] lines.
fn batches(movements: &[Movement]) -> Vec<&[Movement]> {
    let (mut batches, mut begin, mut lines) = (Vec::new(), 0, 0);
    for (index, movement) in movements.iter().enumerate() {
        lines += movement.kind.lines();
        if lines >= BATCH_LINES {
            batches.push(&movements[begin..=index]);
            (begin, lines) = (index + 1, 0);
        }
    }
    if begin < movements.len() {
        batches.push(&movements[begin..]);
    }
    batches
}
