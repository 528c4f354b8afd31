-- The journal: a row per living saga, an append-only table of its events, durable signals to it, one lease row per
-- worker; and what has ended, by the day it ended. Other crates may read these tables; only this crate writes them.
-- There are no foreign keys: one transaction moves a saga with all that is its own, and a check per row would cost more
-- than the row.

CREATE SEQUENCE saga.worker_ids;

CREATE TABLE saga.workers (
    -- One life of a worker: what saga.instances.owner holds. A restarted process gets a new one.
    id           bigint PRIMARY KEY DEFAULT nextval('saga.worker_ids'),
    -- One live worker per name: a restarted process replaces its predecessor, whose sagas are free at once.
    name         text NOT NULL UNIQUE,
    -- Past this instant (database clock) anyone may take over what the worker owns.
    lease_until  timestamptz NOT NULL,
    -- The definitions it has, as "kind@version".
    knows        text[] NOT NULL,
    -- Starts that were sent under a lower number and arrive late are refused, and all of a worker that is gone: their
    -- sagas may have ended meanwhile.
    fence        bigint NOT NULL DEFAULT 0
);

-- What operators stopped for a while: all sagas of a kind, or all calls of a participant.
CREATE TABLE saga.pauses (
    scope   text NOT NULL CHECK (scope IN ('KIND', 'PARTICIPANT')),
    name    text NOT NULL,
    actor   text NOT NULL,
    reason  text NOT NULL,
    since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, name)
);

-- Who ordered what, for ever. What became of an order to one saga is in that saga's journal.
CREATE TABLE saga.operator_log (
    -- In the order of their commits among those of scope CLOCK: a worker compares them.
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The caller's id of the request: asked again, it is one line.
    request_id  text NOT NULL UNIQUE,
    verb        text NOT NULL,
    scope       text NOT NULL CHECK (scope IN ('SAGA', 'KIND', 'PARTICIPANT', 'CLOCK')),
    -- The saga's id, the kind or the participant; empty for the clock.
    name        text NOT NULL,
    actor       text NOT NULL,
    reason      text NOT NULL,
    -- The whole verb as JSON: a request of the same id with another one is refused.
    detail      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Every heartbeat reads the newest of these.
CREATE INDEX operator_log_clock ON saga.operator_log (id) WHERE scope = 'CLOCK';

CREATE TABLE saga.instances (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL,
    -- The definition version the saga began with and finishes on.
    version      integer NOT NULL,
    status       text NOT NULL CHECK (status IN ('RUNNING', 'UNDOING', 'PARKED')),
    -- Number of events; every append names the seq it expects.
    seq          bigint NOT NULL CHECK (seq > 0),
    -- Raised at every change of owner; every append names it.
    epoch        bigint NOT NULL CHECK (epoch > 0),
    -- The worker that runs it. NULL: it is parked, or waits until due_at without holding anything.
    owner        bigint,
    -- When a saga without owner wants to run again.
    due_at       timestamptz,
    -- Until when the steps before the pivot may take; NULL when there is none or it no longer applies.
    deadline_at  timestamptz,
    -- Claims since the last durable progress: a saga that kills its process is parked, a long healthy one is not.
    claims       integer NOT NULL DEFAULT 0,
    last_error   text,
    -- The caller's searchable names for it ("order.id" and the like), also attributes of every span.
    attributes   jsonb NOT NULL,
    -- Its first event.
    started      json NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A parked saga is owned by nobody and due never.
    CONSTRAINT rest_is_free CHECK (status <> 'PARKED' OR (owner IS NULL AND due_at IS NULL)),
    -- A live saga is owned or due, so that no crash can leave one that nobody will look at.
    CONSTRAINT live_is_seen CHECK (status = 'PARKED' OR owner IS NOT NULL OR due_at IS NOT NULL)
)
-- A row is rewritten while its saga runs: room for that on its page keeps those updates HOT. They change no column that
-- an index names; owner and due_at change only when the saga is given up or taken.
WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The near window of the timer, kind by kind: what is paused is not passed over row by row.
CREATE INDEX instances_due ON saga.instances (kind, due_at) WHERE due_at IS NOT NULL;
-- What to adopt and what to take over.
CREATE INDEX instances_owner ON saga.instances (owner) WHERE owner IS NOT NULL;
-- What an operator looks for.
CREATE INDEX instances_parked ON saga.instances (kind) WHERE status = 'PARKED';

-- What one flush recorded of one saga.
CREATE TABLE saga.events (
    saga_id  uuid NOT NULL,
    -- Of the first of these events.
    seq      bigint NOT NULL,
    -- Under which ownership they were written.
    epoch    bigint NOT NULL,
    -- An array of saga::Event.
    events   json NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (saga_id, seq)
)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE saga.signals (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    saga_id    uuid NOT NULL,
    -- The sender's id for it: the same signal sent twice is one row.
    dedup_key  text NOT NULL,
    name       text NOT NULL,
    payload    jsonb NOT NULL,
    sent_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The event that took it in; NULL while it waits for the owner, 0 when its saga could not be continued to hear it.
    taken_seq  bigint,
    UNIQUE (saga_id, dedup_key)
);

-- The poll looks for signals nobody took, not for due times.
CREATE INDEX signals_open ON saga.signals (saga_id, name) WHERE taken_seq IS NULL;

-- Sagas that ended, with their whole journal. Whole days are dropped.
CREATE TABLE saga.finished (
    id           uuid NOT NULL,
    -- The day it ended, UTC.
    finished_on  date NOT NULL,
    kind         text NOT NULL,
    version      integer NOT NULL,
    status       text NOT NULL CHECK (status IN ('COMPLETED', 'UNDONE')),
    seq          bigint NOT NULL,
    epoch        bigint NOT NULL,
    last_error   text,
    attributes   jsonb NOT NULL,
    created_at   timestamptz NOT NULL,
    finished_at  timestamptz NOT NULL,
    -- An array of saga::Event, from Started on.
    history      json NOT NULL,
    PRIMARY KEY (id, finished_on)
) PARTITION BY RANGE (finished_on);

-- Takes what ends on a day whose partition could not be made in time.
CREATE TABLE saga.finished_rest PARTITION OF saga.finished DEFAULT;

-- Every saga, living or not.
CREATE VIEW saga.sagas AS
SELECT id, kind, version, status, seq, epoch, owner, due_at, deadline_at, claims, last_error, attributes, created_at,
       updated_at, NULL::timestamptz AS finished_at
FROM saga.instances
UNION ALL
SELECT id, kind, version, status, seq, epoch, NULL, NULL, NULL, 0, last_error, attributes, created_at,
       finished_at, finished_at
FROM saga.finished;

-- Every event of every saga, one row each.
CREATE VIEW saga.event_list AS
SELECT id AS saga_id, 1::bigint AS seq, started AS event FROM saga.instances
UNION ALL
SELECT b.saga_id, b.seq + e.place - 1, e.event
FROM saga.events b CROSS JOIN LATERAL json_array_elements(b.events) WITH ORDINALITY AS e (event, place)
UNION ALL
SELECT f.id, e.place, e.event
FROM saga.finished f CROSS JOIN LATERAL json_array_elements(f.history) WITH ORDINALITY AS e (event, place);
