//! Connections of the journal's own. Each serves one call at a time, and each call has a limit: a server that went silent
//! without closing its connections would otherwise hold up everything until the kernel gives them up. A connection comes
//! back only after a call that was answered; any other is closed, so that no rest of a call meets the next one.

use std::{
    future::Future,
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// Less than a lease: a heartbeat that waits for its connection must fail in time to be tried again.
const TAKE_MAX: Duration = Duration::from_secs(3);

/// At most so many connections, made when they are needed.
pub(super) struct Own {
    options: PgConnectOptions,
    idle: Mutex<Vec<PgConnection>>,
    turns: Semaphore,
}

impl Own {
    pub(super) fn new(options: PgConnectOptions, connections: usize) -> Self {
        Self { options, idle: Mutex::default(), turns: Semaphore::new(connections) }
    }

    /// A connection, for one call.
    pub(super) async fn take(&self) -> Result<Taken<'_>, sqlx::Error> {
        within(TAKE_MAX, async {
            let turn = self.turns.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match idle {
                Some(connection) => connection,
                None => self.options.connect().await?,
            };
            Ok(Taken { of: self, connection, turn })
        })
        .await
    }
}

/// A connection in use. Dropped, it is closed.
pub(super) struct Taken<'a> {
    of: &'a Own,
    connection: PgConnection,
    turn: SemaphorePermit<'a>,
}

impl Taken<'_> {
    /// Its call was answered: it may serve another one.
    pub(super) fn give_back(self) {
        self.of.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.connection);
        drop(self.turn);
    }
}

impl Deref for Taken<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

/// What was not answered in time is unknown, like any answer that was lost.
pub(super) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(limit, call).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
