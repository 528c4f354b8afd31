//! Whom the saga asks: the fleet of database hosts, the copier, and the directory that says where a tenant's database
//! is. Each would be a service of its own; here each is a few tables. None of them knows what a saga is.

use sqlx::{PgPool, Row as _};

use crate::desk::{Answer, Desk, Name, Request};

/// Makes schema `moving`, and drops what an earlier run left in it.
pub(crate) async fn set_up(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(SCHEMA).execute(pool).await?;
    Ok(())
}

const SCHEMA: &str = "
DROP SCHEMA IF EXISTS moving CASCADE;
CREATE SCHEMA moving;

-- Last words, by whom and on what. asked: how often the same was asked for.
CREATE TABLE moving.answers (
    participant text, id text, refused text, asked integer NOT NULL DEFAULT 1, PRIMARY KEY (participant, id)
);
-- Scopes in which nothing may happen any more.
CREATE TABLE moving.tombstones (participant text, scope text, PRIMARY KEY (participant, scope));

-- The fleet.
CREATE TABLE moving.hosts (name text PRIMARY KEY, free integer NOT NULL CHECK (free >= 0), extensions text[] NOT NULL);
CREATE TABLE moving.places (scope text PRIMARY KEY, host text NOT NULL);
-- The copier.
CREATE TABLE moving.copies (scope text PRIMARY KEY, ready_at timestamptz NOT NULL);
-- The directory.
CREATE TABLE moving.tenants (
    name text PRIMARY KEY, host text NOT NULL, extensions text[] NOT NULL, frozen_by text
);
-- Whoever asked for a move reads this: it changes with the saga, in the same transaction.
CREATE TABLE moving.moves (
    saga uuid PRIMARY KEY, request text NOT NULL UNIQUE, tenant text NOT NULL, status text NOT NULL, reason text
);

INSERT INTO moving.hosts VALUES ('old', 0, '{postgis,vector}'), ('new', 2, '{vector}');
INSERT INTO moving.tenants VALUES ('acme', 'old', '{vector}'), ('globex', 'old', '{postgis}');
";

/// Has room for databases.
#[derive(Clone)]
pub(crate) struct Fleet(pub(crate) Desk);

impl Fleet {
    /// Takes a place on a host, if there is one.
    pub(crate) async fn allocate(&self, name: &Name, host: &str) -> Result<Answer, sqlx::Error> {
        let mut request = match self.0.take(name).await? {
            Request::Answered(answer) => return Ok(answer),
            Request::Open(request) => request,
        };
        let taken = sqlx::query("UPDATE moving.hosts SET free = free - 1 WHERE name = $1 AND free > 0")
            .bind(host)
            .execute(request.connection())
            .await?;
        if taken.rows_affected() == 0 {
            return request.answer(Answer::Refused("HOST_FULL".into())).await;
        }
        sqlx::query("INSERT INTO moving.places (scope, host) VALUES ($1, $2)")
            .bind(&name.scope)
            .bind(host)
            .execute(request.connection())
            .await?;
        request.answer(Answer::Done).await
    }

    /// Gives the place back, whether it was ever taken or not.
    pub(crate) async fn give_back(&self, scope: &str) -> Result<(), sqlx::Error> {
        let mut transaction = self.0.revoke(scope).await?;
        sqlx::query(
            "WITH left_free AS (DELETE FROM moving.places WHERE scope = $1 RETURNING host)
             UPDATE moving.hosts h SET free = free + 1 FROM left_free WHERE h.name = left_free.host",
        )
        .bind(scope)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await
    }

    /// Drops what is left on the host that a tenant came from.
    pub(crate) async fn discard(&self, name: &Name, host: &str) -> Result<Answer, sqlx::Error> {
        let mut request = match self.0.take(name).await? {
            Request::Answered(answer) => return Ok(answer),
            Request::Open(request) => request,
        };
        sqlx::query("UPDATE moving.hosts SET free = free + 1 WHERE name = $1")
            .bind(host)
            .execute(request.connection())
            .await?;
        request.answer(Answer::Done).await
    }
}

/// How far a copy is.
pub(crate) enum Copied {
    Answered(Answer),
    NotYet,
}

/// Copies databases, which takes it a moment.
#[derive(Clone)]
pub(crate) struct Copier(pub(crate) Desk);

impl Copier {
    /// Begins a copy, or says how far it is.
    pub(crate) async fn copy(&self, name: &Name, tenant: &str, host: &str) -> Result<Copied, sqlx::Error> {
        let mut request = match self.0.take(name).await? {
            Request::Answered(answer) => return Ok(Copied::Answered(answer)),
            Request::Open(request) => request,
        };
        let fits: bool = sqlx::query_scalar(
            "SELECT t.extensions <@ h.extensions FROM moving.tenants t, moving.hosts h
             WHERE t.name = $1 AND h.name = $2",
        )
        .bind(tenant)
        .bind(host)
        .fetch_one(request.connection())
        .await?;
        if !fits {
            let refused = Answer::Refused("EXTENSION_MISSING".into());
            return Ok(Copied::Answered(request.answer(refused).await?));
        }
        let copy = sqlx::query(
            "INSERT INTO moving.copies (scope, ready_at) VALUES ($1, clock_timestamp() + interval '250 ms')
             ON CONFLICT (scope) DO UPDATE SET ready_at = copies.ready_at
             RETURNING ready_at <= clock_timestamp() AS is_ready",
        )
        .bind(&name.scope)
        .fetch_one(request.connection())
        .await?;
        if copy.try_get("is_ready")? {
            return Ok(Copied::Answered(request.answer(Answer::Done).await?));
        }
        request.keep_open().await?;
        Ok(Copied::NotYet)
    }

    /// Throws a copy away, finished or not, begun or not.
    pub(crate) async fn drop_copy(&self, scope: &str) -> Result<(), sqlx::Error> {
        let mut transaction = self.0.revoke(scope).await?;
        sqlx::query("DELETE FROM moving.copies WHERE scope = $1")
            .bind(scope)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await
    }
}

/// Says where a tenant's database is, and whether it may be written to.
#[derive(Clone)]
pub(crate) struct Directory {
    pub(crate) desk: Desk,
    /// What happens when a tenant was frozen and nobody was told so yet.
    pub(crate) accident: fn(),
}

impl Directory {
    /// No more writes until it is thawed or switched.
    pub(crate) async fn freeze(&self, name: &Name, tenant: &str) -> Result<Answer, sqlx::Error> {
        let mut request = match self.desk.take(name).await? {
            Request::Answered(answer) => return Ok(answer),
            Request::Open(request) => request,
        };
        let frozen =
            sqlx::query("UPDATE moving.tenants SET frozen_by = $1 WHERE name = $2 AND frozen_by IS NULL")
                .bind(&name.scope)
                .bind(tenant)
                .execute(request.connection())
                .await?;
        if frozen.rows_affected() == 0 {
            return request.answer(Answer::Refused("FROZEN_BY_ANOTHER".into())).await;
        }
        let answer = request.answer(Answer::Done).await?;
        (self.accident)();
        Ok(answer)
    }

    /// Lets it be written to again, if it was this freeze that keeps it.
    pub(crate) async fn thaw(&self, scope: &str) -> Result<(), sqlx::Error> {
        let mut transaction = self.desk.revoke(scope).await?;
        sqlx::query("UPDATE moving.tenants SET frozen_by = NULL WHERE frozen_by = $1")
            .bind(scope)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await
    }

    /// From here on the tenant is on the new host.
    pub(crate) async fn switch(&self, name: &Name, tenant: &str, to: &str) -> Result<Answer, sqlx::Error> {
        let mut request = match self.desk.take(name).await? {
            Request::Answered(answer) => return Ok(answer),
            Request::Open(request) => request,
        };
        sqlx::query("UPDATE moving.tenants SET host = $2, frozen_by = NULL WHERE name = $1")
            .bind(tenant)
            .bind(to)
            .execute(request.connection())
            .await?;
        request.answer(Answer::Done).await
    }
}
