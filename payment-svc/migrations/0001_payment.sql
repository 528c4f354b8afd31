-- The port's own book: what callers asked for, what the provider said, what is owed and to whom it was told.
-- The provider's truth is not here; the simulator keeps its own in schema payment_simulator.

-- A scope groups the attempts to pay for one thing. Its row is the referee between charges and cancels: a charge
-- locks it while it inserts its payment, a cancel locks it while it writes the tombstone.
create table payment.scopes (
    scope         text primary key check (length(scope) between 1 and 128),
    -- The tombstone. Once set, never unset: no later charge is taken.
    cancelled_at  timestamptz
);

create table payment.payments (
    -- The caller's id, its request id, and the provider's idempotency key.
    payment_id          text primary key check (length(payment_id) between 1 and 128),
    scope               text not null references payment.scopes (scope),
    -- Whom reports go to; empty: nobody.
    reference           text not null check (length(reference) <= 128),
    -- SHA-256 of what the request means; another one under the same id is refused.
    fingerprint         bytea not null check (length(fingerprint) = 32),
    currency            text not null check (currency ~ '^[A-Z]{3}$'),
    -- All amounts are minor units of that currency.
    amount              bigint not null check (amount >= 1),
    payment_token       text not null check (length(payment_token) between 1 and 200),
    state               text not null check (state in ('PROCESSING', 'CAPTURED', 'DECLINED', 'CANCELLED')),
    -- When the scope was cancelled: keep no money of this payment, whenever it comes.
    cancel_requested_at timestamptz,
    captured            bigint not null default 0,
    refunded            bigint not null default 0,
    -- Promised to refunds whose fate is open.
    refund_pending      bigint not null default 0,
    provider_reference  text not null default '',
    decline_reason      text not null default '',
    -- W3C trace context of the charge, so that reports and undos hours later stand in the same trace.
    traceparent         text,
    created_at          timestamptz not null default clock_timestamp(),
    -- When the state or an amount last changed.
    updated_at          timestamptz not null default clock_timestamp(),
    -- When the sweep looks at it next; null when nothing is open.
    due_at              timestamptz,
    -- How often the sweep has looked; spaces its looks.
    looks               integer not null default 0,

    constraint captured_all_or_nothing check (captured in (0, amount)),
    constraint refunds_within_captured
        check (refunded >= 0 and refund_pending >= 0 and refunded + refund_pending <= captured),
    constraint captured_has_money check (state <> 'CAPTURED' or captured > 0),
    constraint others_keep_no_money check (state = 'CAPTURED' or (captured = refunded and refund_pending = 0)),
    -- Nothing that is open may be forgotten by the sweep.
    constraint open_is_due check (
        (state = 'PROCESSING'
         or refund_pending > 0
         or (cancel_requested_at is not null and captured > refunded)) = (due_at is not null))
);

-- CancelPayment and ListPayments read a scope, oldest first.
create index payments_by_scope on payment.payments (scope, created_at, payment_id);
-- The sweep reads only what is due.
create index payments_due on payment.payments (due_at) where due_at is not null;

create table payment.refunds (
    -- The caller's request id, or '<payment>/cancel' for the one refund of a cancelled scope. Callers cannot choose
    -- a name with a slash. Also the provider's idempotency key.
    refund_key   text primary key check (length(refund_key) between 1 and 140),
    payment_id   text not null references payment.payments (payment_id),
    -- SHA-256 of what the request means.
    fingerprint  bytea not null check (length(fingerprint) = 32),
    -- Zero is an answer too: "all that is left" of a payment with nothing left.
    amount       bigint not null check (amount >= 0),
    -- PENDING: promised, fate open. DONE: money moved. REFUSED: more than was left; the answer is kept for repeats.
    -- FAILED: the provider will never execute it.
    state        text not null check (state in ('PENDING', 'DONE', 'REFUSED', 'FAILED')),
    -- What was left when it was refused, or the provider's reason for a failure.
    refusal      text not null default '',
    created_at   timestamptz not null default clock_timestamp(),
    updated_at   timestamptz not null default clock_timestamp()
);

-- The sweep and CancelPayment finish the open refunds of a payment.
create index refunds_pending on payment.refunds (payment_id) where state = 'PENDING';

create table payment.outbox (
    id                 bigint generated always as identity primary key,
    payment_id         text not null references payment.payments (payment_id),
    reference          text not null check (length(reference) between 1 and 128),
    kind               text not null check (kind in ('CAPTURED', 'DECLINED')),
    currency           text not null,
    amount             bigint not null check (amount >= 1),
    -- The receiver drops repeats by it.
    provider_event_id  text not null check (length(provider_event_id) between 1 and 128),
    traceparent        text,
    created_at         timestamptz not null default clock_timestamp(),
    -- When it may be sent (again). A claim moves it ahead, so that two relays do not send the same row at once.
    due_at             timestamptz not null default clock_timestamp(),
    attempts           integer not null default 0,
    -- Set when it was given up; kept for operators.
    abandoned_at       timestamptz,
    -- Each fact is told once.
    unique (payment_id, kind)
);

-- The relay reads only what is due; delivered rows are deleted.
create index outbox_due on payment.outbox (due_at) where abandoned_at is null;
