-- The journal: an instance row per saga, an append-only table of its events, durable signals to it, and one
-- lease row per worker. Other crates may join these tables; only this crate writes them.

CREATE TABLE saga.workers (
    -- "<name>/<boot nonce>": what saga.instances.owner holds.
    worker       text PRIMARY KEY,
    -- One live worker per name: a restarted process replaces its predecessor, whose sagas are free at once.
    name         text NOT NULL UNIQUE,
    -- Past this instant (database clock) anyone may take over what the worker owns.
    lease_until  timestamptz NOT NULL
);

CREATE TABLE saga.instances (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL,
    -- The definition version the saga began with and finishes on.
    version      integer NOT NULL,
    status       text NOT NULL CHECK (status IN ('RUNNING', 'UNDOING', 'COMPLETED', 'UNDONE', 'PARKED')),
    -- Number of events; every append names the seq it expects.
    seq          bigint NOT NULL CHECK (seq > 0),
    -- Raised at every change of owner; every append names it.
    epoch        bigint NOT NULL CHECK (epoch > 0),
    -- The worker that runs it. NULL: it ended, is parked, or waits until due_at without holding anything.
    owner        text,
    -- When a saga without owner wants to run again.
    due_at       timestamptz,
    -- Until when the steps before the pivot may take; NULL when there is none or it no longer applies.
    deadline_at  timestamptz,
    -- Claims since the last durable progress: a saga that kills its process is parked, a long healthy one is not.
    claims       integer NOT NULL DEFAULT 0,
    last_error   text,
    -- The caller's searchable names for it ("order.id" and the like), also attributes of every span.
    attributes   jsonb NOT NULL DEFAULT '{}',
    -- W3C trace context of the call that began it: every later step stands in this trace.
    traceparent  text,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz,
    -- An ended saga is owned by nobody and due never; so is a parked one.
    CONSTRAINT rest_is_free CHECK (status IN ('RUNNING', 'UNDOING') OR (owner IS NULL AND due_at IS NULL)),
    -- A live saga is owned or due, so that no crash can leave one that nobody will look at.
    CONSTRAINT live_is_seen CHECK (status NOT IN ('RUNNING', 'UNDOING') OR owner IS NOT NULL OR due_at IS NOT NULL),
    CONSTRAINT end_has_time CHECK ((status IN ('COMPLETED', 'UNDONE')) = (finished_at IS NOT NULL))
)
-- A saga's row is rewritten a few times in its life: room for that on its page keeps the updates HOT.
WITH (fillfactor = 70);

-- The near window of the timer.
CREATE INDEX instances_due ON saga.instances (due_at) WHERE due_at IS NOT NULL;
-- What to adopt and what to take over.
CREATE INDEX instances_owner ON saga.instances (owner) WHERE owner IS NOT NULL;
-- What an operator looks for. It names no column that every append changes: such an index would turn off HOT updates.
CREATE INDEX instances_parked ON saga.instances (kind) WHERE status = 'PARKED';

CREATE TABLE saga.events (
    saga_id  uuid NOT NULL REFERENCES saga.instances (id) ON DELETE CASCADE,
    seq      bigint NOT NULL,
    -- Under which ownership it was written.
    epoch    bigint NOT NULL,
    -- saga::Event as JSON.
    event    jsonb NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (saga_id, seq)
);

CREATE TABLE saga.signals (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    saga_id   uuid NOT NULL REFERENCES saga.instances (id) ON DELETE CASCADE,
    -- The sender's id for it: the same signal sent twice is one row.
    dedup_key text NOT NULL,
    name      text NOT NULL,
    payload   jsonb NOT NULL,
    sent_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The event that took it in; NULL while it waits for the owner.
    taken_seq bigint,
    UNIQUE (saga_id, dedup_key)
);

-- The poll looks for signals nobody took, not for due times.
CREATE INDEX signals_open ON saga.signals (saga_id) WHERE taken_seq IS NULL;
