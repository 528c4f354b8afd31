//! Where an engine's tasks run: on the runtime, or, in simulation, on a life that can be frozen and ended like a
//! process.

use std::future::Future;

#[cfg(feature = "testing")]
use std::sync::Arc;

use tokio_util::task::TaskTracker;

/// Spawns tasks and knows when all of them ended.
#[derive(Clone)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    #[cfg(feature = "testing")]
    life: Option<Arc<crate::testing::Life>>,
}

impl Tasks {
    /// On the runtime.
    pub(crate) fn new() -> Self {
        Self {
            tracker: TaskTracker::new(),
            #[cfg(feature = "testing")]
            life: None,
        }
    }

    /// On this life.
    #[cfg(feature = "testing")]
    pub(crate) fn on(life: Arc<crate::testing::Life>) -> Self {
        Self { tracker: TaskTracker::new(), life: Some(life) }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(feature = "testing")]
        if let Some(life) = &self.life {
            self.tracker.spawn(life.lead(task));
            return;
        }
        self.tracker.spawn(task);
    }

    /// Waits until all tasks ended; more may be spawned meanwhile.
    pub(crate) async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}
