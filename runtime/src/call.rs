//! What surrounds the call in hand: when its caller stops waiting, and where its surviving work is counted.
//!
//! It is a task local, set by the deadline layer around each handler and carried on by [`crate::detached()`].
//! Nothing of the request itself lives here.

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

tokio::task_local! {
    static CALL: Call;
}

/// The surroundings of one call.
#[derive(Clone)]
pub(crate) struct Call {
    /// When the caller stops waiting.
    pub(crate) ends_at: Instant,
    /// Detached work is counted here, so that a stopping server waits for it too.
    pub(crate) work: TaskTracker,
}

impl Call {
    pub(crate) fn current() -> Option<Call> {
        CALL.try_with(Clone::clone).ok()
    }

    pub(crate) fn current_end() -> Option<Instant> {
        CALL.try_with(|call| call.ends_at).ok()
    }

    pub(crate) async fn scope<F: Future>(self, work: F) -> F::Output {
        CALL.scope(self, work).await
    }
}
