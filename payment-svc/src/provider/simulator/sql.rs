//! Every statement of the simulated provider. It touches schema `payment_simulator` only.
//!
//! `statement_timestamp()` where an index shall serve the comparison: the planner cannot use a clock that moves.

/// $1 key, $2 reference, $3 currency, $4 amount, $5 token, $6 status, $7 captures in ms or null.
/// No row: the key is known.
pub(super) const CHARGE: &str = "\
-- payment_simulator.charge
insert into payment_simulator.charges (charge_key, reference, currency, amount, token, status, captures_at)
values ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7::bigint * interval '1 ms')
on conflict (charge_key) do nothing
returning reference, status";

/// $1 key, $2 how often. No row: it has failed that often.
pub(super) const FAIL: &str = "\
-- payment_simulator.fail
insert into payment_simulator.failures as f (charge_key, answered) values ($1, 1)
on conflict (charge_key) do update set answered = f.answered + 1 where f.answered < $2
returning answered";

/// $1 key. A charge that is due is captured by asking too, and still reports itself.
pub(super) const QUERY: &str = "\
-- payment_simulator.query
with captured as (
    update payment_simulator.charges set status = 'CAPTURED', captures_at = null
    where charge_key = $1 and captures_at <= statement_timestamp()
    returning charge_key, reference, status
), told as (
    insert into payment_simulator.events (event_id, charge_key)
    select reference || '.captured', charge_key from captured
    on conflict (event_id) do nothing
)
select reference, status from captured
union all
select reference, status from payment_simulator.charges
where charge_key = $1 and not exists (select from captured)";

/// $1 key, $2 reference, $3 currency, $4 amount, $5 token. What is due has captured, though nobody looked yet.
pub(super) const CANCEL: &str = r"-- payment_simulator.cancel
insert into payment_simulator.charges as c (charge_key, reference, currency, amount, token, status)
values ($1, $2, $3, $4, $5, 'CANCELLED')
on conflict (charge_key) do update set
    status = case when c.status <> 'PROCESSING' then c.status
                  when c.captures_at <= statement_timestamp() then 'CAPTURED'
                  else 'CANCELLED' end,
    captures_at = case when c.status = 'PROCESSING' and c.captures_at <= statement_timestamp() then null
                       when c.token like 'sim\_pays\_after\_cancel\_%' then c.captures_at end
returning reference, status";

/// $1 key.
pub(super) const LOCK_CHARGE: &str = "\
-- payment_simulator.lock_charge
select status, token, amount - refunded as left_to_refund from payment_simulator.charges
where charge_key = $1 for update";

/// $1 refund key.
pub(super) const FIND_REFUND: &str = "\
-- payment_simulator.find_refund
select amount from payment_simulator.refunds where refund_key = $1";

/// $1 refund key, $2 charge key, $3 amount. The charge's row is locked, and its constraint has the last word.
pub(super) const REFUND: &str = "\
-- payment_simulator.refund
with refund as (
    insert into payment_simulator.refunds (refund_key, charge_key, amount) values ($1, $2, $3)
    returning charge_key, amount
)
update payment_simulator.charges c set refunded = c.refunded + refund.amount
from refund where c.charge_key = refund.charge_key and c.status = 'CAPTURED'";

/// One row per event, or one without an event; each says when the next charge is due.
pub(super) const TICK: &str = "\
-- payment_simulator.tick
with due as (
    select charge_key from payment_simulator.charges
    where captures_at <= statement_timestamp() order by captures_at limit 100
    for update skip locked
), captured as (
    update payment_simulator.charges c set status = 'CAPTURED', captures_at = null
    from due where c.charge_key = due.charge_key
    returning c.charge_key, c.reference
), fresh as (
    insert into payment_simulator.events (event_id, charge_key, due_at)
    select reference || '.captured', charge_key, statement_timestamp() + interval '5 s' from captured
    on conflict (event_id) do nothing
), waiting as (
    select event_id from payment_simulator.events
    where acknowledged_at is null and due_at <= statement_timestamp() order by due_at limit 100
    for update skip locked
), again as (
    update payment_simulator.events e set due_at = statement_timestamp() + interval '5 s'
    from waiting where e.event_id = waiting.event_id
    returning e.event_id, e.charge_key
), told as (
    select reference || '.captured' as event_id, charge_key, reference from captured
    union all
    select again.event_id, c.charge_key, c.reference
    from again join payment_simulator.charges c on c.charge_key = again.charge_key
), next as (
    select ceil(extract(epoch from min(captures_at) - statement_timestamp()) * 1000)::bigint as next_ms
    from payment_simulator.charges where captures_at > statement_timestamp()
)
select next.next_ms, told.event_id, told.charge_key, told.reference from next left join told on true";

/// $1 event ids.
pub(super) const ACKNOWLEDGE: &str = "\
-- payment_simulator.acknowledge
update payment_simulator.events set acknowledged_at = clock_timestamp()
where event_id = any($1) and acknowledged_at is null";
