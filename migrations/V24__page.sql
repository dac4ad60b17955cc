-- Why: a visitor could not see whose form it is, and a link could be ended only by hand. A release says how its page looks
-- and whether its submissions need a proof of work; a link closes at a time or after so many answers, by itself.
--
-- A closed link is alive for the keys that it knows: who sends again what was sent in time is answered as before. For
-- everybody else it is dead. Gateways of before this file go on; they still show a closed form, and answer 503 to what is
-- submitted to it.

-- Where functions with rights of their own search.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE releases
    ADD COLUMN page text,
    ADD COLUMN least_seconds smallint CHECK (least_seconds BETWEEN 0 AND 60);
COMMENT ON COLUMN releases.page IS 'JSON text of how the form''s page looks; null where nothing is said';
COMMENT ON COLUMN releases.least_seconds IS 'Submissions need a proof of work, and this many seconds since the form was read; null where they need neither';

ALTER TABLE form_links
    ADD COLUMN closes_at timestamptz,
    ADD COLUMN max_answers integer CHECK (max_answers > 0),
    ADD COLUMN answers integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT answers_are_bounded CHECK (answers <= max_answers),
    ADD CONSTRAINT closes_later CHECK (closes_at > created_at);
CREATE INDEX form_links_bounded ON form_links (token_sha256) WHERE max_answers IS NOT NULL AND ended_at IS NULL;
COMMENT ON COLUMN form_links.closes_at IS 'From when on it takes nothing new, by the database''s clock; null is never';
COMMENT ON COLUMN form_links.max_answers IS 'After how many submissions it takes nothing new; null is without bound';
COMMENT ON COLUMN form_links.answers IS 'Submissions claimed through it; counted where there is a bound';

CREATE OR REPLACE FUNCTION form_link_ends() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    counts boolean := NEW.ended_at IS NULL AND NEW.answers > OLD.answers;
    ends boolean := NEW.ended_at IS NOT NULL AND NEW.answers = OLD.answers;
BEGIN
    IF OLD.ended_at IS NOT NULL OR NOT (counts OR ends)
        OR (NEW.workspace_id, NEW.form_link_id, NEW.workflow_id, NEW.release_id, NEW.token_sha256, NEW.owner_may_run_since,
            NEW.closes_at, NEW.max_answers)
            IS DISTINCT FROM (OLD.workspace_id, OLD.form_link_id, OLD.workflow_id, OLD.release_id, OLD.token_sha256,
                OLD.owner_may_run_since, OLD.closes_at, OLD.max_answers) THEN
        RAISE EXCEPTION 'a form link only ever ends, once' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION form_link_ends IS 'A link never becomes live again, and its answers are only counted up';

-- The time is that of the statement: a clock that runs would keep the view from being looked into by its keys.
CREATE OR REPLACE VIEW live_form_links AS
SELECT l.token_sha256, l.workspace_id, l.workflow_id, l.form_link_id, l.release_id, r.form,
    (l.closes_at IS NULL OR l.closes_at > statement_timestamp())
        AND (l.max_answers IS NULL OR l.answers < l.max_answers) AS is_open,
    r.page, r.least_seconds
FROM form_links l
JOIN workflows w ON w.workspace_id = l.workspace_id AND w.workflow_id = l.workflow_id
    AND w.state = 'deployed' AND w.live_release_id = l.release_id
JOIN members m ON m.workspace_id = w.workspace_id AND m.user_id = w.owner_id AND m.may_run
    AND m.may_run_since = l.owner_may_run_since
JOIN releases r ON r.workspace_id = l.workspace_id AND r.workflow_id = l.workflow_id AND r.release_id = l.release_id
WHERE l.ended_at IS NULL;
COMMENT ON COLUMN live_form_links.is_open IS 'Whether it takes what is new; otherwise it answers those who send again what it took';

-- Who claims through a link with a bound holds the link's row, and sees what was claimed before.
CREATE OR REPLACE FUNCTION claim_submissions(workspaces uuid[], highs uuid[], lows uuid[], doors bytea[], hashes bytea[],
    batches bigint[], ids uuid[], lease_seconds double precision, closing bigint[], payloads bigint[] DEFAULT NULL)
RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM form_links b
    WHERE b.token_sha256 = ANY (doors) AND b.max_answers IS NOT NULL AND b.ended_at IS NULL AND b.answers < b.max_answers
      AND (b.closes_at IS NULL OR b.closes_at > clock_timestamp())
    ORDER BY b.workspace_id, b.form_link_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY
        WITH closed AS (
            DELETE FROM open_batches o WHERE o.batch_id = ANY (closing)
        ), claimed AS (
            INSERT INTO form_submissions AS s
                (workspace_id, key_high, key_low, batch_id, submission_id, release_ids, payload_hash)
            SELECT n.workspace_id, n.key_high, n.key_low, n.batch_id, n.id, ARRAY[l.release_id], n.payload_hash
            FROM unnest(workspaces, highs, lows, doors, hashes, batches, ids, payloads)
                 AS n (workspace_id, key_high, key_low, token_sha256, sha256, batch_id, id, payload_hash)
            JOIN live_form_links l ON l.token_sha256 = n.token_sha256 AND l.workspace_id = n.workspace_id
            WHERE l.is_open AND is_key_of(l.workflow_id, n.sha256, n.key_high, n.key_low)
            ORDER BY n.workspace_id, n.key_high, n.key_low
            ON CONFLICT DO NOTHING
            RETURNING s.batch_id, s.submission_id
        ), opened AS (
            INSERT INTO open_batches (batch_id, lease_until)
            SELECT c.batch_id, clock_timestamp() + lease_seconds * interval '1 second' FROM claimed c GROUP BY c.batch_id
        )
        SELECT submission_id FROM claimed;
    ELSE
        RETURN QUERY
        WITH closed AS (
            DELETE FROM open_batches o WHERE o.batch_id = ANY (closing)
        ), wanted AS (
            SELECT n.workspace_id, n.key_high, n.key_low, n.batch_id, n.id, n.payload_hash, l.release_id, b.form_link_id,
                b.max_answers - b.answers AS places,
                row_number() OVER (PARTITION BY b.form_link_id ORDER BY n.workspace_id, n.key_high, n.key_low) AS place
            FROM unnest(workspaces, highs, lows, doors, hashes, batches, ids, payloads)
                 AS n (workspace_id, key_high, key_low, token_sha256, sha256, batch_id, id, payload_hash)
            JOIN live_form_links l ON l.token_sha256 = n.token_sha256 AND l.workspace_id = n.workspace_id
            LEFT JOIN form_links b
                ON b.workspace_id = l.workspace_id AND b.form_link_id = l.form_link_id AND b.max_answers IS NOT NULL
            WHERE l.is_open AND is_key_of(l.workflow_id, n.sha256, n.key_high, n.key_low)
              AND NOT (b.form_link_id IS NOT NULL AND EXISTS (
                  SELECT FROM form_submissions s
                  WHERE s.workspace_id = n.workspace_id AND s.key_high = n.key_high AND s.key_low = n.key_low))
        ), claimed AS (
            INSERT INTO form_submissions AS s
                (workspace_id, key_high, key_low, batch_id, submission_id, release_ids, payload_hash)
            SELECT n.workspace_id, n.key_high, n.key_low, n.batch_id, n.id, ARRAY[n.release_id], n.payload_hash
            FROM wanted n WHERE n.places IS NULL OR n.place <= n.places
            ORDER BY n.workspace_id, n.key_high, n.key_low
            ON CONFLICT DO NOTHING
            RETURNING s.batch_id, s.submission_id
        ), opened AS (
            INSERT INTO open_batches (batch_id, lease_until)
            SELECT c.batch_id, clock_timestamp() + lease_seconds * interval '1 second' FROM claimed c GROUP BY c.batch_id
        ), counted AS (
            UPDATE form_links f SET answers = f.answers + t.times
            FROM (
                SELECT w.workspace_id, w.form_link_id, count(*) AS times
                FROM claimed c JOIN wanted w ON w.id = c.submission_id WHERE w.form_link_id IS NOT NULL
                GROUP BY w.workspace_id, w.form_link_id
            ) t
            WHERE f.workspace_id = t.workspace_id AND f.form_link_id = t.form_link_id
        )
        SELECT submission_id FROM claimed;
    END IF;
END
$$;
