//! The row that whoever asked for a move reads. It begins with the saga and changes with it, in the transactions that
//! record the saga, so it never says what the journal does not.

use std::{collections::BTreeMap, time::Duration};

use futures::future::BoxFuture;
use saga::{Beginning, Begun, Cause, Change, Engine, Priority, SagaId, SideRows, Start, StartError, Status};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::moving::{KIND, Move};

/// A move that is asked for.
pub(crate) struct NewMove {
    /// Who asks twice under one request id gets one move.
    request: String,
    tenant: String,
}

/// Asks for a move. `None`: this request was made before.
pub(crate) async fn ask_for(engine: &Engine, tenant: &str) -> Result<Option<SagaId>, StartError> {
    let start = Start {
        saga: SagaId::generate(),
        input: Move { tenant: tenant.to_owned(), from: "old".to_owned(), to: "new".to_owned() },
        patience: Some(Duration::from_secs(60)),
        attributes: BTreeMap::from([("tenant".to_owned(), tenant.to_owned())]),
        traceparent: None,
        priority: Priority::Ordinary,
    };
    let row = NewMove { request: format!("move-{tenant}"), tenant: tenant.to_owned() };
    let begun = engine.start_with::<MoveRows, _>(KIND, &start, row).await?;
    Ok((begun == Begun::Yes).then_some(start.saga))
}

/// Table `moving.moves`.
pub(crate) struct MoveRows;

impl SideRows for MoveRows {
    type Row = NewMove;

    fn begin<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        beginnings: &'c [Beginning<'c, NewMove>],
    ) -> BoxFuture<'c, Result<Vec<bool>, sqlx::Error>> {
        Box::pin(async move {
            let sagas: Vec<Uuid> = beginnings.iter().map(|new| new.saga.0).collect();
            sqlx::query(
                "INSERT INTO moving.moves (saga, request, tenant, status)
                 SELECT *, 'RUNNING' FROM unnest($1::uuid[], $2::text[], $3::text[])
                 ON CONFLICT (request) DO NOTHING",
            )
            .bind(&sagas)
            .bind(beginnings.iter().map(|new| new.row.request.as_str()).collect::<Vec<_>>())
            .bind(beginnings.iter().map(|new| new.row.tenant.as_str()).collect::<Vec<_>>())
            .execute(&mut *connection)
            .await?;
            let there: Vec<Uuid> = sqlx::query_scalar("SELECT saga FROM moving.moves WHERE saga = ANY($1)")
                .bind(&sagas)
                .fetch_all(connection)
                .await?;
            Ok(sagas.iter().map(|saga| there.contains(saga)).collect())
        })
    }

    fn change<'c>(
        &'c self,
        connection: &'c mut PgConnection,
        changes: &'c [Change<'c>],
    ) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        Box::pin(async move {
            sqlx::query(
                "UPDATE moving.moves m SET status = c.status, reason = coalesce(c.reason, m.reason)
                 FROM unnest($1::uuid[], $2::text[], $3::text[]) AS c (saga, status, reason)
                 WHERE m.saga = c.saga",
            )
            .bind(changes.iter().map(|change| change.saga.0).collect::<Vec<_>>())
            .bind(changes.iter().map(|change| Status::of(change.state).as_str()).collect::<Vec<_>>())
            .bind(changes.iter().map(|change| change.state.cause.as_ref().map(told)).collect::<Vec<_>>())
            .execute(connection)
            .await?;
            Ok(())
        })
    }
}

/// Why a move was undone, for whoever asked for it.
fn told(cause: &Cause) -> String {
    match cause {
        Cause::Refused { reason, .. } | Cause::Operator { reason, .. } => reason.clone(),
        Cause::Exhausted { step, .. } => format!("{step} did not succeed"),
        Cause::Deadline => "it took too long".to_owned(),
        Cause::Cancelled { .. } => "it was cancelled".to_owned(),
    }
}
