//! Opens the partition at start and heals it when it was fenced: adopts the generation that Redis has open if it
//! continues the ledger, else raises the generation and rebuilds Redis from the ledger.
//! Absent: parking after repeated takeovers.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    ledger::{BuildError, Ledger, LedgerError, Partition, Raise},
    partition::{Generation, Head, Position},
    standing::{Open, Stand, Standing},
    stock::{Gate, GateError, Loaded},
};

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long another process that raised the generation is given to finish its build.
const BUILD_PATIENCE_MS: i64 = 5_000;

/// Keeps one partition open.
#[derive(Debug)]
pub struct Guard {
    /// What is opened.
    pub gate: Gate,
    /// What it must agree with.
    pub ledger: Ledger,
    /// Who is told.
    pub standing: Arc<Standing>,
    /// This process, for others that wait for its build.
    pub process: String,
    /// What time it is.
    pub clock: Arc<Clock>,
    /// How long outcomes are remembered.
    pub outcome_ttl: Duration,
}

/// What is to be done about a closed partition.
#[derive(Debug, PartialEq, Eq)]
enum Course {
    /// Open what Redis has.
    Adopt,
    /// Another process builds.
    Wait,
    /// Build a new generation.
    Rebuild,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error("redis lost keys while they were built")]
    Lost,
}

impl From<BuildError> for Trouble {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Ledger(error) => error.into(),
            BuildError::Gate(error) => error.into(),
        }
    }
}

impl Guard {
    /// Opens, waits until the partition is fenced, and opens again, until stopped.
    pub async fn run(self, stop: CancellationToken) {
        let mut stand = self.standing.watch();
        loop {
            let now = stand.borrow_and_update().clone();
            tokio::select! {
                () = stop.cancelled() => return,
                changed = stand.changed() => if changed.is_err() { return },
                () = self.heal(&now) => {}
            }
        }
    }

    /// Tries until the partition is open; waits for ever if it is, for a change of standing ends the wait.
    async fn heal(&self, stand: &Stand) {
        let Stand::Closed(doubtful) = *stand else { return std::future::pending().await };
        let mut pause = PAUSE_MIN;
        loop {
            match self.attempt(doubtful).await {
                // The change of standing ends the caller's wait.
                Ok(true) => return std::future::pending().await,
                Ok(false) => {}
                Err(trouble) => tracing::warn!(%trouble, "stock stays closed"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One attempt to open; whether it did.
    async fn attempt(&self, doubtful: Option<Generation>) -> Result<bool, Trouble> {
        let looked_ms = self.clock.now_ms();
        let row = self.ledger.partition().await?;
        let found = self.gate.head().await?;
        let follows = match &found {
            Some(found) if found.generation == row.head.generation => self.follows(&row.head, found).await?,
            _ => false,
        };
        match course(&row, found.as_ref(), follows, doubtful, &self.process) {
            Course::Wait => Ok(false),
            Course::Rebuild => self.rebuild(&row.head).await,
            Course::Adopt => {
                let floor = found.map_or(row.head.seq, |found| found.seq);
                let open = Open::new(row.head.generation, floor);
                if floor == row.head.seq {
                    open.complete_until(looked_ms);
                }
                self.standing.opened(open, row.head.position());
                Ok(true)
            }
        }
    }

    /// Whether what Redis has continues the ledger's chain.
    async fn follows(&self, ledger: &Head, found: &Head) -> Result<bool, GateError> {
        if found.seq <= ledger.seq {
            return Ok(found == ledger);
        }
        let next = Position { generation: ledger.generation, seq: ledger.seq.next() };
        let next = self.gate.movement_at(next).await?;
        Ok(next.is_some_and(|next| next.prev == ledger.chain))
    }

    /// Raises the generation behind `end` and builds it. Whatever Redis decided and the ledger does not have is void
    /// from the raise on; nobody was told of it.
    async fn rebuild(&self, end: &Head) -> Result<bool, Trouble> {
        let Raise::Raised(head) = self.ledger.raise(end, &self.process).await? else { return Ok(false) };
        tracing::warn!(generation = head.generation.0, "stock is rebuilt from the ledger");
        let raised_ms = self.clock.now_ms();
        // Callers of the older generation learn at once that theirs is over.
        self.standing.ledger_at(head.position());
        let ttl_ms = i64::try_from(self.outcome_ttl.as_millis()).unwrap_or(i64::MAX);
        let mut load = self.gate.begin_load(head.generation).await?;
        self.ledger.build(&mut load, ttl_ms).await?;
        match load.open(&head).await? {
            Loaded::Opened => {}
            Loaded::Lost => return Err(Trouble::Lost),
            Loaded::Overtaken => return Ok(false),
        }
        let open = Open::new(head.generation, head.seq);
        open.complete_until(raised_ms);
        self.standing.opened(open, head.position());
        let gate = self.gate.clone();
        tokio::spawn(async move {
            if let Err(error) = gate.sweep_older(head.generation).await {
                tracing::warn!(%error, "keys of older generations are left behind");
            }
        });
        Ok(true)
    }
}

fn course(
    row: &Partition,
    found: Option<&Head>,
    follows: bool,
    doubtful: Option<Generation>,
    process: &str,
) -> Course {
    let doubted = doubtful.is_some_and(|doubtful| row.head.generation <= doubtful);
    if follows && !doubted {
        return Course::Adopt;
    }
    let unopened = found.is_none_or(|found| found.generation < row.head.generation);
    let by_another = row.raised_by != process && !row.raised_by.is_empty();
    if unopened && !doubted && by_another && row.raised_ago_ms < BUILD_PATIENCE_MS {
        return Course::Wait;
    }
    Course::Rebuild
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{Nonce, Seq};

    fn head(generation: i64, seq: i64) -> Head {
        Head { generation: Generation(generation), seq: Seq(seq), chain: Nonce("n".into()) }
    }

    #[test]
    fn when_to_adopt_wait_or_rebuild() {
        let row = |raised_by: &str, raised_ago_ms| Partition {
            head: head(3, 50),
            raised_by: raised_by.to_owned(),
            raised_ago_ms,
        };
        let old = row("other", 60_000);
        let (same, older) = (head(3, 50), head(2, 40));
        for (case, row, found, follows, doubtful, expected) in [
            ("healthy Redis at start", &old, Some(&same), true, None, Course::Adopt),
            ("empty Redis at start", &old, None, false, None, Course::Rebuild),
            ("regressed or forked Redis", &old, Some(&same), false, None, Course::Rebuild),
            ("older generation in Redis", &old, Some(&older), false, None, Course::Rebuild),
            ("this generation was doubted", &old, Some(&same), true, Some(Generation(3)), Course::Rebuild),
            ("rebuilt by another meanwhile", &old, Some(&same), true, Some(Generation(2)), Course::Adopt),
            ("another builds", &row("other", 100), Some(&older), false, Some(Generation(2)), Course::Wait),
            (
                "another began and died",
                &row("other", 6_000),
                None,
                false,
                Some(Generation(2)),
                Course::Rebuild,
            ),
            ("own build failed", &row("me", 100), None, false, Some(Generation(2)), Course::Rebuild),
            ("first start of all", &row("", 1), None, false, None, Course::Rebuild),
        ] {
            let course = course(row, found, follows, doubtful.map(|g: Generation| g), "me");
            assert_eq!(course, expected, "{case}");
        }
    }
}
