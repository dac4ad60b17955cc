-- Rate limits by client and by token. Nearly always every request of a call may pass; then one
-- write per subject is enough. Hits are in the order in which they were let through, so a binary
-- search finds how many have expired. The table need not survive a crash.

CREATE UNLOGGED TABLE rate_limits (
    key  bytea PRIMARY KEY,
    hits timestamptz[] NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE rate_limits IS
    'Requests of each client and token in the last 60 seconds. Empty after a crash of the '
    'database, which does no harm';
COMMENT ON COLUMN rate_limits.key IS
    'The subject of the limit: a kind (one byte) and a token''s SHA-256 or a client''s address';
COMMENT ON COLUMN rate_limits.hits IS 'When each request was let through, oldest first';

CREATE FUNCTION hits_until_now(hits timestamptz[]) RETURNS timestamptz[] LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT ARRAY(SELECT least(hit, clock_timestamp()) FROM unnest(hits) AS hit
        WHERE hit > clock_timestamp() - interval '60 seconds' ORDER BY hit);
END;
COMMENT ON FUNCTION hits_until_now IS
    'The hits of the last 60 seconds, where some are in the future: those count as hits of now';

-- Without a subquery, so that it becomes a part of the statement that calls it.
CREATE FUNCTION live_hits(hits timestamptz[]) RETURNS timestamptz[] LANGUAGE sql VOLATILE
RETURN CASE WHEN hits[cardinality(hits)] > clock_timestamp() THEN hits_until_now(hits)
    ELSE hits[1 + width_bucket(clock_timestamp() - interval '60 seconds', hits):] END;
COMMENT ON FUNCTION live_hits IS
    'The hits of the last 60 seconds; hits in the future, from before the clock was set back, '
    'count as hits of now';

-- Counts every request against its subjects, or none at all. The gateway's role plans without hash
-- joins. Rows are locked in the order of their keys, so that two calls can't deadlock; each hit has
-- the time at which its row was locked.

CREATE FUNCTION count_all_requests(limited bytea[], most integer[], clients integer[],
    tokens integer[]) RETURNS boolean
LANGUAGE plpgsql SET enable_hashjoin = on SET search_path FROM CURRENT AS $$
DECLARE
    too_many boolean;
BEGIN
    WITH wanted AS MATERIALIZED (
        SELECT k.key, k.most, k.place, count(*)::int AS hits
        FROM unnest(clients || tokens) AS subject (place)
        JOIN unnest(limited, most) WITH ORDINALITY AS k (key, most, place)
            ON k.place = subject.place
        GROUP BY k.key, k.most, k.place
    ), counted AS (
        INSERT INTO rate_limits AS r (key, hits)
        SELECT key, array_fill(clock_timestamp(), ARRAY[hits]) FROM wanted ORDER BY place
        ON CONFLICT (key) DO UPDATE
        SET hits = live_hits(r.hits) || array_fill(clock_timestamp(),
            ARRAY[cardinality(excluded.hits)])
        RETURNING key, cardinality(hits) AS hits
    )
    SELECT count(*) > 0 INTO too_many FROM counted JOIN wanted ON wanted.key = counted.key
    WHERE counted.hits > wanted.most;
    IF too_many THEN
        RAISE SQLSTATE 'LB429';
    END IF;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'LB429' THEN
    RETURN false;
END
$$;
COMMENT ON FUNCTION count_all_requests IS 'Counts all requests if all may pass, otherwise none';

CREATE FUNCTION hit_expires_in(subject bytea, nth integer, clock timestamptz)
    RETURNS double precision LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT extract(epoch FROM interval '60 seconds' + (least(coalesce(hits[nth], clock),
        clock) - clock))
    FROM rate_limits WHERE key = subject;
END;
COMMENT ON FUNCTION hit_expires_in IS
    'Seconds until a hit of a subject, counted from its oldest, is older than 60 seconds';

-- For calls in which some requests are refused. All rows are locked, in the order of their keys,
-- before the clock is read.

CREATE FUNCTION count_some_requests(limited bytea[], most integer[], clients integer[],
    tokens integer[],
    OUT client_next_in double precision, OUT token_next_in double precision)
RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    places integer[];  -- of the keys that this call needs, in their order
    counts integer[];  -- live hits of each of these
    totals integer[];  -- all hits of each of these
    clock timestamptz;
    total integer[];   -- all hits, by place
    used integer[];    -- live hits, by place
    granted integer[]; -- hits that this call adds, by place
    client integer;
    token integer;
BEGIN
    places := ARRAY(SELECT DISTINCT place FROM unnest(clients || tokens) AS place
        WHERE place IS NOT NULL ORDER BY place);
    -- This locks also what it does not change. Rows that are locked are not swept.
    INSERT INTO rate_limits AS r (key, hits)
    SELECT limited[place], '{}' FROM unnest(places) AS place ORDER BY place
    ON CONFLICT (key) DO UPDATE SET hits = r.hits WHERE false;
    SELECT array_agg(cardinality(live_hits(hits)) ORDER BY place),
        array_agg(cardinality(hits) ORDER BY place)
    INTO counts, totals
    FROM unnest(places) AS place JOIN rate_limits r ON r.key = limited[place];
    clock := clock_timestamp();
    total := array_fill(0, ARRAY[cardinality(limited)]);
    used := total;
    granted := total;
    FOR nth IN 1 .. cardinality(places) LOOP
        total[places[nth]] := totals[nth];
        used[places[nth]] := counts[nth];
    END LOOP;
    FOR wanted IN 1 .. cardinality(clients) LOOP
        client := clients[wanted];
        token := tokens[wanted];
        client_next_in := CASE WHEN used[client] + granted[client] >= most[client] THEN
            hit_expires_in(limited[client], total[client] + 1 + granted[client] - most[client],
                clock) END;
        token_next_in := CASE WHEN used[token] + granted[token] >= most[token] THEN
            hit_expires_in(limited[token], total[token] + 1 + granted[token] - most[token],
                clock) END;
        IF client IS NOT NULL AND client_next_in IS NULL AND token_next_in IS NULL THEN
            granted[client] := granted[client] + 1;
            IF token IS NOT NULL THEN
                granted[token] := granted[token] + 1;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
    UPDATE rate_limits r SET hits = live_hits(r.hits) || array_fill(clock, ARRAY[granted[place]])
    FROM unnest(places) AS place WHERE r.key = limited[place] AND granted[place] > 0;
END
$$;
COMMENT ON FUNCTION count_some_requests IS 'Lets through, in order, the requests that may pass';

CREATE FUNCTION count_requests(limited bytea[], most integer[], clients integer[], tokens integer[],
    OUT client_next_in double precision, OUT token_next_in double precision)
RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF count_all_requests(limited, most, clients, tokens) THEN
        RETURN QUERY SELECT NULL::float8, NULL::float8 FROM unnest(clients);
    ELSE
        RETURN QUERY SELECT * FROM count_some_requests(limited, most, clients, tokens);
    END IF;
END
$$;
COMMENT ON FUNCTION count_requests IS
    'Lets requests through, each by its client and optionally its token (places in `limited`, '
    'which is sorted), if each of them has had less than `most` in 60 seconds: then neither '
    '`…_next_in` is set, otherwise the seconds until that one would let it through. A request '
    'without a client does not count';

GRANT SELECT, INSERT, UPDATE, DELETE ON rate_limits TO letterbox_gateway;
