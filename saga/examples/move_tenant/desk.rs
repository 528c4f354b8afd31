//! What makes a participant safe to ask twice, and too late: its answer is recorded under the caller's id in the
//! transaction that has the effect, and an undo leaves a tombstone for the whole scope, so that nothing of it happens
//! afterwards. Absent: what is asked for.

use saga::{Context, Step};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

/// How a saga names what it asks for.
pub(crate) struct Name {
    /// All rounds of the step; what an undo names.
    pub(crate) scope: String,
    /// This round; what an attempt names, and every repetition of it.
    pub(crate) id: String,
}

impl Name {
    /// Of what step `S` asks for.
    pub(crate) fn of<S: Step>(context: &Context<'_, S::Input>) -> Self {
        let scope = format!("{}.{}", context.saga, S::NAME);
        Self { id: format!("{scope}.{}", context.round), scope }
    }
}

/// A participant's last word on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// It had no effect and never will.
    Refused(String),
}

/// Takes the requests of one participant.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) pool: PgPool,
    pub(crate) participant: &'static str,
}

/// What became of a request so far.
pub(crate) enum Request {
    /// It was answered before, or its scope was revoked.
    Answered(Answer),
    /// Nobody answered it yet. Nobody else does until this is dropped.
    Open(OpenRequest),
}

/// A request to answer.
pub(crate) struct OpenRequest {
    transaction: Transaction<'static, Postgres>,
    participant: &'static str,
    id: String,
}

impl Desk {
    /// Takes a request. Requests of one scope, its undo among them, are taken one at a time.
    pub(crate) async fn take(&self, name: &Name) -> Result<Request, sqlx::Error> {
        let mut transaction = self.alone(&name.scope).await?;
        let known: Option<Option<String>> = sqlx::query_scalar(
            "UPDATE moving.answers SET asked = asked + 1 WHERE participant = $1 AND id = $2 RETURNING refused",
        )
        .bind(self.participant)
        .bind(&name.id)
        .fetch_optional(&mut *transaction)
        .await?;
        if let Some(refused) = known {
            transaction.commit().await?;
            return Ok(Request::Answered(refused.map_or(Answer::Done, Answer::Refused)));
        }
        let is_revoked: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM moving.tombstones WHERE participant = $1 AND scope = $2)",
        )
        .bind(self.participant)
        .bind(&name.scope)
        .fetch_one(&mut *transaction)
        .await?;
        let open = OpenRequest { transaction, participant: self.participant, id: name.id.clone() };
        if is_revoked {
            return Ok(Request::Answered(open.answer(Answer::Refused("REVOKED".into())).await?));
        }
        Ok(Request::Open(open))
    }

    /// Leaves a tombstone. What was done is undone by the caller, in the transaction that this gives.
    pub(crate) async fn revoke(&self, scope: &str) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        let mut transaction = self.alone(scope).await?;
        sqlx::query(
            "INSERT INTO moving.tombstones (participant, scope) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        )
        .bind(self.participant)
        .bind(scope)
        .execute(&mut *transaction)
        .await?;
        Ok(transaction)
    }

    async fn alone(&self, scope: &str) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, 0))")
            .bind(self.participant)
            .bind(scope)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction)
    }
}

impl OpenRequest {
    /// Where the effect is had.
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// Records the answer, together with the effect.
    pub(crate) async fn answer(mut self, answer: Answer) -> Result<Answer, sqlx::Error> {
        let refused = match &answer {
            Answer::Done => None,
            Answer::Refused(reason) => Some(reason),
        };
        sqlx::query("INSERT INTO moving.answers (participant, id, refused) VALUES ($1, $2, $3)")
            .bind(self.participant)
            .bind(&self.id)
            .bind(refused)
            .execute(&mut *self.transaction)
            .await?;
        self.transaction.commit().await?;
        Ok(answer)
    }

    /// Keeps what was done so far, and leaves the request open.
    pub(crate) async fn keep_open(self) -> Result<(), sqlx::Error> {
        self.transaction.commit().await
    }
}
