-- The ledger: every movement of stock, for ever, and what follows from them.
-- Redis decides; what stands here is what happened. All writes below are made by the appender in one transaction
-- that holds the partition's row, or by a rebuild that raises its generation.

-- One row per partition: where its chain of movements ends. It is the lock and the compare-and-set of the ledger.
create table inventory.partitions (
    partition  integer     primary key,
    -- Raised at every rebuild of Redis; movements of an older generation are void from then on.
    generation bigint      not null check (generation >= 0),
    -- The last movement's number. It goes on across generations.
    seq        bigint      not null check (seq >= 0),
    -- The last movement's nonce: the next movement must name it as its predecessor.
    chain      text        not null,
    -- When the generation was raised, and by which process, so that two rebuilds do not chase each other.
    raised_at  timestamptz not null,
    raised_by  text        not null
);

insert into inventory.partitions (partition, generation, seq, chain, raised_at, raised_by)
values (0, 0, 0, 'genesis', 'epoch', '');

-- One row per movement, with its lines as arrays. Append only.
create table inventory.movements (
    partition      integer     not null references inventory.partitions (partition),
    seq            bigint      not null check (seq > 0),
    generation     bigint      not null,
    -- OPEN begins a generation and moves nothing; it keeps the chain unbroken across a rebuild.
    kind           text        not null
        check (kind in ('OPEN', 'RESERVE', 'CONFIRM', 'RELEASE', 'EXPIRE', 'RECEIVE', 'ADJUST')),
    reservation_id text        check ((kind in ('RESERVE', 'CONFIRM', 'RELEASE', 'EXPIRE')) = (reservation_id is not null)),
    request_id     text        check ((kind in ('RECEIVE', 'ADJUST')) = (request_id is not null)),
    -- The reservation's state before; null where the ledger did not know it.
    from_state     text        check (from_state in ('HELD', 'EXPIRED')),
    -- Units move only where a hold begins or ends, and where stock is received or adjusted (then one line, signed).
    skus           text[]      not null,
    quantities     bigint[]    not null check (cardinality(quantities) = cardinality(skus)),
    -- What the request meant; null for a tombstone of an id that was never reserved.
    fingerprint    text,
    customer_id    text,
    expires_at     timestamptz,
    -- For RECEIVE and ADJUST: why, and received, held and sold right after: the recorded answer.
    reason         text,
    counters       bigint[]    check (cardinality(counters) = 3),
    nonce          text        not null,
    -- The nonce of the movement before.
    prev           text        not null,
    -- When the script decided, by this database's clock.
    at             timestamptz not null,
    -- seq is unique over generations: the chain has one movement at each place.
    primary key (partition, seq)
);

-- A repeated ReceiveStock or AdjustStock that Redis no longer remembers is answered from here.
create unique index movements_request on inventory.movements (request_id) where request_id is not null;
-- A rebuild loads the changes young enough for Redis to remember.
create index movements_changes_at on inventory.movements (partition, at) where request_id is not null;

-- One row per reservation id that ever held something or was marked so that it never can.
create table inventory.reservations (
    id          text        primary key,
    partition   integer     not null references inventory.partitions (partition),
    state       text        not null check (state in ('HELD', 'CONFIRMED', 'RELEASED', 'EXPIRED')),
    fingerprint text,
    customer_id text,
    -- The movement that made the row; its lines are the reservation's lines.
    opened_seq  bigint      not null,
    -- The movement that made the present state.
    generation  bigint      not null,
    seq         bigint      not null check (seq >= opened_seq),
    expires_at  timestamptz,
    changed_at  timestamptz not null,
    foreign key (partition, opened_seq) references inventory.movements (partition, seq),
    -- Only something that can lapse can be held.
    check (state <> 'HELD' or expires_at is not null)
);

-- What a rebuild loads: open holds, and outcomes young enough for Redis to remember.
create index reservations_held on inventory.reservations (partition, id) where state = 'HELD';
create index reservations_ended on inventory.reservations (partition, changed_at, id) where state <> 'HELD';

-- The sum of the movements per SKU. available = received - held - sold.
create table inventory.balances (
    partition integer not null references inventory.partitions (partition),
    -- Byte order, so that pages come in the order the API promises.
    sku       text    collate "C" primary key,
    received  bigint  not null,
    held      bigint  not null check (held >= 0),
    sold      bigint  not null check (sold >= 0),
    -- The last movement that changed the counters.
    seq       bigint  not null,
    -- Never oversold: available >= 0, whatever was decided elsewhere.
    constraint balances_never_oversold check (received >= held + sold)
) with (fillfactor = 70);
