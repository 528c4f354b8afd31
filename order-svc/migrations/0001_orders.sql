-- Orders and what was reported of their payments. An order's state changes in the transaction that records the
-- change of its saga, so the two never disagree.

CREATE TABLE orders.orders (
    -- A UUID of version 7: newest first is order_id descending.
    order_id       uuid PRIMARY KEY,
    -- The caller's id for the order: a repeat finds this row.
    request_id     text NOT NULL UNIQUE,
    -- SHA-256 of what was asked for; a repeat with another one is refused.
    fingerprint    bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    -- The saga that carries it.
    saga_id        uuid NOT NULL UNIQUE,
    customer_id    text NOT NULL,
    -- The lines as sent, one array per field.
    skus           text[] NOT NULL,
    quantities     bigint[] NOT NULL,
    prices_minor   bigint[] NOT NULL,
    currency       text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    total_minor    bigint NOT NULL CHECK (total_minor > 0),
    -- NULL: the customer pays later, through payment-svc.
    payment_token  text,
    state          text NOT NULL
        CHECK (state IN ('PENDING', 'AWAITING_PAYMENT', 'PAID', 'CONFIRMED', 'CANCELLED', 'RETURNED')),
    -- Set from the turn on, so an order with a reason that is not CANCELLED yet is on its way there.
    cancel_reason  text,
    payment_state  text NOT NULL CHECK (payment_state IN ('PENDING', 'CAPTURED', 'DECLINED', 'NONE_KEPT')),
    -- The one payment that counts for the order; whoever sets it first wins.
    payment_id     text,
    refused_skus   text[] NOT NULL DEFAULT '{}',
    traceparent    text,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at     timestamptz NOT NULL,
    -- Raised with every change: the etag.
    version        bigint NOT NULL DEFAULT 1,
    CONSTRAINT lines_match CHECK (cardinality(skus) = cardinality(quantities)
        AND cardinality(skus) = cardinality(prices_minor) AND cardinality(skus) BETWEEN 1 AND 1500),
    CONSTRAINT cancelled_has_reason CHECK (state <> 'CANCELLED' OR cancel_reason IS NOT NULL),
    CONSTRAINT sold_has_no_reason CHECK (state NOT IN ('CONFIRMED', 'RETURNED') OR cancel_reason IS NULL),
    CONSTRAINT sold_is_paid CHECK (state <> 'CONFIRMED' OR (payment_id IS NOT NULL AND payment_state = 'CAPTURED'))
);

-- ListOrders by customer and by state, newest first.
CREATE INDEX orders_customer ON orders.orders (customer_id, order_id DESC) WHERE customer_id <> '';
CREATE INDEX orders_state ON orders.orders (state, order_id DESC);

-- Every report of a payment, once.
CREATE TABLE orders.payment_reports (
    payment_id         text NOT NULL,
    kind               text NOT NULL CHECK (kind IN ('CAPTURED', 'DECLINED')),
    order_id           uuid NOT NULL REFERENCES orders.orders (order_id),
    currency           text NOT NULL,
    amount_minor       bigint NOT NULL,
    provider_event_id  text NOT NULL,
    disposition        text NOT NULL CHECK (disposition IN ('APPLIED', 'EXCEPTIONAL')),
    reported_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (payment_id, kind)
);

-- Captured money that pays for no order: late, wrong, twice, or outside the order's scope of payments. Never kept
-- silently.
CREATE TABLE orders.exceptional_payments (
    payment_id    text PRIMARY KEY,
    order_id      uuid NOT NULL REFERENCES orders.orders (order_id),
    currency      text NOT NULL,
    amount_minor  bigint NOT NULL,
    reason        text NOT NULL CHECK (reason IN ('LATE', 'WRONG_AMOUNT', 'TWICE', 'FOREIGN')),
    -- The saga that gives it back.
    saga_id       uuid NOT NULL,
    recorded_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
