//! Every statement of the book. Each names itself on its first line and every table with its schema; writes say what
//! they expect to find.
//!
//! `statement_timestamp()` where an index shall serve the comparison: the planner cannot use a clock that moves.

pub(super) const PING: &str = "\
-- payment.ping
select 1";

/// $1 payment, $2 scope, $3 reference, $4 fingerprint, $5 currency, $6 amount, $7 token, $8 traceparent, $9 look
/// after ms. The update of the scope changes nothing; it locks the row and reads its newest version.
pub(super) const BEGIN_CHARGE: &str = "\
-- payment.begin_charge
with scope as (
    insert into payment.scopes as s (scope) values ($2)
    on conflict (scope) do update set scope = s.scope
    returning cancelled_at
)
insert into payment.payments (payment_id, scope, reference, fingerprint, currency, amount, payment_token, state,
                              traceparent, due_at)
select $1, $2, $3, $4, $5, $6, $7, 'PROCESSING', $8, clock_timestamp() + $9::bigint * interval '1 ms'
from scope where cancelled_at is null
on conflict (payment_id) do nothing
returning *";

/// $1 payment, $2 state, $3 captured, $4 provider reference, $5 decline reason, $6 report or null.
pub(super) const RECORD_FIRST: &str = "\
-- payment.record_first
with changed as (
    update payment.payments
    set state = $2, captured = $3, provider_reference = $4, decline_reason = $5, updated_at = clock_timestamp(),
        due_at = null
    where payment_id = $1 and state = 'PROCESSING' and cancel_requested_at is null
    returning *
), told as (
    insert into payment.outbox (payment_id, reference, kind, currency, amount, provider_event_id, traceparent)
    select payment_id, reference, $6, currency, amount, provider_reference || '.' || lower($6), traceparent
    from changed where $6::text is not null and reference <> ''
)
select * from changed";

/// $1 payment.
pub(super) const FIND: &str = "\
-- payment.find
select * from payment.payments where payment_id = $1";

/// $1 payment, $2 age in ms.
pub(super) const IS_YOUNGER: &str = "\
-- payment.is_younger
select created_at > clock_timestamp() - $2::bigint * interval '1 ms' from payment.payments where payment_id = $1";

/// $1 payment.
pub(super) const LOCK: &str = "\
-- payment.lock
select * from payment.payments where payment_id = $1 for update";

/// $1 scope, $2 limit.
pub(super) const LIST: &str = "\
-- payment.list
select * from payment.payments where scope = $1 order by created_at, payment_id limit $2";

/// $1 scope.
pub(super) const CANCEL_SCOPE: &str = "\
-- payment.cancel_scope
insert into payment.scopes as s (scope, cancelled_at) values ($1, clock_timestamp())
on conflict (scope) do update set cancelled_at = coalesce(s.cancelled_at, excluded.cancelled_at)";

/// $1 scope, $2 limit.
pub(super) const LOCK_UNCANCELLED: &str = "\
-- payment.lock_uncancelled
select * from payment.payments where scope = $1 and cancel_requested_at is null and payment_id <> $3
order by created_at, payment_id limit $2 for update";

/// $1 payment; to be: $2 state, $3 whether to give back, $4 captured, $5 refunded, $6 pending; $7 provider reference
/// and $8 decline reason, empty to keep; $9 whether it is open, $10 look after ms; $11 report or null; as it was:
/// $12 state, $13 refunded, $14 pending.
pub(super) const SAVE: &str = "\
-- payment.save
with changed as (
    update payment.payments
    set state = $2,
        cancel_requested_at = case when $3 then coalesce(cancel_requested_at, clock_timestamp()) end,
        captured = $4, refunded = $5, refund_pending = $6,
        provider_reference = coalesce(nullif($7, ''), provider_reference),
        decline_reason = coalesce(nullif($8, ''), decline_reason),
        updated_at = clock_timestamp(),
        due_at = case when $9 then coalesce(due_at, clock_timestamp() + $10::bigint * interval '1 ms') end,
        looks = case when $9 then looks else 0 end
    where payment_id = $1 and state = $12 and refunded = $13 and refund_pending = $14
    returning *
), told as (
    insert into payment.outbox (payment_id, reference, kind, currency, amount, provider_event_id, traceparent)
    select payment_id, reference, $11, currency, amount, provider_reference || '.' || lower($11), traceparent
    from changed where $11::text is not null and reference <> ''
)
select * from changed";

/// $1 limit.
pub(super) const CLAIM_OPEN: &str = "\
-- payment.claim_open
with due as (
    select payment_id from payment.payments where due_at <= statement_timestamp()
    order by due_at limit $1 for update skip locked
)
update payment.payments p
set looks = p.looks + 1,
    due_at = statement_timestamp() + least(2 ^ least(p.looks, 16), 300) * interval '1 s'
from due where p.payment_id = due.payment_id
returning p.*";

/// $1 refund key.
pub(super) const FIND_REFUND: &str = "\
-- payment.find_refund
select * from payment.refunds where refund_key = $1";

/// $1 payment.
pub(super) const PENDING_REFUND: &str = "\
-- payment.pending_refund
select * from payment.refunds where payment_id = $1 and state = 'PENDING' order by refund_key limit 1";

/// $1 refund key, $2 payment, $3 fingerprint, $4 amount, $5 state, $6 refusal.
pub(super) const INSERT_REFUND: &str = "\
-- payment.insert_refund
insert into payment.refunds (refund_key, payment_id, fingerprint, amount, state, refusal)
values ($1, $2, $3, $4, $5, $6)
on conflict (refund_key) do nothing";

/// $1 refund key, $2 state, $3 refusal.
pub(super) const END_REFUND: &str = "\
-- payment.end_refund
update payment.refunds set state = $2, refusal = $3, updated_at = clock_timestamp()
where refund_key = $1 and state = 'PENDING'";

/// $1 limit.
pub(super) const CLAIM_REPORTS: &str = "\
-- payment.claim_reports
with due as (
    select o.id from payment.outbox o
    where o.abandoned_at is null and o.due_at <= statement_timestamp()
      and not exists (select from payment.outbox earlier
                      where earlier.payment_id = o.payment_id and earlier.id < o.id
                        and earlier.abandoned_at is null)
    order by o.due_at limit $1 for update of o skip locked
)
update payment.outbox o
set due_at = statement_timestamp() + interval '10 s', attempts = o.attempts + 1
from due where o.id = due.id
returning o.*, (extract(epoch from statement_timestamp() - o.created_at) * 1000)::bigint as age_ms";

/// $1 ids.
pub(super) const DELIVERED: &str = "\
-- payment.delivered
delete from payment.outbox where id = any($1)";

/// $1 ids, $2 delays in ms.
pub(super) const POSTPONE: &str = "\
-- payment.postpone
update payment.outbox o set due_at = clock_timestamp() + d.delay_ms * interval '1 ms'
from unnest($1::bigint[], $2::bigint[]) as d (id, delay_ms)
where o.id = d.id and o.abandoned_at is null";

/// $1 ids.
pub(super) const ABANDON: &str = "\
-- payment.abandon
update payment.outbox set abandoned_at = clock_timestamp() where id = any($1) and abandoned_at is null";
