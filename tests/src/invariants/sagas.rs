//! Sagas: all have ended, each as its order did, with a journal without gaps. This is the journal's inside, which no
//! public call shows yet.

use anyhow::{Result, anyhow};

use super::Found;
use crate::stack::Stack;

const UNFINISHED: &str = "
    -- sagas that have not ended
    SELECT id::text, kind, status, coalesce(last_error, '') FROM saga.sagas
    WHERE status NOT IN ('COMPLETED', 'UNDONE')";

const UNLIKE_THEIR_ORDER: &str = "
    -- sagas that ended unlike their order
    SELECT o.order_id::text, o.state, coalesce(i.status, 'NONE')
    FROM orders.orders o LEFT JOIN saga.sagas i ON i.id = o.saga_id
    WHERE (o.state = 'CONFIRMED') <> (i.status IS NOT DISTINCT FROM 'COMPLETED')
       OR (o.state = 'CANCELLED') <> (i.status IS NOT DISTINCT FROM 'UNDONE')";

const TORN: &str = "
    -- gaps in the journal
    SELECT i.id::text FROM saga.sagas i LEFT JOIN saga.event_list e ON e.saga_id = i.id
    GROUP BY i.id, i.seq HAVING count(e.seq) <> i.seq OR max(e.seq) <> i.seq";

pub(super) async fn check(stack: &Stack, found: &mut Found) -> Result<()> {
    let database = stack.stores.orders.pool()?;
    let unfinished: Vec<(String, String, String, String)> =
        sqlx::query_as(UNFINISHED).fetch_all(&database).await?;
    for (id, kind, status, error) in unfinished {
        found.look("every saga ends", Err(anyhow!("{kind} {id} is {status}: {error}")));
    }
    let unlike: Vec<(String, String, String)> =
        sqlx::query_as(UNLIKE_THEIR_ORDER).fetch_all(&database).await?;
    for (order, state, status) in unlike {
        found.look("a saga ends as its order does", Err(anyhow!("{order} is {state}, its saga {status}")));
    }
    let torn: Vec<String> = sqlx::query_scalar(TORN).fetch_all(&database).await?;
    for id in torn {
        found.look("the journal has no gaps", Err(anyhow!("saga {id}")));
    }
    Ok(())
}
