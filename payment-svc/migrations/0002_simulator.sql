-- The simulated provider's own book. It stands in for a company on the other side of the network: payment-svc reads
-- and writes it only through the provider port, never in one transaction with its own tables, and nothing in schema
-- payment refers to it.
create schema payment_simulator;

create table payment_simulator.charges (
    -- The caller's idempotency key: one charge per key, for ever.
    charge_key    text primary key,
    -- The provider's name for it.
    reference     text not null,
    currency      text not null,
    amount        bigint not null check (amount >= 1),
    -- What it does; see the tokens of the simulator.
    token         text not null,
    -- CANCELLED is also written for a key never charged: the late charge finds it and moves no money.
    status        text not null check (status in ('PROCESSING', 'CAPTURED', 'DECLINED', 'CANCELLED')),
    refunded      bigint not null default 0 check (refunded >= 0),
    -- When a charge in process captures, by the provider's clock. It survives a cancel only for the token that pays
    -- after cancel.
    captures_at   timestamptz,
    created_at    timestamptz not null default clock_timestamp(),
    constraint refunds_within_captured check (refunded = 0 or (status = 'CAPTURED' and refunded <= amount))
);

-- The provider's clock reads only what is due.
create index charges_due on payment_simulator.charges (captures_at) where captures_at is not null;

-- How often a key was answered with 500; nothing was executed then.
create table payment_simulator.failures (
    charge_key  text primary key,
    answered    integer not null check (answered >= 1)
);

create table payment_simulator.refunds (
    -- The caller's idempotency key: one refund per key, for ever.
    refund_key  text primary key,
    charge_key  text not null references payment_simulator.charges (charge_key),
    amount      bigint not null check (amount >= 0)
);

-- Facts the provider reports by itself, until they are acknowledged.
create table payment_simulator.events (
    event_id         text primary key,
    charge_key       text not null references payment_simulator.charges (charge_key),
    created_at       timestamptz not null default clock_timestamp(),
    -- When it is delivered (again).
    due_at           timestamptz not null default clock_timestamp(),
    acknowledged_at  timestamptz
);

create index events_due on payment_simulator.events (due_at) where acknowledged_at is null;
