-- The memory of what was recorded long ago. Claims are rows of an index while they are recent; a
-- worker moves the recorded ones into segments, which hold nothing but sorted keys, and merges
-- small segments into larger ones. A segment is written once, key after key, and never changed:
-- when it has been merged into another, its table is emptied as a whole. The protocol is in
-- gateway/src/acceptance/README.md, the worker's part of it in worker/src/memory.
--
-- A key is the first half of a claim's. What is remembered is looked up in every segment, so each
-- row carries a Bloom filter: of a segment that does not know a key, few keys are read.

-- The search path of the SECURITY DEFINER functions below.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE memory (
    segment      smallint NOT NULL,
    workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    first_key    uuid NOT NULL,
    filter       bytea NOT NULL,
    keys         bytea NOT NULL
) PARTITION BY LIST (segment);
COMMENT ON TABLE memory IS 'Keys of recorded claims that are no longer claims, a few hundred a row';
COMMENT ON COLUMN memory.segment IS 'The segment; each has a table of its own';
COMMENT ON COLUMN memory.workspace_id IS 'Tenant';
COMMENT ON COLUMN memory.first_key IS 'The first of the keys';
COMMENT ON COLUMN memory.filter IS
    'Bloom filter of 16 bits a key; a key''s bits are its last two pairs of bytes, each modulo the '
    'size';
COMMENT ON COLUMN memory.keys IS 'Keys of 16 bytes each, in order';

CREATE TABLE memory_segments (
    segment         smallint PRIMARY KEY,
    state           text NOT NULL DEFAULT 'empty' CHECK (state IN ('empty', 'copying', 'copied',
        'clearing', 'ready', 'merging', 'retired')),
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
    'clearing: they are being deleted; ready; retired: replaced, to be emptied';
COMMENT ON COLUMN memory_segments.source IS
    'The claims that are moved into it, while they are; one move of each at a time';
COMMENT ON COLUMN memory_segments.merged_into IS 'The segment that replaces it when that is ready';
COMMENT ON COLUMN memory_segments.next_workspace IS
    'Where writing or clearing goes on, null at the start: the workspace';
COMMENT ON COLUMN memory_segments.next_key IS 'The same: the key in it';
COMMENT ON COLUMN memory_segments.keys IS 'Number of keys that were written';
COMMENT ON COLUMN memory_segments.version IS
    'Counts what was written: a mover that has slept since it read must not write';
COMMENT ON COLUMN memory_segments.changed_at IS 'When its state changed, by the database''s clock';

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
        WHERE s.state IN ('copied', 'clearing', 'ready') LOOP
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

-- Whoever makes claims holds this lock from before its snapshot until the claims are committed, so
-- who gets it alone knows that all claims that began before are over, and that later ones see what
-- is committed now.

CREATE FUNCTION join_claiming() RETURNS void LANGUAGE sql AS
    'SELECT pg_advisory_xact_lock_shared(1280263234, 1)';
COMMENT ON FUNCTION join_claiming IS 'Lets what waits for claims to be over wait for this one';
CREATE FUNCTION await_claims() RETURNS void LANGUAGE sql AS
    'SELECT pg_advisory_xact_lock(1280263234, 1)';
COMMENT ON FUNCTION await_claims IS
    'Waits for all claims that are under way; later ones wait until the transaction is over';

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
    to_workspace uuid, to_key uuid)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    written bigint := 0;
BEGIN
    -- What a crash undoes is done again; the log has it before what comes later.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM memory_segments ORDER BY segment FOR UPDATE;
    PERFORM FROM memory_segments WHERE segment = extended AND state IN ('copying', 'merging')
        AND version = read_version;
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
    'Writes rows that follow what was written before; null as to_workspace ends the segment, which '
    'replaces those that were merged into it; false if it was written since that version';

CREATE FUNCTION clear_claims(cleared smallint, most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off
SET lock_timeout = '200ms' AS $$
DECLARE
    found memory_segments;
    last record;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT * INTO found FROM memory_segments WHERE segment = cleared FOR UPDATE;
    IF found.state = 'copied' THEN
        PERFORM await_claims();
        UPDATE memory_segments SET state = 'clearing', next_workspace = NULL, next_key = NULL,
            changed_at = clock_timestamp()
        WHERE segment = cleared;
        RETURN true;
    ELSIF found.state IS DISTINCT FROM 'clearing' THEN
        RETURN false;
    END IF;
    WITH part AS MATERIALIZED (
        -- Concatenated, so that it is read as a whole, once.
        SELECT m.workspace_id, m.first_key, m.keys || ''::bytea AS keys FROM memory m
        WHERE m.segment = cleared AND (m.workspace_id, m.first_key) > (
            coalesce(found.next_workspace, '00000000-0000-0000-0000-000000000000'),
            coalesce(found.next_key, '00000000-0000-0000-0000-000000000000'))
        ORDER BY m.workspace_id, m.first_key LIMIT most
    ), known AS MATERIALIZED (
        SELECT p.workspace_id, encode(substr(p.keys, 16 * place + 1, 16), 'hex')::uuid AS key_high
        FROM part p, generate_series(0, length(p.keys) / 16 - 1) AS place
    ), deliveries AS (
        DELETE FROM webhook_deliveries d USING known k
        WHERE found.source = 'deliveries' AND d.workspace_id = k.workspace_id
            AND d.key_high = k.key_high
    ), submissions AS (
        DELETE FROM form_submissions s USING known k
        WHERE found.source = 'submissions' AND s.workspace_id = k.workspace_id
            AND s.key_high = k.key_high
    )
    SELECT workspace_id, first_key INTO last FROM part
    ORDER BY workspace_id DESC, first_key DESC LIMIT 1;
    IF last IS NULL THEN
        UPDATE memory_segments SET state = 'ready', source = NULL, changed_at = clock_timestamp()
        WHERE segment = cleared;
    ELSE
        UPDATE memory_segments SET next_workspace = last.workspace_id, next_key = last.first_key
        WHERE segment = cleared;
    END IF;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    -- All other claims wait while it waits for one that is stuck.
    RETURN false;
END
$$;
COMMENT ON FUNCTION clear_claims IS
    'Deletes the claims whose keys are in the next `most` rows of a segment, as soon as no claim '
    'is under way that does not see the segment; false if it has none, or to be tried again';

-- TRUNCATE shows an empty table to older snapshots, too. No claim has one, because all that began
-- before the segment was replaced are awaited. A dump has one, and locks its tables a moment later:
-- nothing is emptied for a while, while the table is locked, or while a transaction is seen that
-- began before. (Those of other logins are seen if the functions' owner may see them.)

CREATE FUNCTION empty_segment(emptied smallint, seconds double precision)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
BEGIN
    PERFORM FROM memory_segments WHERE segment = emptied AND state = 'retired'
        AND changed_at <= clock_timestamp() - make_interval(secs => seconds) FOR UPDATE;
    IF NOT FOUND OR EXISTS (
        SELECT FROM pg_stat_activity a, memory_segments s
        WHERE s.segment = emptied AND a.datname = current_database()
            AND a.backend_type = 'client backend' AND a.backend_xmin IS NOT NULL
            AND a.xact_start <= s.changed_at) THEN
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

CREATE VIEW memory_size AS
SELECT coalesce(sum(keys) FILTER (WHERE state IN ('copied', 'clearing', 'ready')), 0)::bigint
        AS keys,
    count(*) FILTER (WHERE state IN ('copied', 'clearing', 'ready')) AS segments,
    (SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits
        WHERE inhparent = 'memory'::regclass) AS bytes,
    (SELECT greatest(reltuples, pg_stat_get_live_tuples(oid), 0)::bigint FROM pg_class
        WHERE oid = 'webhook_deliveries'::regclass) AS deliveries,
    (SELECT greatest(reltuples, pg_stat_get_live_tuples(oid), 0)::bigint FROM pg_class
        WHERE oid = 'form_submissions'::regclass) AS submissions
FROM memory_segments;
COMMENT ON VIEW memory_size IS
    'What is remembered, its bytes with those of segments that are written or replaced; and the '
    'claims, about, as the server''s statistics know them';

REVOKE EXECUTE ON FUNCTION remembered, join_claiming, await_claims, begin_segment, extend_segment,
    clear_claims, empty_segment FROM PUBLIC;
GRANT EXECUTE ON FUNCTION remembered TO letterbox_gateway;
GRANT EXECUTE ON FUNCTION begin_segment, extend_segment, clear_claims, empty_segment
    TO letterbox_worker;
GRANT SELECT ON memory TO letterbox_worker;
GRANT SELECT ON memory_segments TO letterbox_worker;
GRANT SELECT ON memory_size TO letterbox_worker, letterbox_operator;
