//! Every statement of the journal, each named by its constant. All are conditional where it matters; the caller
//! gives zero rows a name.

/// A worker of this name takes the place of its predecessor.
pub(super) const REGISTER: &str = "
INSERT INTO saga.workers (worker, name, lease_until) VALUES ($1, $2, clock_timestamp() + $3)
ON CONFLICT (name) DO UPDATE SET worker = excluded.worker, lease_until = excluded.lease_until
RETURNING clock_timestamp()";

/// Zero rows: replaced by a newer process of the same name.
pub(super) const HEARTBEAT: &str = "
UPDATE saga.workers SET lease_until = clock_timestamp() + $2 WHERE worker = $1 RETURNING clock_timestamp()";

/// In the caller's transaction: the instance and its first event.
pub(super) const START: &str = "
WITH instance AS (
    INSERT INTO saga.instances (id, kind, version, status, seq, epoch, owner, deadline_at, attributes, traceparent)
    VALUES ($1, $2, $3, 'RUNNING', 1, 1, $4, $5, $6, $7) RETURNING id
)
INSERT INTO saga.events (saga_id, seq, epoch, event) SELECT id, 1, 1, $8 FROM instance";

/// The compare-and-set of many appends: owner, epoch and seq. Gives the ids that moved; the others' rows must be read
/// again. $1 owner; per append $2 id, $3 epoch, $4 seq before, $5 seq after, $6 status, $7 released, $8 due, $9 deadline,
/// $10 error; per event $11 id, $12 seq, $13 event.
pub(super) const APPEND: &str = "
WITH wanted AS (
    SELECT * FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::boolean[],
                         $8::timestamptz[], $9::timestamptz[], $10::text[])
        AS w (id, epoch, seq_before, seq_after, status, released, due_at, deadline_at, last_error)
), moved AS (
    UPDATE saga.instances i
    SET seq = w.seq_after, status = w.status, owner = CASE WHEN w.released THEN NULL ELSE i.owner END,
        due_at = w.due_at, deadline_at = w.deadline_at, last_error = w.last_error, claims = 0,
        updated_at = clock_timestamp(),
        finished_at = CASE WHEN w.status IN ('COMPLETED', 'UNDONE') THEN clock_timestamp() END
    FROM wanted w
    WHERE i.id = w.id AND i.owner = $1 AND i.epoch = w.epoch AND i.seq = w.seq_before
    RETURNING i.id, i.epoch
), written AS (
    INSERT INTO saga.events (saga_id, seq, epoch, event)
    SELECT e.id, e.seq, moved.epoch, e.event
    FROM unnest($11::uuid[], $12::bigint[], $13::jsonb[]) AS e (id, seq, event) JOIN moved ON moved.id = e.id
)
SELECT id FROM moved";

/// In the transaction of the appends that take them in: $1 signals, $2 the seq of the event that took each.
pub(super) const TAKE_SIGNALS: &str = "
UPDATE saga.signals s SET taken_seq = t.seq
FROM unnest($1::bigint[], $2::bigint[]) AS t (id, seq) WHERE s.id = t.id AND s.taken_seq IS NULL";

/// Gives a saga up until it is due.
pub(super) const RELEASE: &str = "
UPDATE saga.instances SET owner = NULL, due_at = $5, claims = 0, updated_at = clock_timestamp()
WHERE id = $1 AND owner = $2 AND epoch = $3 AND seq = $4 AND status IN ('RUNNING', 'UNDOING')";

pub(super) const POSITION: &str = "
SELECT owner, epoch, seq, status FROM saga.instances WHERE id = $1";

/// What wants to be looked at: due soon; left by a dead worker; ours but not held; signalled.
pub(super) const SCAN: &str = "
(SELECT id, due_at FROM saga.instances
 WHERE due_at < clock_timestamp() + $1 ORDER BY due_at LIMIT $4)
UNION ALL
(SELECT i.id, NULL FROM saga.instances i LEFT JOIN saga.workers w ON w.worker = i.owner
 WHERE i.owner IS NOT NULL AND i.owner <> $2 AND (w.worker IS NULL OR w.lease_until < clock_timestamp()) LIMIT $4)
UNION ALL
(SELECT id, NULL FROM saga.instances
 WHERE owner = $2 AND updated_at < clock_timestamp() - interval '2 seconds' AND NOT id = ANY($3) LIMIT $4)
UNION ALL
(SELECT s.saga_id, NULL FROM saga.signals s JOIN saga.instances i ON i.id = s.saga_id
 WHERE s.taken_seq IS NULL AND i.status IN ('RUNNING', 'UNDOING') AND (i.owner IS NULL OR i.owner = $2) LIMIT $4)";

/// Takes what nobody living owns. The epoch rises, so a former owner's appends find zero rows.
pub(super) const CLAIM: &str = "
WITH free AS (
    SELECT i.id, i.owner FROM saga.instances i
    WHERE i.id = ANY($2) AND i.status IN ('RUNNING', 'UNDOING')
      AND (i.owner IS NULL OR i.owner = $1 OR NOT EXISTS (
          SELECT FROM saga.workers w WHERE w.worker = i.owner AND w.lease_until >= clock_timestamp()))
    ORDER BY i.id FOR UPDATE SKIP LOCKED
)
UPDATE saga.instances i
SET owner = $1, epoch = i.epoch + 1, claims = i.claims + 1, due_at = NULL, updated_at = clock_timestamp()
FROM free WHERE i.id = free.id
RETURNING i.id, i.kind, i.version, i.epoch, i.seq, i.claims, free.owner IS NOT NULL AS interrupted";

pub(super) const EVENTS: &str = "
SELECT saga_id, seq, event FROM saga.events WHERE saga_id = ANY($1) ORDER BY saga_id, seq";

/// Parks a saga whose events cannot be folded: no event, since nothing can be appended to what cannot be read.
pub(super) const QUARANTINE: &str = "
UPDATE saga.instances
SET status = 'PARKED', owner = NULL, due_at = NULL, last_error = $4, updated_at = clock_timestamp()
WHERE id = $1 AND owner = $2 AND epoch = $3";

/// Once per key; says whether the saga can still take it in.
pub(super) const SEND: &str = "
WITH live AS (
    SELECT id FROM saga.instances WHERE id = $1 AND status NOT IN ('COMPLETED', 'UNDONE')
), sent AS (
    INSERT INTO saga.signals (saga_id, dedup_key, name, payload) SELECT id, $2, $3, $4 FROM live
    ON CONFLICT (saga_id, dedup_key) DO NOTHING
)
SELECT EXISTS (SELECT FROM live)";

pub(super) const OPEN_SIGNALS: &str = "
SELECT id, name, payload FROM saga.signals WHERE saga_id = $1 AND taken_seq IS NULL ORDER BY id LIMIT 256";

/// An orderly end: everything owned is due at once for whoever comes.
pub(super) const RESIGN: &str = "
WITH resigned AS (DELETE FROM saga.workers WHERE worker = $1)
UPDATE saga.instances SET owner = NULL, due_at = clock_timestamp(), claims = 0, updated_at = clock_timestamp()
WHERE owner = $1";
