//! The life of a simulated process: all its tasks run on it, and it can be frozen like by SIGSTOP, go on, or end
//! like by kill -9. What it sent before is on its way all the same.

use std::{
    collections::BTreeMap,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::sync::Notify;

/// What a process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its tasks run.
    Running,
    /// None of its tasks is polled.
    Frozen,
    /// All of its tasks are dropped, wherever they were.
    Ended,
}

/// One process.
#[derive(Debug)]
pub(crate) struct Life {
    inner: Mutex<Inner>,
    ended: Notify,
}

#[derive(Debug)]
struct Inner {
    stage: Stage,
    /// In the order the tasks were begun, so that they are woken in the same order in every run.
    wakers: BTreeMap<u64, Waker>,
    next: u64,
    panics: Vec<String>,
}

impl Life {
    pub(crate) fn begin() -> Arc<Self> {
        let inner = Inner { stage: Stage::Running, wakers: BTreeMap::new(), next: 0, panics: Vec::new() };
        Arc::new(Self { inner: Mutex::new(inner), ended: Notify::new() })
    }

    /// The task, as part of this life.
    pub(crate) fn lead(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) -> Lead {
        let mut inner = self.inner();
        let number = inner.next;
        inner.next += 1;
        drop(inner);
        Lead { life: Arc::clone(self), number, task: Some(Box::pin(task)) }
    }

    pub(crate) fn freeze(&self) {
        let mut inner = self.inner();
        if inner.stage == Stage::Running {
            inner.stage = Stage::Frozen;
        }
    }

    pub(crate) fn thaw(&self) {
        let mut inner = self.inner();
        if inner.stage == Stage::Frozen {
            inner.stage = Stage::Running;
            inner.wake();
        }
    }

    pub(crate) fn end(&self) {
        let mut inner = self.inner();
        inner.stage = Stage::Ended;
        inner.wake();
        drop(inner);
        self.ended.notify_waiters();
    }

    pub(crate) fn stage(&self) -> Stage {
        self.inner().stage
    }

    /// Waits until it ended.
    pub(crate) async fn ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.stage() == Stage::Ended {
                return;
            }
            ended.await;
        }
    }

    /// What its tasks panicked with. A process of ours never should.
    pub(crate) fn panics(&self) -> Vec<String> {
        self.inner().panics.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn wake(&self) {
        for waker in self.wakers.values() {
            waker.wake_by_ref();
        }
    }
}

/// A task of a life.
pub(crate) struct Lead {
    life: Arc<Life>,
    number: u64,
    task: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Future for Lead {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let number = self.number;
        let stage = {
            let mut inner = self.life.inner();
            inner.wakers.insert(number, context.waker().clone());
            inner.stage
        };
        match stage {
            Stage::Frozen => return Poll::Pending,
            Stage::Ended => {
                self.task = None;
                return Poll::Ready(());
            }
            Stage::Running => {}
        }
        let Some(task) = self.task.as_mut() else { return Poll::Ready(()) };
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => {
                self.task = None;
                Poll::Ready(())
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                self.life.inner().panics.push(text.unwrap_or_else(|| "a panic without words".into()));
                self.task = None;
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // First the task, whose destructors may end other tasks of this life.
        self.task = None;
        self.life.inner().wakers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };

    use super::*;

    fn counter(life: &Arc<Life>) -> Arc<AtomicU32> {
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(life.lead(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }));
        count
    }

    #[tokio::test(start_paused = true)]
    async fn a_frozen_life_stands_still_and_goes_on() {
        let life = Life::begin();
        let count = counter(&life);
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        life.freeze();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        life.thaw();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(count.load(Ordering::Relaxed), 3, "one sleep ended while it was frozen");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_life_drops_what_its_tasks_hold() {
        let life = Life::begin();
        let count = counter(&life);
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        life.end();
        life.ended().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(Arc::strong_count(&count), 1, "its task is gone");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
