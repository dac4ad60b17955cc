-- Why: a clock that was set back counted hits of the future for as long as it took to come there again; a question that the
-- policy did not ask any more was closed as if nobody had answered it in time, and could not be asked again; the index
-- of the outbox is the busiest of all; and a worker whose login is a member of its role could take off the role, and with
-- it the name that the trigger of approvals looked for.

CREATE OR REPLACE FUNCTION live_hits(hits timestamptz[]) RETURNS timestamptz[] LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN hits[cardinality(hits)] > clock_timestamp()
        THEN ARRAY(SELECT least(hit, clock_timestamp()) FROM unnest(hits) AS hit
            WHERE hit > clock_timestamp() - interval '60 seconds' ORDER BY hit)
        ELSE hits[1 + width_bucket(clock_timestamp() - interval '60 seconds', hits):] END
$$;
COMMENT ON FUNCTION live_hits IS 'The hits of the last 60 seconds; those of the future, before the clock was set back, are of now';
CREATE OR REPLACE FUNCTION hit_expires_in(subject bytea, nth integer, clock timestamptz) RETURNS double precision LANGUAGE sql STABLE AS $$
    SELECT extract(epoch FROM interval '60 seconds' + (least(coalesce(hits[nth], clock), clock) - clock))
    FROM rate_limits WHERE key = subject
$$;

ALTER TABLE approvals DROP CONSTRAINT approvals_state_check, ADD CONSTRAINT approvals_state_check
    CHECK (state IN ('pending', 'approved', 'denied', 'expired', 'withdrawn'));
CREATE OR REPLACE FUNCTION worker_only_asks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_has_role(current_user, 'letterbox_operator', 'MEMBER') AND (
        (TG_OP = 'INSERT' AND NEW.state <> 'pending')
        OR (TG_OP = 'UPDATE' AND NEW.state <> OLD.state AND NEW.state NOT IN ('expired', 'withdrawn')
            AND NOT (OLD.state = 'withdrawn' AND NEW.state = 'pending'))
    ) THEN
        RAISE EXCEPTION 'a worker asks for approvals and does not give them' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
GRANT UPDATE (expires_at) ON approvals TO letterbox_worker;

ALTER TABLE run_wakes SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
