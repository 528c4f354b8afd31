//! Every statement of the journal, each named by its constant. All are conditional where it matters; the caller gives
//! zero rows a name. What only operators ask is in `operations/sql.rs`.

use chrono::NaiveDate;

/// A worker of this name takes the place of its predecessor. Sagas that were parked because nobody knew their version
/// are told that somebody does.
pub(super) const REGISTER: &str = "
WITH revived AS (
    INSERT INTO saga.signals (saga_id, dedup_key, name, payload)
    SELECT i.id, 'revived.' || i.epoch, $4, $5 FROM saga.instances i
    WHERE i.status = 'PARKED' AND i.last_error LIKE 'no live worker knows %'
      AND i.kind || '@' || i.version = ANY($3)
    ON CONFLICT (saga_id, dedup_key) DO NOTHING
)
INSERT INTO saga.workers (name, lease_until, knows) VALUES ($1, clock_timestamp() + $2, $3)
ON CONFLICT (name) DO UPDATE
SET id = nextval('saga.worker_ids'), lease_until = excluded.lease_until, knows = excluded.knows, fence = 0
RETURNING id, clock_timestamp() AS now,
    ARRAY(SELECT scope FROM saga.pauses ORDER BY scope, name) AS scopes,
    ARRAY(SELECT name FROM saga.pauses ORDER BY scope, name) AS names,
    (SELECT coalesce(max(id), 0) FROM saga.operator_log WHERE scope = 'CLOCK') AS clock_order";

/// Zero rows: replaced by a newer process of the same name.
pub(super) const HEARTBEAT: &str = "
UPDATE saga.workers SET lease_until = clock_timestamp() + $2 WHERE id = $1
RETURNING id, clock_timestamp() AS now,
    ARRAY(SELECT scope FROM saga.pauses ORDER BY scope, name) AS scopes,
    ARRAY(SELECT name FROM saga.pauses ORDER BY scope, name) AS names,
    (SELECT coalesce(max(id), 0) FROM saga.operator_log WHERE scope = 'CLOCK') AS clock_order";

/// Starts that this worker sent before are refused from now on, should they still arrive.
pub(super) const RAISE_FENCE: &str = "
WITH worker AS (SELECT id FROM saga.workers WHERE id = $1 FOR UPDATE)
UPDATE saga.workers w SET fence = greatest(w.fence, $2) FROM worker WHERE w.id = worker.id";

/// In the caller's transaction.
pub(super) const START_IN: &str = "
INSERT INTO saga.instances (id, kind, version, status, seq, epoch, owner, deadline_at, attributes, started)
VALUES ($1, $2, $3, 'RUNNING', 1, 1, $4, $5, $6::jsonb, $7::json)";

/// Everything of one flush, in one statement: $1 owner, compared so that no index of owners can serve: the only plan is
/// to look each row up by its id.
///
/// Per append $2 id, $3 epoch, $4 seq before, $5 seq after, $6 status, $7 released, $8 due, $9 deadline, $10 error, $11
/// its events as JSON or NULL, $12 the whole history or NULL while it lives. Per start $13 id, $14 kind, $15 version, $16
/// deadline, $17 attributes, $18 first event. Per signal taken $19 id, $20 the event that took it. $21 the fence under
/// which starts are sent. Gives the ids that were written; the others' rows must be read.
macro_rules! flush {
    ($free:literal, $locked:literal) => {
        concat!(
            "
WITH ",
            $free,
            "wanted AS (
    SELECT * FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::boolean[],
                         $8::timestamptz[], $9::timestamptz[], $10::text[], $11::text[], $12::text[])
        AS w (id, epoch, seq_before, seq_after, status, released, due_at, deadline_at, last_error, body, history)
), moved AS (
    UPDATE saga.instances i
    SET seq = w.seq_after, status = w.status, owner = CASE WHEN w.released THEN NULL ELSE i.owner END,
        due_at = w.due_at, deadline_at = w.deadline_at, last_error = w.last_error, claims = 0,
        updated_at = clock_timestamp()
    FROM wanted w
    WHERE w.history IS NULL AND i.id = w.id AND i.owner IS NOT DISTINCT FROM $1 AND i.epoch = w.epoch AND i.seq = w.seq_before",
            $locked,
            "
    RETURNING i.id, w.seq_before + 1 AS seq, w.epoch, w.body
), ended AS (
    DELETE FROM saga.instances i USING wanted w
    WHERE w.history IS NOT NULL AND i.id = w.id AND i.owner IS NOT DISTINCT FROM $1 AND i.epoch = w.epoch AND i.seq = w.seq_before",
            $locked,
            "
    RETURNING i.id, i.kind, i.version, w.status, w.seq_after, w.epoch, w.last_error, i.attributes, i.created_at,
              w.history
), written AS (
    INSERT INTO saga.events (saga_id, seq, epoch, events)
    SELECT id, seq, epoch, body::json FROM moved WHERE body IS NOT NULL
), kept AS (
    INSERT INTO saga.finished (id, finished_on, kind, version, status, seq, epoch, last_error, attributes, created_at,
                               finished_at, history)
    SELECT id, (clock_timestamp() AT TIME ZONE 'UTC')::date, kind, version, status, seq_after, epoch, last_error,
           attributes, created_at, clock_timestamp(), history::json
    FROM ended
), cleared AS (
    DELETE FROM saga.events e USING ended WHERE e.saga_id = ended.id
), silenced AS (
    DELETE FROM saga.signals s USING ended WHERE s.saga_id = ended.id
), begun AS (
    INSERT INTO saga.instances (id, kind, version, status, seq, epoch, owner, deadline_at, attributes, started)
    SELECT id, kind, version, 'RUNNING', 1, 1, $1, deadline_at, attributes::jsonb, started::json
    FROM unnest($13::uuid[], $14::text[], $15::integer[], $16::timestamptz[], $17::text[], $18::text[])
        AS b (id, kind, version, deadline_at, attributes, started)
    WHERE EXISTS (SELECT FROM saga.workers w WHERE w.id = $1 AND w.fence <= $21 FOR KEY SHARE)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), taken AS (
    UPDATE saga.signals s SET taken_seq = t.seq
    FROM unnest($19::bigint[], $20::bigint[]) AS t (id, seq)
    WHERE s.id = t.id AND s.taken_seq IS NULL AND s.saga_id IN (SELECT id FROM moved)
)
SELECT id FROM moved UNION ALL SELECT id FROM ended UNION ALL SELECT id FROM begun"
        )
    };
}

pub(super) const FLUSH: &str = flush!("", "");

/// The same, leaving alone the rows that somebody else holds at the moment.
pub(super) const FLUSH_PAST_LOCKS: &str = flush!(
    "free AS MATERIALIZED (SELECT id FROM saga.instances WHERE id = ANY($2) ORDER BY id FOR UPDATE SKIP LOCKED),
",
    "
      AND i.id = ANY(ARRAY(SELECT id FROM free))"
);

pub(super) const POSITIONS: &str = "
SELECT id, owner, epoch, seq, status, due_at, deadline_at FROM saga.instances WHERE id = ANY($1)
UNION ALL
SELECT id, NULL, epoch, seq, status, NULL, NULL FROM saga.finished WHERE id = ANY($1)";

/// What is due before $1 (NULL: nothing is), of what is known ($3) and not paused ($4). At most $5 of each reason.
pub(super) const SCAN: &str = "
(SELECT d.id, d.due_at FROM unnest($7::text[]) AS k (kind)
 CROSS JOIN LATERAL (
     SELECT i.id, i.due_at FROM saga.instances i
     WHERE i.kind = k.kind AND i.due_at < $1 AND i.kind || '@' || i.version = ANY($3) ORDER BY i.due_at LIMIT $5) d)
UNION ALL
(SELECT i.id, NULL FROM saga.instances i
 WHERE i.owner IS NOT NULL AND i.owner <> ALL(ARRAY(
       SELECT w.id FROM saga.workers w WHERE w.lease_until >= clock_timestamp() OR w.id = $2))
   AND i.kind || '@' || i.version = ANY($3) AND i.kind <> ALL($4) LIMIT $5)
UNION ALL
(SELECT s.saga_id, NULL FROM saga.signals s JOIN saga.instances i ON i.id = s.saga_id
 WHERE s.taken_seq IS NULL AND (i.owner IS NULL OR i.owner = $2) AND (i.status <> 'PARKED' OR s.name = $6)
   AND i.kind || '@' || i.version = ANY($3) AND i.kind <> ALL($4) LIMIT $5)";

/// What this worker $1 owns, held or not; at most $2. Not what was touched within two seconds: it may be between its claim,
/// or its start in a caller's transaction, and the task that drives it.
pub(super) const FORGOTTEN: &str = "
SELECT id, NULL::timestamptz AS due_at FROM saga.instances
WHERE owner = $1 AND updated_at < clock_timestamp() - interval '2 seconds' LIMIT $2";

/// Takes what nobody living owns and what there is reason to run: left behind, due by $3, or signalled. The epoch rises,
/// so a former owner's appends find zero rows. $4 known, $5 paused kinds, $6 the operators' signal.
pub(super) const CLAIM: &str = "
WITH free AS (
    SELECT i.id, i.owner FROM saga.instances i
    WHERE i.id = ANY($2) AND i.kind || '@' || i.version = ANY($4) AND i.kind <> ALL($5)
      AND (CASE
           WHEN i.owner = $1 THEN true
           WHEN i.owner IS NOT NULL THEN NOT EXISTS (
               SELECT FROM saga.workers w WHERE w.id = i.owner AND w.lease_until >= clock_timestamp())
           WHEN i.due_at <= $3 THEN true
           ELSE EXISTS (
               SELECT FROM saga.signals s
               WHERE s.saga_id = i.id AND s.taken_seq IS NULL AND (i.status <> 'PARKED' OR s.name = $6))
           END)
    ORDER BY i.id FOR UPDATE SKIP LOCKED
)
UPDATE saga.instances i
SET owner = $1, epoch = i.epoch + 1, claims = CASE WHEN i.status = 'PARKED' THEN 1 ELSE i.claims + 1 END,
    status = CASE WHEN i.status = 'PARKED' THEN 'RUNNING' ELSE i.status END, due_at = NULL,
    updated_at = clock_timestamp()
FROM free WHERE i.id = free.id
RETURNING i.id, i.kind, i.version, i.epoch, i.seq, i.claims, i.started::text AS started,
          free.owner IS NOT NULL AS interrupted";

pub(super) const EVENTS: &str = "
SELECT saga_id, seq, events::text AS events FROM saga.events WHERE saga_id = ANY($1) ORDER BY saga_id, seq";

/// Parks a saga that cannot be read or written: no event, since nothing can be appended to what cannot be read. Signals
/// of name $5, the operators' orders, are closed unheard: else they would have it claimed again at once, and for ever.
pub(super) const QUARANTINE: &str = "
WITH parked AS (
    UPDATE saga.instances
    SET status = 'PARKED', owner = NULL, due_at = NULL, last_error = $4, updated_at = clock_timestamp()
    WHERE id = $1 AND owner = $2 AND epoch = $3
    RETURNING id
)
UPDATE saga.signals s SET taken_seq = 0 FROM parked
WHERE s.saga_id = parked.id AND s.taken_seq IS NULL AND s.name = $5";

/// Once per key; says whether the saga can still take it in. The lock keeps the saga from ending in between.
pub(super) const SEND: &str = "
WITH live AS (
    SELECT id FROM saga.instances WHERE id = $1 FOR KEY SHARE
), known AS (
    SELECT EXISTS (SELECT FROM saga.signals WHERE saga_id = $1 AND dedup_key = $2) AS stored,
           (SELECT count(*) FROM saga.signals WHERE saga_id = $1 AND (name = $6) = ($3 = $6)) AS number
), sent AS (
    INSERT INTO saga.signals (saga_id, dedup_key, name, payload)
    SELECT live.id, $2, $3, $4 FROM live, known WHERE known.number < $5 AND NOT known.stored
    ON CONFLICT (saga_id, dedup_key) DO NOTHING
)
SELECT CASE WHEN NOT EXISTS (SELECT FROM live) THEN 'ENDED'
            WHEN known.stored OR known.number < $5 THEN 'STORED' ELSE 'FULL' END
FROM known";

/// At most 256 of a saga, operators' ($2) first and then oldest first: they fit into memory whatever was sent, and the scan
/// finds the rest. A parked saga hears operators only, so what it leaves lying must not hide them.
pub(super) const OPEN_SIGNALS: &str = "
SELECT s.saga_id, s.id, s.name, s.payload
FROM unnest($1::uuid[]) AS a (id)
CROSS JOIN LATERAL (
    SELECT saga_id, id, name, payload FROM saga.signals
    WHERE saga_id = a.id AND taken_seq IS NULL ORDER BY name <> $2, id LIMIT 256) s
ORDER BY s.saga_id, s.id";

/// Signals that were stored while their saga ended: nobody will ever take them in.
pub(super) const DROP_ORPHANS: &str = "
DELETE FROM saga.signals s
WHERE s.taken_seq IS NULL AND s.sent_at < clock_timestamp() - interval '1 minute'
  AND NOT EXISTS (SELECT FROM saga.instances i WHERE i.id = s.saga_id)";

/// On which [`HINT`] is heard.
pub(super) const CHANNEL: &str = "holdfast_saga";

pub(super) const HINT: &str = "SELECT pg_notify('holdfast_saga', $1)";

/// Wakes what would sleep past its deadline. By less than five seconds nothing is lost, here and in the next: that is the
/// time that things take.
pub(super) const MEND_OVERSLEEPING: &str = "
UPDATE saga.instances SET due_at = deadline_at
WHERE owner IS NULL AND due_at > deadline_at + interval '5 seconds' AND status <> 'PARKED'";

/// What should have been taken long before $1, though it is known to live workers and not paused.
pub(super) const COUNT_OVERDUE: &str = "
SELECT count(*) FROM saga.instances i
WHERE i.due_at < $1 - interval '5 seconds'
  AND i.kind <> ALL(ARRAY(SELECT name FROM saga.pauses WHERE scope = 'KIND'))
  AND i.kind || '@' || i.version = ANY(ARRAY(
      SELECT unnest(knows) FROM saga.workers WHERE lease_until >= clock_timestamp()))";

/// Parks what waits for a version that no live worker has had for a minute: workers that are replaced one after another
/// leave no longer gap, and the worker $2 that asks is alive whatever its lease says. [`REGISTER`] and [`REVIVE_KNOWN`] know
/// the reason by its first words.
pub(super) const PARK_UNKNOWN: &str = "
UPDATE saga.instances i
SET status = 'PARKED', owner = NULL, due_at = NULL, updated_at = clock_timestamp(), epoch = epoch + 1,
    last_error = 'no live worker knows ' || i.kind || ' of version ' || i.version
WHERE (i.due_at < $1 - interval '1 minute'
       OR (i.owner IS NOT NULL AND i.updated_at < $1 - interval '1 minute' AND NOT EXISTS (
           SELECT FROM saga.workers w
           WHERE w.id = i.owner AND (w.id = $2 OR w.lease_until >= clock_timestamp() - interval '1 minute'))))
  AND i.kind || '@' || i.version <> ALL(ARRAY(
      SELECT unnest(knows) FROM saga.workers WHERE id = $2 OR lease_until >= clock_timestamp() - interval '1 minute'))";

/// Tells sagas that were parked so, and whose version some worker has after all, that they can go on.
pub(super) const REVIVE_KNOWN: &str = "
INSERT INTO saga.signals (saga_id, dedup_key, name, payload)
SELECT i.id, 'revived.' || i.epoch, $2, $3 FROM saga.instances i
WHERE i.status = 'PARKED' AND i.last_error LIKE 'no live worker knows %'
  AND i.kind || '@' || i.version = ANY(ARRAY(
      SELECT unnest(knows) FROM saga.workers WHERE id = $1 OR lease_until >= clock_timestamp()))
ON CONFLICT (saga_id, dedup_key) DO NOTHING";

/// Workers that ended an hour ago, so that an operator may still see them, and left nothing behind.
pub(super) const FORGET_WORKERS: &str = "
DELETE FROM saga.workers w
WHERE w.lease_until < clock_timestamp() - interval '1 hour'
  AND NOT EXISTS (SELECT FROM saga.instances i WHERE i.owner = w.id)";

pub(super) const TODAY: &str = "SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date";

/// A partition of what ends from one day until the next, with what ended on that day already. Such statements take no
/// parameters; the name is ours. Whoever reads for long makes it give up: it is tried again at the next look.
pub(super) fn make_partition(name: &str, from: NaiveDate, until: NaiveDate) -> String {
    format!(
        "BEGIN; SET LOCAL lock_timeout = '100ms';
         CREATE TABLE saga.{name} (LIKE saga.finished INCLUDING ALL);
         WITH moved AS (DELETE FROM saga.finished_rest WHERE finished_on >= '{from}' AND finished_on < '{until}' RETURNING *)
         INSERT INTO saga.{name} SELECT * FROM moved;
         ALTER TABLE saga.finished ATTACH PARTITION saga.{name} FOR VALUES FROM ('{from}') TO ('{until}');
         COMMIT;"
    )
}

pub(super) fn drop_partition(name: &str) -> String {
    format!("BEGIN; SET LOCAL lock_timeout = '100ms'; DROP TABLE IF EXISTS saga.{name}; COMMIT;")
}

/// What ended before $1 on a day that had no partition.
pub(super) const DROP_REST: &str = "DELETE FROM saga.finished_rest WHERE finished_on < $1";

/// The day partitions there are, oldest first.
pub(super) const PARTITIONS: &str = "
SELECT c.relname::text FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid
WHERE h.inhparent = 'saga.finished'::regclass AND c.relname ~ '^finished_[0-9]{8}$' ORDER BY 1";

/// An orderly end: everything owned is due at once for whoever comes.
pub(super) const RESIGN: &str = "
WITH resigned AS (DELETE FROM saga.workers WHERE id = $1)
UPDATE saga.instances SET owner = NULL, due_at = clock_timestamp(), claims = 0, updated_at = clock_timestamp()
WHERE owner = $1";

/// In a transaction that leaves locked rows alone: the caller's rows must not make it wait long either.
pub(super) const SHORT_PATIENCE: &str = "SET LOCAL lock_timeout = '10ms'";

/// Fails in a transaction that has failed before.
pub(super) const STILL_THERE: &str = "SELECT 1";
