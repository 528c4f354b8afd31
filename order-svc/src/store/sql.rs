//! Every statement on orders, each named by its constant.

pub(super) const PING: &str = "SELECT 1";

/// New orders, in the transaction that begins their sagas. An order that is missing from the answer was not written: its
/// request id was used before. Lines come as array literals, since arrays of arrays cannot be ragged.
pub(super) const INSERT: &str = "
INSERT INTO orders.orders
    (order_id, request_id, fingerprint, saga_id, customer_id, skus, quantities, prices_minor, currency, total_minor,
     payment_token, state, payment_state, traceparent, expires_at)
SELECT order_id, request_id, fingerprint, saga_id, customer_id, skus::text[], quantities::bigint[],
       prices_minor::bigint[], currency, total_minor, payment_token, 'PENDING', 'PENDING', traceparent, expires_at
FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::bigint[], $11::text[], $12::text[], $13::timestamptz[])
    AS n (order_id, request_id, fingerprint, saga_id, customer_id, skus, quantities, prices_minor, currency,
          total_minor, payment_token, traceparent, expires_at)
ON CONFLICT (request_id) DO NOTHING
RETURNING saga_id";

/// Living orders after $1, for the second look; at most $2.
pub(super) const LIVING: &str = "
SELECT order_id, saga_id, state, cancel_reason, payment_state, expires_at FROM orders.orders
WHERE state IN ('PENDING', 'AWAITING_PAYMENT', 'PAID') AND order_id > $1 ORDER BY order_id LIMIT $2";

/// Of these sagas, those whose orders are there.
pub(super) const WRITTEN: &str = "
SELECT saga_id FROM orders.orders WHERE saga_id = ANY($1)";

pub(super) const ORDER: &str = "
SELECT * FROM orders.orders WHERE order_id = $1";

pub(super) const PLACED_WITH: &str = "
SELECT * FROM orders.orders WHERE request_id = $1";

/// Newest first: ids of version 7 are ordered by time.
pub(super) const LIST: &str = "
SELECT * FROM orders.orders
WHERE ($1::text IS NULL OR customer_id = $1)
  AND ($2::text IS NULL OR request_id = $2)
  AND ($3::text IS NULL OR state = $3)
  AND ($4::text IS NULL OR (state = 'CANCELLED' AND cancel_reason = $4))
  AND ($5::uuid IS NULL OR order_id < $5)
ORDER BY order_id DESC LIMIT $6";

/// The first payment to get here counts.
pub(super) const COUNT_PAYMENT: &str = "
UPDATE orders.orders SET payment_id = coalesce(payment_id, $2) WHERE order_id = $1 RETURNING payment_id";

pub(super) const LOCK: &str = "
SELECT state, cancel_reason, payment_state, saga_id, currency, total_minor, payment_id,
       payment_token IS NOT NULL AS pays_itself, traceparent
FROM orders.orders WHERE order_id = $1 FOR UPDATE";

/// Zero rows: reported before.
pub(super) const RECORD_REPORT: &str = "
INSERT INTO orders.payment_reports
    (payment_id, kind, order_id, currency, amount_minor, provider_event_id, disposition)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (payment_id, kind) DO NOTHING";

/// The caller holds the row's lock and has seen that no payment counts.
pub(super) const SET_PAYMENT: &str = "
UPDATE orders.orders SET payment_id = $2, updated_at = clock_timestamp(), version = version + 1
WHERE order_id = $1 AND payment_id IS NULL";

/// Zero rows: recorded before.
pub(super) const RECORD_EXCEPTIONAL: &str = "
INSERT INTO orders.exceptional_payments (payment_id, order_id, currency, amount_minor, reason, saga_id)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (payment_id) DO NOTHING";

/// In the order of ids, as every writer of several orders does.
pub(super) const LOCK_BY_SAGA: &str = "
SELECT saga_id, order_id, version, state, cancel_reason, payment_state
FROM orders.orders WHERE saga_id = ANY($1) ORDER BY order_id FOR UPDATE";

/// In the transaction that records the sagas' changes. Per order: $1 id, $2 version, $3 state, $4 reason, $5 payment
/// state, $6 payment id or NULL to keep it, $7 refused SKUs to add, as a JSON array.
pub(super) const MOVE: &str = "
UPDATE orders.orders o
SET state = m.state, cancel_reason = m.cancel_reason, payment_state = m.payment_state,
    payment_id = coalesce(m.payment_id, o.payment_id),
    refused_skus = o.refused_skus || ARRAY(SELECT jsonb_array_elements_text(m.refused_skus)),
    updated_at = clock_timestamp(), version = o.version + 1
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::jsonb[])
    AS m (order_id, version, state, cancel_reason, payment_state, payment_id, refused_skus)
WHERE o.order_id = m.order_id AND o.version = m.version";
