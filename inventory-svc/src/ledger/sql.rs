//! All SQL of this crate beside the migrations. Every statement names its schema and itself.

pub(super) const CLOCK: &str = "-- inventory: clock
select (extract(epoch from clock_timestamp()) * 1000)::bigint";

pub(super) const PARTITION: &str = "-- inventory: partition
select generation, seq, chain, raised_by,
       (extract(epoch from clock_timestamp() - raised_at) * 1000)::bigint as raised_ago_ms
from inventory.partitions where partition = $1";

/// The lock of the ledger.
pub(super) const PARTITION_LOCK: &str = "-- inventory: lock partition
select generation, seq, chain from inventory.partitions where partition = $1 for update";

pub(super) const PARTITION_ADVANCE: &str = "-- inventory: advance partition
update inventory.partitions set seq = $2, chain = $3 where partition = $1";

/// Compare-and-set: whoever read an older end of the chain raises nothing.
pub(super) const PARTITION_RAISE: &str = "-- inventory: raise generation
update inventory.partitions
set generation = generation + 1, seq = seq + 1, chain = $5, raised_at = clock_timestamp(), raised_by = $6
where partition = $1 and generation = $2 and seq = $3 and chain = $4
returning generation, seq";

pub(super) const MOVEMENT_OPEN: &str = "-- inventory: open movement
insert into inventory.movements (partition, seq, generation, kind, skus, quantities, nonce, prev, at)
values ($1, $2, $3, 'OPEN', '{}', '{}', $4, $5, clock_timestamp())";

/// Lines come as one text per movement, because unnest would flatten arrays of arrays.
pub(super) const MOVEMENTS_APPEND: &str = "-- inventory: append movements
insert into inventory.movements
    (partition, generation, seq, kind, reservation_id, request_id, from_state, skus, quantities,
     fingerprint, customer_id, expires_at, reason, counters, nonce, prev, at)
select $1, $2, d.seq, d.kind, d.reservation_id, d.request_id, d.from_state,
       string_to_array(d.skus, E'\\n'), string_to_array(d.quantities, E'\\n')::bigint[],
       d.fingerprint, d.customer_id, 'epoch'::timestamptz + d.expires_ms * interval '1 millisecond', d.reason,
       string_to_array(d.counters, E'\\n')::bigint[], d.nonce, d.prev,
       'epoch'::timestamptz + d.at_ms * interval '1 millisecond'
from unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
            $11::text[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::text[], $17::bigint[])
     as d(seq, kind, reservation_id, request_id, from_state, skus, quantities, fingerprint, customer_id, expires_ms,
          reason, counters, nonce, prev, at_ms)
on conflict (request_id) where request_id is not null do nothing";

/// An id that is known already leaves the count short, which is a contradiction.
pub(super) const RESERVATIONS_INSERT: &str = "-- inventory: insert reservations
insert into inventory.reservations
    (id, partition, generation, state, fingerprint, customer_id, opened_seq, seq, expires_at, changed_at)
select d.id, $1, $2, d.state, d.fingerprint, d.customer_id, d.opened_seq, d.seq,
       'epoch'::timestamptz + d.expires_ms * interval '1 millisecond',
       'epoch'::timestamptz + d.at_ms * interval '1 millisecond'
from unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
     as d(id, state, fingerprint, customer_id, opened_seq, seq, expires_ms, at_ms)
on conflict (id) do nothing";

/// Names the state each row is expected to leave; a row in another state leaves the count short.
pub(super) const RESERVATIONS_UPDATE: &str = "-- inventory: update reservations
update inventory.reservations r
set state = d.state, generation = $2, seq = d.seq,
    changed_at = 'epoch'::timestamptz + d.at_ms * interval '1 millisecond'
from unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[]) as d(id, from_state, state, seq, at_ms)
where r.id = d.id and r.state = d.from_state and r.partition = $1";

/// Makes SKUs known. Their counters follow in the next statement: an insert's checks run before its conflict clause,
/// so a negative change cannot be an upsert.
pub(super) const BALANCES_INSERT: &str = "-- inventory: insert balances
insert into inventory.balances (partition, sku, received, held, sold, seq)
select $1, d.sku, 0, 0, 0, 0 from unnest($2::text[]) as d(sku)
on conflict (sku) do nothing";

pub(super) const BALANCES_UPDATE: &str = "-- inventory: update balances
update inventory.balances b
set received = b.received + d.received, held = b.held + d.held, sold = b.sold + d.sold, seq = d.seq
from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) as d(sku, received, held, sold, seq)
where b.sku = d.sku and b.partition = $1";

pub(super) const BALANCES_BY_SKU: &str = "-- inventory: balances by sku
select sku, received, held, sold, seq from inventory.balances where sku = any($1)";

pub(super) const BALANCES_PAGE: &str = "-- inventory: balances page
select sku, received, held, sold, seq from inventory.balances
where partition = $1 and sku > $2 collate \"C\" order by sku limit $3";

/// Reservations with their lines.
pub(super) const RESERVATIONS_BY_ID: &str = "-- inventory: reservations by id
select r.id, r.state, r.fingerprint, r.customer_id, r.generation, r.seq, m.skus, m.quantities,
       (extract(epoch from r.expires_at) * 1000)::bigint as expires_ms,
       (extract(epoch from r.changed_at) * 1000)::bigint as changed_ms
from inventory.reservations r
join inventory.movements m on m.partition = r.partition and m.seq = r.opened_seq
where r.id = any($1)";

pub(super) const RESERVATIONS_HELD_PAGE: &str = "-- inventory: held reservations page
select r.id, r.state, r.fingerprint, r.customer_id, r.generation, r.seq, m.skus, m.quantities,
       (extract(epoch from r.expires_at) * 1000)::bigint as expires_ms,
       (extract(epoch from r.changed_at) * 1000)::bigint as changed_ms
from inventory.reservations r
join inventory.movements m on m.partition = r.partition and m.seq = r.opened_seq
where r.partition = $1 and r.state = 'HELD' and r.id > $2 order by r.id limit $3";

/// `(changed_at, id)` is the page's cursor; changed_at is a whole number of milliseconds.
pub(super) const RESERVATIONS_ENDED_PAGE: &str = "-- inventory: ended reservations page
select r.id, r.state, r.fingerprint, r.customer_id, r.generation, r.seq, m.skus, m.quantities,
       (extract(epoch from r.expires_at) * 1000)::bigint as expires_ms,
       (extract(epoch from r.changed_at) * 1000)::bigint as changed_ms
from inventory.reservations r
join inventory.movements m on m.partition = r.partition and m.seq = r.opened_seq
where r.partition = $1 and r.state <> 'HELD'
  and (r.changed_at, r.id) > ('epoch'::timestamptz + $2::bigint * interval '1 millisecond', $3)
order by r.changed_at, r.id limit $4";

pub(super) const CHANGES_BY_ID: &str = "-- inventory: changes by request id
select request_id, generation, seq, fingerprint, counters, (extract(epoch from at) * 1000)::bigint as at_ms
from inventory.movements where request_id = any($1)";

pub(super) const CHANGES_PAGE: &str = "-- inventory: recent changes page
select request_id, generation, seq, fingerprint, counters, (extract(epoch from at) * 1000)::bigint as at_ms
from inventory.movements
where partition = $1 and request_id is not null and seq > $2
  and at > 'epoch'::timestamptz + $3::bigint * interval '1 millisecond'
order by seq limit $4";
