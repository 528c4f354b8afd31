//! `grpc.health.v1.Health`, answered from one fact: is this process ready.
//!
//! The process is ready or not as a whole, so the overall name "" and every service share the answer. Watchers are
//! told when the server stops and then let go; a stream that never ends would hold up the stop.
//! Absent: health of single services.

use super::Check;
use futures::{Stream, StreamExt as _, stream};
use std::{pin::Pin, time::Duration};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse,
    health_check_response::ServingStatus,
    health_server::{Health as HealthService, HealthServer, SERVICE_NAME},
};

/// The name of the health service itself.
pub(super) const NAME: &str = SERVICE_NAME;

const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Until the process was ready once, its callers wait for it.
const CHECK_EVERY_AT_START: Duration = Duration::from_millis(50);
/// How long a check may take before its silence counts as a no.
const CHECK_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NotReady,
    Ready,
    Stopping,
}

impl State {
    fn serving(self) -> ServingStatus {
        match self {
            State::Ready => ServingStatus::Serving,
            State::NotReady | State::Stopping => ServingStatus::NotServing,
        }
    }
}

/// The health service.
pub(super) struct Health {
    names: Vec<&'static str>,
    state: watch::Receiver<State>,
}

/// Tells the health service what to answer.
pub(super) struct Reporter {
    state: watch::Sender<State>,
}

impl Health {
    pub(super) fn new(names: &[&'static str]) -> (HealthServer<Health>, Reporter) {
        let (sender, state) = watch::channel(State::NotReady);
        let names = names.iter().copied().chain(["", NAME]).collect();
        (HealthServer::new(Health { names, state }), Reporter { state: sender })
    }
}

impl Reporter {
    /// Asks `check` every second and reports what it says. Never returns. Without a check the process is ready.
    pub(super) async fn follow(&self, check: Option<Check>) {
        let Some(check) = check else {
            self.report(State::Ready);
            return std::future::pending().await;
        };
        let mut every = CHECK_EVERY_AT_START;
        loop {
            let mut answer = check();
            let ready = if let Ok(ready) = tokio::time::timeout(CHECK_PATIENCE, &mut answer).await {
                ready
            } else {
                self.report(State::NotReady);
                // Not dropped: a check cut off in the middle of a query can spoil its connection, and starting
                // another each second against a store that hangs would pile them up.
                answer.await
            };
            self.report(if ready { State::Ready } else { State::NotReady });
            if ready {
                every = CHECK_EVERY;
            }
            tokio::time::sleep(every).await;
        }
    }

    /// `NOT_SERVING` from now on, for good.
    pub(super) fn stop(&self) {
        self.report(State::Stopping);
    }

    fn report(&self, now: State) {
        let changed = self.state.send_if_modified(|state| std::mem::replace(state, now) != now);
        if changed {
            tracing::info!(state = ?now, "health changed");
        }
    }
}

#[tonic::async_trait]
impl HealthService for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !self.names.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("no service of this name is served here"));
        }
        Ok(Response::new(answer(self.state.borrow().serving())))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = self.names.contains(&request.get_ref().service.as_str());
        let mut state = self.state.clone();
        state.mark_changed();
        let states = stream::unfold(Some(state), |state| async move {
            let mut state = state?;
            state.changed().await.ok()?;
            let now = *state.borrow_and_update();
            Some((now, (now != State::Stopping).then_some(state)))
        });
        if known {
            return Ok(Response::new(Box::pin(states.map(|now| Ok(answer(now.serving()))))));
        }
        // The protocol keeps such a watch open, in case the service appears. Here none does; it ends with the server
        // like every other.
        let unknown = stream::once(async { Ok(answer(ServingStatus::ServiceUnknown)) });
        Ok(Response::new(Box::pin(unknown.chain(states.filter_map(|_| async { None })))))
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
