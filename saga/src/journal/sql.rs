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

/// The compare-and-set: owner, epoch and seq. Zero rows: read the row again.
pub(super) const APPEND: &str = "
WITH moved AS (
    UPDATE saga.instances
    SET seq = seq + cardinality($5::jsonb[]), status = $6, owner = CASE WHEN $7 THEN NULL ELSE owner END,
        due_at = $8, deadline_at = $9, last_error = $10, claims = 0, updated_at = clock_timestamp(),
        finished_at = CASE WHEN $6 IN ('COMPLETED', 'UNDONE') THEN clock_timestamp() END
    WHERE id = $1 AND owner = $2 AND epoch = $3 AND seq = $4
    RETURNING id
)
INSERT INTO saga.events (saga_id, seq, epoch, event)
SELECT moved.id, $4 + entry.place, $3, entry.event
FROM moved, unnest($5::jsonb[]) WITH ORDINALITY AS entry (event, place)";

/// In the transaction of the append that takes them in.
pub(super) const TAKE_SIGNALS: &str = "
UPDATE saga.signals SET taken_seq = $3 WHERE saga_id = $1 AND id = ANY($2) AND taken_seq IS NULL";

/// Gives a saga up until it is due.
pub(super) const RELEASE: &str = "
UPDATE saga.instances SET owner = NULL, due_at = $5, updated_at = clock_timestamp()
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
UPDATE saga.instances SET owner = NULL, due_at = clock_timestamp(), updated_at = clock_timestamp() WHERE owner = $1";
