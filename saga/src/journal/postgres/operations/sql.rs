//! Every statement for operators. Reads are bounded by time and by rows: a search of everything that was ever kept may
//! fail, and must hold up nobody.

/// First in each transaction.
pub(super) const BOUND: &str = "SET LOCAL statement_timeout = '5s'";

/// Everything one answer is made of is of the same moment.
pub(super) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Rows of living and finished sagas under these conditions, newest first, at most $1.
macro_rules! sagas {
    ($live:literal, $finished:literal) => {
        concat!(
            "
WITH found AS (
    (SELECT i.id, i.kind, i.version, i.status, i.seq, i.epoch, i.owner, i.due_at, i.deadline_at, i.claims,
            i.last_error, i.attributes, i.created_at, i.updated_at, NULL::timestamptz AS finished_at,
            i.started AS journal
     FROM saga.instances i WHERE ",
            $live,
            " ORDER BY i.id DESC LIMIT $1)
    UNION ALL
    (SELECT f.id, f.kind, f.version, f.status, f.seq, f.epoch, NULL, NULL, NULL, 0, f.last_error, f.attributes,
            f.created_at, f.finished_at, f.finished_at, f.history
     FROM saga.finished f WHERE ",
            $finished,
            " ORDER BY f.id DESC LIMIT $1)
)
SELECT found.id, found.kind, found.version, found.status, found.seq, found.epoch, w.name AS owner, w.lease_until,
       found.due_at, found.deadline_at, found.claims, found.last_error, found.attributes, found.created_at,
       found.updated_at, found.finished_at,
       CASE WHEN found.finished_at IS NULL THEN found.journal->>'traceparent'
            ELSE found.journal->0->>'traceparent' END AS traceparent
FROM (SELECT * FROM found ORDER BY id DESC LIMIT $1) found
LEFT JOIN saga.workers w ON w.id = found.owner ORDER BY found.id DESC"
        )
    };
}

/// A search: $2 ids before this one, $3 kind, $4 status, $5 and $6 an attribute, $7 started longer ago than this, $8
/// within the last error. NULL: any.
pub(super) const LIST: &str = sagas!(
    "($2::uuid IS NULL OR i.id < $2) AND ($3::text IS NULL OR i.kind = $3)
       AND ($4::text IS NULL OR i.status = $4) AND ($5::text IS NULL OR i.attributes->>$5 = $6::text)
       AND ($7::interval IS NULL OR i.created_at < clock_timestamp() - $7)
       AND ($8::text IS NULL OR strpos(i.last_error, $8) > 0)",
    "($2::uuid IS NULL OR f.id < $2) AND ($3::text IS NULL OR f.kind = $3)
       AND ($4::text IS NULL OR f.status = $4) AND ($5::text IS NULL OR f.attributes->>$5 = $6::text)
       AND ($7::interval IS NULL OR f.created_at < clock_timestamp() - $7)
       AND ($8::text IS NULL OR strpos(f.last_error, $8) > 0)"
);

/// The saga $2.
pub(super) const ONE: &str = sagas!("i.id = $2", "f.id = $2");

/// At most $3 events of saga $1 after seq $2, each as text, whether it can be read or not.
pub(super) const EVENTS: &str = "
SELECT seq, event::text AS event, at FROM (
    SELECT 1::bigint AS seq, started AS event, created_at AS at FROM saga.instances WHERE id = $1
    UNION ALL
    SELECT b.seq + e.place - 1, e.event, b.at
    FROM saga.events b CROSS JOIN LATERAL json_array_elements(
        CASE WHEN json_typeof(b.events) = 'array' THEN b.events ELSE json_build_array(b.events) END
    ) WITH ORDINALITY AS e (event, place)
    WHERE b.saga_id = $1
    UNION ALL
    SELECT e.place, e.event, NULL
    FROM saga.finished f CROSS JOIN LATERAL json_array_elements(
        CASE WHEN json_typeof(f.history) = 'array' THEN f.history ELSE json_build_array(f.history) END
    ) WITH ORDINALITY AS e (event, place)
    WHERE f.id = $1) all_events
WHERE seq > $2 ORDER BY seq LIMIT $3";

/// What a saga's events are read from, besides saga.events.
pub(super) const JOURNAL: &str = "
SELECT started::text AS started, NULL AS history FROM saga.instances WHERE id = $1
UNION ALL
SELECT NULL, history::text FROM saga.finished WHERE id = $1";

/// Names of what it has not taken in yet.
pub(super) const OPEN: &str = "
SELECT name FROM saga.signals WHERE saga_id = $1 AND taken_seq IS NULL ORDER BY id LIMIT 256";

/// Where the order under this key is.
/// One that is open while its saga is gone was stored in the saga's last moment: it will never be taken in.
pub(super) const SIGNAL: &str = "
SELECT s.taken_seq FROM saga.signals s
WHERE s.saga_id = $1 AND s.dedup_key = $2
  AND (s.taken_seq IS NOT NULL OR EXISTS (SELECT FROM saga.instances i WHERE i.id = s.saga_id))";

pub(super) const PAUSES: &str = "
SELECT scope, name, actor, reason, since FROM saga.pauses ORDER BY scope, name LIMIT 1000";

pub(super) const NOW: &str = "SELECT clock_timestamp()";

/// Whether a live worker has the definition $1, as `kind@version`.
pub(super) const IS_KNOWN: &str = "
SELECT EXISTS (SELECT FROM saga.workers WHERE lease_until >= clock_timestamp() AND $1 = ANY(knows))";

/// Orders about more than one saga one after another, so that their ids are in the order of their commits.
pub(super) const ONE_BY_ONE: &str = "LOCK TABLE saga.pauses IN SHARE ROW EXCLUSIVE MODE";

/// Zero rows: the request id was used before.
pub(super) const LOG: &str = "
INSERT INTO saga.operator_log (request_id, verb, scope, name, actor, reason, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (request_id) DO NOTHING";

pub(super) const LOGGED: &str = "
SELECT verb, scope, name, actor, reason, detail FROM saga.operator_log WHERE request_id = $1";

/// What is paused already stays as it is.
pub(super) const PAUSE: &str = "
INSERT INTO saga.pauses (scope, name, actor, reason) VALUES ($1, $2, $3, $4) ON CONFLICT (scope, name) DO NOTHING";

pub(super) const RESUME: &str = "DELETE FROM saga.pauses WHERE scope = $1 AND name = $2";
