//! SagaService: what operators see of the sagas that carry orders, and what they may do to them.

use proto::{
    orders::v1::{self as api, saga_service_server::SagaService},
    reason::{self, DOMAIN},
};
use runtime::{
    detached,
    status::{Violation, refusal},
};
use saga::{
    Operations, SagaId,
    operate::Order,
    operations::{OperateError, Operated, Outcome},
};
use tonic::{Code, Request, Response, Status};

use super::{bad, patience, store_failed};
use crate::wire::sagas::{self as wire, Paused, Resumed};

/// What the service needs to answer.
#[derive(Clone)]
pub struct SagaApi {
    /// Over the journal of this process's engine.
    pub operations: Operations,
}

#[tonic::async_trait]
impl SagaService for SagaApi {
    async fn list_sagas(
        &self,
        request: Request<api::ListSagasRequest>,
    ) -> Result<Response<api::ListSagasResponse>, Status> {
        let (filter, page) = wire::filter(request.into_inner()).map_err(bad)?;
        let operations = self.operations.clone();
        let listed = detached(async move {
            let found = operations.list(&filter, page).await?;
            Ok(wire::listed(&filter, &found, &operations.pauses().await?))
        });
        listed.await.map(Response::new).map_err(|error: saga::JournalError| store_failed(&error))
    }

    async fn get_saga(&self, request: Request<api::GetSagaRequest>) -> Result<Response<api::Saga>, Status> {
        let (saga, after) = wire::get(request.get_ref()).map_err(bad)?;
        let operations = self.operations.clone();
        match detached(async move { operations.get(saga, after).await }).await {
            Ok(Some(told)) => Ok(Response::new(wire::told(&told))),
            Ok(None) => Err(unknown_saga()),
            Err(error) => Err(store_failed(&error)),
        }
    }

    async fn explain_saga(
        &self,
        request: Request<api::ExplainSagaRequest>,
    ) -> Result<Response<api::ExplainSagaResponse>, Status> {
        let saga = wire::saga_id(&request.get_ref().saga_id).map_err(bad)?;
        let operations = self.operations.clone();
        match detached(async move { operations.explain(saga).await }).await {
            Ok(Some(explained)) => Ok(Response::new(wire::explained(&explained))),
            Ok(None) => Err(unknown_saga()),
            Err(error) => Err(store_failed(&error)),
        }
    }

    async fn retry_saga(
        &self,
        request: Request<api::RetrySagaRequest>,
    ) -> Result<Response<api::OperateSagaResponse>, Status> {
        self.operate(wire::retry(request.into_inner())).await.map(Response::new)
    }

    async fn compensate_saga(
        &self,
        request: Request<api::CompensateSagaRequest>,
    ) -> Result<Response<api::OperateSagaResponse>, Status> {
        self.operate(wire::compensation(request.into_inner())).await.map(Response::new)
    }

    async fn resolve_step(
        &self,
        request: Request<api::ResolveStepRequest>,
    ) -> Result<Response<api::OperateSagaResponse>, Status> {
        self.operate(wire::resolution(request.into_inner())).await.map(Response::new)
    }

    async fn pause_sagas(
        &self,
        request: Request<api::PauseSagasRequest>,
    ) -> Result<Response<api::PauseSagasResponse>, Status> {
        let operations = self.operations.clone();
        let (operated, pauses) = match wire::pause(request.into_inner()).map_err(bad)? {
            Paused::One(saga, order) => {
                let operated = self.operate(Ok((saga, order))).await?;
                let pauses = detached(async move { operations.pauses().await }).await;
                (Some(operated), pauses.map_err(|error| store_failed(&error))?)
            }
            Paused::Many(many, asked) => {
                let paused = detached(async move { operations.pause(many, &asked).await });
                (None, paused.await.map_err(operate_failed)?)
            }
        };
        let pauses = pauses.iter().map(wire::pause_of).collect();
        Ok(Response::new(api::PauseSagasResponse { operated, pauses }))
    }

    async fn resume_sagas(
        &self,
        request: Request<api::ResumeSagasRequest>,
    ) -> Result<Response<api::ResumeSagasResponse>, Status> {
        let operations = self.operations.clone();
        let (operated, pauses) = match wire::resume(request.into_inner()).map_err(bad)? {
            Resumed::One(saga, order) => {
                let operated = self.operate(Ok((saga, order))).await?;
                let pauses = detached(async move { operations.pauses().await }).await;
                (Some(operated), pauses.map_err(|error| store_failed(&error))?)
            }
            Resumed::Scope(scope, asked) => {
                let resumed = detached(async move { operations.resume(&scope, &asked).await });
                (None, resumed.await.map_err(operate_failed)?)
            }
        };
        let pauses = pauses.iter().map(wire::pause_of).collect();
        Ok(Response::new(api::ResumeSagasResponse { operated, pauses }))
    }
}

impl SagaApi {
    /// Gives an order to one saga, unless it is violated, and says what became of it.
    async fn operate(
        &self,
        order: Result<(SagaId, Order), Vec<Violation>>,
    ) -> Result<api::OperateSagaResponse, Status> {
        let (saga, order) = order.map_err(bad)?;
        let (operations, patience) = (self.operations.clone(), patience());
        let operated = detached(async move { operations.operate(saga, &order, patience).await });
        let Operated { outcome, saga } = operated.await.map_err(operate_failed)?;
        let disposition = match outcome {
            Outcome::Done => api::operate_saga_response::Disposition::Done,
            Outcome::Accepted => api::operate_saga_response::Disposition::Accepted,
            Outcome::Refused(why) => {
                let state = saga.status.as_str().to_owned();
                let message = format!("the saga does not allow it: {why}");
                let metadata = [("state".to_owned(), state), ("why".to_owned(), why)];
                return Err(refusal(
                    Code::FailedPrecondition,
                    DOMAIN,
                    reason::SAGA_NOT_OPERABLE,
                    message,
                    metadata,
                ));
            }
        };
        Ok(api::OperateSagaResponse { disposition: disposition.into(), saga: Some(wire::saga(&saga)) })
    }
}

fn operate_failed(error: OperateError) -> Status {
    match error {
        OperateError::UnknownSaga => unknown_saga(),
        OperateError::RequestIdReused => {
            refusal(Code::InvalidArgument, DOMAIN, reason::REQUEST_ID_REUSED, error.to_string(), [])
        }
        OperateError::Journal(error) => store_failed(&error),
    }
}

fn unknown_saga() -> Status {
    refusal(Code::NotFound, DOMAIN, reason::UNKNOWN_SAGA, "there is no such saga", [])
}
