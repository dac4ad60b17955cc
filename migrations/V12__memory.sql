-- The memory of what was stored long ago. Claims are made in one half of their table, which is an
-- index of random keys, and small. When it is large enough, the halves change places, and a worker
-- copies the claims of what is stored from the other half into a segment, which holds nothing but
-- sorted keys, carries the few others over, and empties that half as a whole. Small segments are
-- merged into larger ones. A segment is written once, key after key, and never changed: when it has
-- been merged into another, its table is emptied, too. So nothing is deleted row by row. The
-- protocol is in gateway/src/acceptance/README.md, the worker's part of it in worker/src/memory.
--
-- A key is the first half of a claim's. What is remembered is looked up in every segment, so each
-- row carries a Bloom filter: of a segment that does not know a key, few keys are read.

CREATE TABLE memory (
    segment      smallint NOT NULL,
    workspace_id uuid NOT NULL,
    first_key    uuid NOT NULL,
    filter       bytea NOT NULL,
    keys         bytea NOT NULL,
    CONSTRAINT filter_fits_keys
        CHECK (length(filter) * 8 = length(keys) AND length(keys) BETWEEN 16 AND 15360)
) PARTITION BY LIST (segment);
COMMENT ON TABLE memory IS
    'Keys of what was stored, which are no longer claims, a few hundred a row';
COMMENT ON COLUMN memory.segment IS 'The segment; each has a table of its own';
COMMENT ON COLUMN memory.first_key IS 'The first of the keys';
COMMENT ON COLUMN memory.filter IS
    'Bloom filter of 16 bits a key; a key''s bits are its last two pairs of bytes, each modulo the '
    'size';
COMMENT ON COLUMN memory.keys IS 'Keys of 16 bytes each, in order';

CREATE TABLE memory_segments (
    segment         smallint PRIMARY KEY,
    state           text NOT NULL DEFAULT 'empty' CHECK (state IN ('empty', 'copying', 'copied',
        'ready', 'merging', 'retired')),
    source          text UNIQUE CHECK (source IN ('deliveries', 'submissions')),
    merged_into     smallint,
    next_workspace  uuid,
    next_key        uuid,
    keys            bigint NOT NULL DEFAULT 0,
    version         bigint NOT NULL DEFAULT 0,
    changed_at      timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE memory_segments IS 'The segments of the memory';
COMMENT ON COLUMN memory_segments.segment IS 'Number of the table';
COMMENT ON COLUMN memory_segments.state IS
    'copying and merging: being written, not yet looked at; copied: its claims are still there; '
    'ready; retired: replaced, to be emptied';
COMMENT ON COLUMN memory_segments.source IS
    'The claims that are moved into it, while they are; one move of each at a time';
COMMENT ON COLUMN memory_segments.merged_into IS 'The segment that replaces it when that is ready';
COMMENT ON COLUMN memory_segments.next_workspace IS
    'Where writing goes on, null at the start: the workspace';
COMMENT ON COLUMN memory_segments.next_key IS 'The same: the key in it';
COMMENT ON COLUMN memory_segments.keys IS
    'Number of keys that were written, those of workspaces that were deleted since among them';
COMMENT ON COLUMN memory_segments.version IS
    'Counts what was written: a mover that has slept since it read must not write';
COMMENT ON COLUMN memory_segments.changed_at IS 'When its state changed, by the database''s clock';
-- What a mover writes at each step stays beside an old snapshot; a look-up need not read that.
CREATE INDEX memory_segments_asked ON memory_segments (segment)
    WHERE state IN ('copied', 'ready');

-- Nothing is deleted from a segment but with a workspace, so vacuum would only rewrite it. Few
-- entries a page of the index, because a look-up reads those before the one that it wants.
DO $$
BEGIN
    FOR number IN 1..10 LOOP
        EXECUTE format('CREATE TABLE memory_%1$s PARTITION OF memory FOR VALUES IN (%1$s)
            WITH (autovacuum_enabled = false)', number);
        EXECUTE format('ALTER TABLE memory_%s ALTER COLUMN filter SET STORAGE PLAIN,
            ALTER COLUMN keys SET STORAGE EXTERNAL', number);
        EXECUTE format('CREATE UNIQUE INDEX memory_%1$s_by_key
            ON memory_%1$s (workspace_id, first_key) WITH (fillfactor = 10)', number);
        INSERT INTO memory_segments (segment) VALUES (number);
    END LOOP;
END
$$;

-- Reads with the snapshot of the statement that calls it.

CREATE FUNCTION remembered(workspaces uuid[], key_highs uuid[])
    RETURNS SETOF uuid LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT
    SET enable_seqscan = off AS $$
DECLARE
    asked smallint;
BEGIN
    FOR asked IN SELECT s.segment FROM memory_segments s
        WHERE s.state IN ('copied', 'ready') LOOP
        RETURN QUERY
        SELECT n.key_high
        FROM (SELECT u.workspace_id, u.key_high, u.bytes,
                  get_byte(u.bytes, 12) << 8 | get_byte(u.bytes, 13) AS one,
                  get_byte(u.bytes, 14) << 8 | get_byte(u.bytes, 15) AS other
              FROM (SELECT w.workspace_id, w.key_high, uuid_send(w.key_high) AS bytes
                    FROM unnest(workspaces, key_highs) AS w (workspace_id, key_high) OFFSET 0) AS u
              OFFSET 0) AS n
        WHERE (SELECT CASE
                   WHEN get_bit(m.filter, n.one % (8 * length(m.filter))) = 1
                       AND get_bit(m.filter, n.other % (8 * length(m.filter))) = 1
                   THEN position(n.bytes IN m.keys) > 0 END
               FROM memory m
               WHERE m.segment = asked AND m.workspace_id = n.workspace_id
                   AND m.first_key <= n.key_high
               ORDER BY m.first_key DESC LIMIT 1);
    END LOOP;
END
$$;
COMMENT ON FUNCTION remembered IS 'Those of the keys that the memory holds';

CREATE FUNCTION claims_in(half smallint) RETURNS regclass
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
SELECT ('claims_' || half)::regclass
$$;
COMMENT ON FUNCTION claims_in IS 'The table of a half';

CREATE FUNCTION has_claims(half smallint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    found boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', claims_in(half)) INTO found;
    RETURN found;
END
$$;
COMMENT ON FUNCTION has_claims IS 'Whether there are claims in a half';

CREATE FUNCTION change_halves(claimed text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    halves claim_halves;
BEGIN
    SELECT * INTO halves FROM claim_halves WHERE source = claimed;
    IF has_claims(halves.other) OR NOT has_claims(halves.filled)
        OR EXISTS (SELECT FROM memory_segments WHERE source = claimed) THEN
        RETURN false;
    END IF;
    PERFORM await_claims();
    UPDATE claim_halves
    SET filled = other, other = filled, filled_since = clock_timestamp(), carried = 0
    WHERE source = claimed AND filled_since = halves.filled_since;
    RETURN FOUND;
EXCEPTION WHEN lock_not_available THEN
    -- All other claims wait while it waits for one that is stuck.
    RETURN false;
END
$$;
COMMENT ON FUNCTION change_halves IS
    'From now on, claims are made in the other half; false if that is not empty, if there are no '
    'claims, and if those that are under way take too long: then this is to be tried again';

CREATE FUNCTION begin_segment(moved text, merged smallint[]) RETURNS smallint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    begun smallint;
    left_over bigint;
BEGIN
    PERFORM FROM memory_segments ORDER BY segment FOR UPDATE;
    SELECT min(segment), count(*) INTO begun, left_over FROM memory_segments
    WHERE state = 'empty';
    -- Moves leave segments for merges, which empty others.
    IF left_over < (CASE WHEN moved IS NULL THEN 1 ELSE 3 END)
        OR EXISTS (SELECT FROM memory_segments WHERE source = moved)
        OR (SELECT count(*) FROM memory_segments WHERE segment = ANY (merged) AND state = 'ready'
            AND merged_into IS NULL) <> cardinality(merged) THEN
        RETURN NULL;
    END IF;
    UPDATE memory_segments SET merged_into = begun WHERE segment = ANY (merged);
    UPDATE memory_segments SET state = CASE WHEN moved IS NULL THEN 'merging' ELSE 'copying' END,
        source = moved, version = version + 1, changed_at = clock_timestamp()
    WHERE segment = begun;
    RETURN begun;
END
$$;
COMMENT ON FUNCTION begin_segment IS
    'Takes an empty segment to move claims into (deliveries or submissions), or to merge others '
    'into; null if too few are empty, or somebody else has begun';

CREATE FUNCTION extend_segment(extended smallint, read_version bigint,
    workspaces uuid[], first_keys uuid[], filters bytea[], lists bytea[],
    carried_workspaces uuid[], carried_keys uuid[], to_workspace uuid, to_key uuid)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off AS $$
DECLARE
    current memory_segments;
    halves claim_halves;
    written bigint := 0;
    more bigint := 0;
BEGIN
    -- What a crash undoes is done again; the log has it before what comes later.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM memory_segments ORDER BY segment FOR UPDATE;
    SELECT * INTO current FROM memory_segments
    WHERE segment = extended AND state IN ('copying', 'merging') AND version = read_version;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Of a workspace that was deleted meanwhile, nothing is kept.
    INSERT INTO memory (segment, workspace_id, first_key, filter, keys)
    SELECT extended, n.workspace_id, n.first_key, n.filter, n.keys
    FROM unnest(workspaces, first_keys, filters, lists)
         AS n (workspace_id, first_key, filter, keys)
    WHERE EXISTS (SELECT FROM workspaces w WHERE w.workspace_id = n.workspace_id);
    SELECT coalesce(sum(length(list) / 16), 0) INTO written FROM unnest(lists) AS list;
    IF current.source IS NOT NULL THEN
        SELECT * INTO halves FROM claim_halves WHERE source = current.source;
        -- A claim sees them in the one half or in the other. Payloads are no longer compared.
        WITH carried AS (
            DELETE FROM claims c
            USING unnest(carried_workspaces, carried_keys) AS n (workspace_id, key_high)
            WHERE c.half = halves.other AND c.workspace_id = n.workspace_id
                AND c.key_high = n.key_high
            RETURNING c.*
        )
        INSERT INTO claims
            (batch_id, workspace_id, key_high, key_low, claim_id, half, release_ids)
        SELECT batch_id, workspace_id, key_high, key_low, claim_id, halves.filled, release_ids
        FROM carried;
        GET DIAGNOSTICS more = ROW_COUNT;
        UPDATE claim_halves SET carried = carried + more
        WHERE source = current.source AND more > 0;
    END IF;
    UPDATE memory_segments SET next_workspace = to_workspace, next_key = to_key,
        keys = keys + written, version = version + 1,
        state = CASE WHEN to_workspace IS NOT NULL THEN state WHEN keys + written = 0 THEN 'empty'
            WHEN state = 'copying' THEN 'copied' ELSE 'ready' END,
        source = CASE WHEN to_workspace IS NOT NULL OR keys + written > 0 THEN source END,
        changed_at = CASE WHEN to_workspace IS NULL THEN clock_timestamp() ELSE changed_at END
    WHERE segment = extended;
    IF to_workspace IS NULL THEN
        UPDATE memory_segments SET state = 'retired', merged_into = NULL,
            changed_at = clock_timestamp()
        WHERE merged_into = extended;
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION extend_segment IS
    'Writes rows that follow what was written before, and carries claims over into the half that '
    'is filled; null as to_workspace ends the segment, which replaces those that were merged into '
    'it; false if it was written since that version';

-- TRUNCATE shows an empty table to older snapshots, too. No claim has one, because all that began
-- before are awaited. A dump has one, and locks its tables a moment later: nothing is emptied for a
-- while, while the table is locked, or while a transaction is seen that began before. (Those of
-- other logins are seen if the functions' owner may see them.)

CREATE FUNCTION may_be_needed(since timestamptz, seconds double precision) RETURNS boolean
LANGUAGE sql
BEGIN ATOMIC
    SELECT since > clock_timestamp() - make_interval(secs => seconds) OR EXISTS (
        SELECT FROM pg_stat_activity WHERE datname = current_database()
            AND backend_type = 'client backend' AND backend_xmin IS NOT NULL
            AND xact_start <= since);
END;
COMMENT ON FUNCTION may_be_needed IS
    'Whether what was replaced at a time may be needed: whether that was less than so many seconds '
    'ago, or a transaction is seen that began before';

CREATE FUNCTION empty_half(copied smallint, seconds double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    current memory_segments;
    moved regclass;
BEGIN
    SELECT * INTO current FROM memory_segments WHERE segment = copied AND state = 'copied'
    FOR UPDATE;
    IF NOT FOUND OR may_be_needed(current.changed_at, seconds) THEN
        RETURN false;
    END IF;
    SELECT claims_in(other) INTO moved FROM claim_halves WHERE source = current.source;
    PERFORM await_claims();
    EXECUTE format('TRUNCATE %s', moved);
    UPDATE memory_segments SET state = 'ready', source = NULL, changed_at = clock_timestamp()
    WHERE segment = copied;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;
COMMENT ON FUNCTION empty_half IS
    'Empties the half whose claims were copied into a segment so many seconds ago, or carried '
    'over, unless somebody is still reading who may not see that; whether it did';

CREATE FUNCTION empty_segment(emptied smallint, seconds double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    current memory_segments;
BEGIN
    SELECT * INTO current FROM memory_segments WHERE segment = emptied AND state = 'retired'
    FOR UPDATE;
    IF NOT FOUND OR may_be_needed(current.changed_at, seconds) THEN
        RETURN false;
    END IF;
    PERFORM await_claims();
    EXECUTE format('TRUNCATE memory_%s', emptied);
    UPDATE memory_segments SET state = 'empty', keys = 0, next_workspace = NULL, next_key = NULL,
        changed_at = clock_timestamp()
    WHERE segment = emptied;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;
COMMENT ON FUNCTION empty_segment IS
    'Empties a segment that was replaced so many seconds ago, unless somebody who may have seen it '
    'in use is still reading; whether it did';

CREATE FUNCTION about_rows(counted regclass) RETURNS bigint LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT greatest(reltuples, pg_stat_get_live_tuples(oid), 0)::bigint FROM pg_class
    WHERE oid = counted;
END;
COMMENT ON FUNCTION about_rows IS 'Rows of a table, as the server''s statistics know them';

CREATE VIEW claim_sizes AS
SELECT source, about_rows(claims_in(filled)) AS claims,
    about_rows(claims_in(other)) AS other_claims, has_claims(other) AS has_other, carried,
    extract(epoch FROM clock_timestamp() - filled_since)::double precision AS seconds
FROM claim_halves;
COMMENT ON VIEW claim_sizes IS
    'About how many claims the half has that is filled, for how many seconds it has been, and how '
    'many the other half has';

CREATE VIEW memory_size AS
SELECT coalesce(sum(keys) FILTER (WHERE state IN ('copied', 'ready')), 0)::bigint AS keys,
    count(*) FILTER (WHERE state IN ('copied', 'ready')) AS segments,
    (SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits
        WHERE inhparent = 'memory'::regclass) AS bytes,
    (SELECT claims + other_claims FROM claim_sizes WHERE source = 'deliveries') AS deliveries,
    (SELECT claims + other_claims FROM claim_sizes WHERE source = 'submissions') AS submissions
FROM memory_segments;
COMMENT ON VIEW memory_size IS
    'What is remembered, its bytes with those of segments that are written or replaced; and the '
    'claims, about, as the server''s statistics know them';

REVOKE EXECUTE ON FUNCTION remembered, has_claims, change_halves, begin_segment, extend_segment,
    empty_half, empty_segment FROM PUBLIC;
GRANT EXECUTE ON FUNCTION remembered TO letterbox_gateway;
GRANT EXECUTE ON FUNCTION has_claims, change_halves, begin_segment, extend_segment, empty_half,
    empty_segment TO letterbox_worker;
GRANT SELECT ON claim_halves, claim_sizes, memory, memory_segments TO letterbox_worker;
GRANT SELECT ON memory_size TO letterbox_worker, letterbox_operator;
