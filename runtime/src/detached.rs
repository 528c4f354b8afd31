//! Work that must not stop half-way because its caller hung up.
//!
//! A handler is dropped when the client goes away or its deadline passes. Work that is dropped inside a database
//! transaction leaves a poisoned connection behind, and a half-told story; so it runs in a task of its own.
//! Absent: a way to cancel such work. It ends by itself, or with the process.

use crate::call::Call;
use tracing::Instrument as _;

/// Runs `work` in its own task, inside the current span and the current call's [`crate::deadline::remaining`], and
/// waits for it. Dropping the returned future does not stop the work. A server that is stopping waits for work that
/// its calls detached, up to its drain deadline.
///
/// # Panics
/// A panic of `work` is resumed in the caller.
pub async fn detached<F, T>(work: F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let work = work.in_current_span();
    let task = match Call::current() {
        Some(call) => {
            let tracker = call.work.clone();
            tracker.spawn(call.scope(work))
        }
        None => tokio::spawn(work),
    };
    match task.await {
        Ok(output) => output,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Nobody holds a handle that could abort the task: the runtime is going down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
