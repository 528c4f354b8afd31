//! Due times of the near window, in this process, so that firing is precise; everything further away is only a row.

use std::{collections::HashMap, time::Duration};

use futures::{FutureExt as _, StreamExt as _};
use tokio_util::time::{DelayQueue, delay_queue::Key};

use crate::id::SagaId;

/// Most due times in the process; the rest of a burst is loaded while it drains.
pub(crate) const NEAR_MAX: usize = 16_384;
/// Most taken at once.
const FIRED_MAX: usize = 1_024;

/// A saga is in it once.
#[derive(Default)]
pub(crate) struct Timer {
    queue: DelayQueue<SagaId>,
    keys: HashMap<SagaId, Key>,
}

impl Timer {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn set(&mut self, saga: SagaId, wait: Duration) {
        if let Some(key) = self.keys.get(&saga) {
            self.queue.reset(key, wait);
        } else if self.keys.len() < NEAR_MAX {
            let key = self.queue.insert(saga, wait);
            self.keys.insert(saga, key);
        }
    }

    /// Waits for the first that is due, and takes others that are due with it.
    pub(crate) async fn fired(&mut self) -> Vec<SagaId> {
        let mut due = Vec::new();
        if let Some(first) = self.queue.next().await {
            due.push(first.into_inner());
        } else {
            std::future::pending::<()>().await;
        }
        while due.len() < FIRED_MAX
            && let Some(Some(next)) = self.queue.next().now_or_never()
        {
            due.push(next.into_inner());
        }
        for saga in &due {
            self.keys.remove(saga);
        }
        due
    }
}
