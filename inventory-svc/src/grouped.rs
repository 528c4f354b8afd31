//! Reads that wait for the one before them go out together: many callers at once cost the ledger one statement, and
//! a lone caller waits for nobody. Absent: caching.

use std::{collections::HashMap, fmt, sync::Arc};

use tokio::sync::{mpsc, oneshot};

use crate::ledger::LedgerError;

/// Keys in one statement.
const BATCH_KEYS: usize = 512;
/// Callers waiting; one more waits to be let in.
const QUEUE_CALLERS: usize = 4_096;

type Answer<V> = Result<Option<V>, Arc<LedgerError>>;
type Question<V> = (String, oneshot::Sender<Answer<V>>);

/// A read by key. Its task ends with the last handle.
pub struct Grouped<V> {
    questions: mpsc::Sender<Question<V>>,
}

/// The read was not made.
#[derive(Debug, thiserror::Error)]
pub enum GroupedError {
    /// The statement failed.
    #[error(transparent)]
    Ledger(#[from] Arc<LedgerError>),
    /// The process is stopping.
    #[error("the reader has ended")]
    Ended,
}

impl<V> fmt::Debug for Grouped<V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Grouped").finish_non_exhaustive()
    }
}

impl<V: Clone + Send + 'static> Grouped<V> {
    /// Starts the task that asks `read` for all keys that are waiting, again and again.
    pub fn new<F, Fut>(read: F) -> Self
    where
        F: Fn(Vec<String>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<HashMap<String, V>, LedgerError>> + Send,
    {
        let (questions, mut waiting) = mpsc::channel::<Question<V>>(QUEUE_CALLERS);
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(BATCH_KEYS);
            while waiting.recv_many(&mut batch, BATCH_KEYS).await > 0 {
                let mut keys: Vec<String> = batch.iter().map(|(key, _)| key.clone()).collect();
                keys.sort_unstable();
                keys.dedup();
                let found = read(keys).await.map_err(Arc::new);
                for (key, caller) in batch.drain(..) {
                    let answer = found.as_ref().map(|found| found.get(&key).cloned()).map_err(Arc::clone);
                    // A caller that has gone needs no answer.
                    drop(caller.send(answer));
                }
            }
        });
        Self { questions }
    }

    /// What stands under this key.
    pub async fn get(&self, key: &str) -> Result<Option<V>, GroupedError> {
        let (caller, answer) = oneshot::channel();
        self.questions.send((key.to_owned(), caller)).await.map_err(|_| GroupedError::Ended)?;
        Ok(answer.await.map_err(|_| GroupedError::Ended)??)
    }
}
