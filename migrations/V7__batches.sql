-- Why: what arrives together is claimed, published and settled together. A claim is written once and refers to its
-- batch; the batch's row is there as long as its outcome is open, so that settling hundreds of claims deletes one row.
-- While RabbitMQ is away the batch's row holds the message itself, until a gateway can publish it.
--
-- A claim has few and fixed bytes, because there will be very many: its key is one hash over everything that makes it
-- unique, in two columns of type uuid, which have no length to store. A foreign key to the door (webhook, workflow) would
-- ask again, row by row, what the claiming statement has asked by its join.
--
-- Gateways of before this file can't claim any more. Stop them first; what they have published is understood.

CREATE TABLE open_batches (
    batch_id     bigint PRIMARY KEY,
    lease_until  timestamptz NOT NULL,
    spilled_at   timestamptz,
    routing_key  text,
    message_type text CHECK (message_type IN ('webhook.deliveries', 'form.submissions')),
    entries      integer CHECK (entries > 0),
    body         bytea,
    CONSTRAINT spilled_is_complete
        CHECK (num_nonnulls(spilled_at, routing_key, message_type, entries, body) IN (0, 5))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
ALTER TABLE open_batches ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX open_batches_spilled ON open_batches (spilled_at) WHERE spilled_at IS NOT NULL;
COMMENT ON TABLE open_batches IS 'Batches of claims whose outcome is open: not known to be confirmed, or spilled';
COMMENT ON COLUMN open_batches.batch_id IS 'Random; AMQP message_id';
COMMENT ON COLUMN open_batches.lease_until IS 'Until then nobody else may take over its claims or, when spilled, publish it; by the database''s clock';
COMMENT ON COLUMN open_batches.spilled_at IS 'Since when the message waits here for the broker; null where it does not';
COMMENT ON COLUMN open_batches.routing_key IS 'Where a spilled message goes';
COMMENT ON COLUMN open_batches.message_type IS 'AMQP type of a spilled message';
COMMENT ON COLUMN open_batches.entries IS 'How many deliveries or submissions a spilled message holds';
COMMENT ON COLUMN open_batches.body IS 'Body of a spilled message';

CREATE FUNCTION claim_key(scope uuid, sha256 bytea, half integer) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(substr(sha256(uuid_send(scope) || sha256), 1 + 16 * half, 16), 'hex')::uuid
$$;

-- A batch whose lease is over, for what was claimed before this file and never settled.
INSERT INTO open_batches (batch_id, lease_until)
SELECT 1, clock_timestamp()
WHERE EXISTS (SELECT FROM webhook_deliveries WHERE settled_at IS NULL)
   OR EXISTS (SELECT FROM form_submissions WHERE settled_at IS NULL);

CREATE TABLE deliveries (
    batch_id     bigint NOT NULL,
    workspace_id uuid NOT NULL,
    key_high     uuid NOT NULL,
    key_low      uuid NOT NULL,
    delivery_id  uuid NOT NULL
);
INSERT INTO deliveries
SELECT CASE WHEN settled_at IS NULL THEN 1 ELSE 0 END, workspace_id,
       claim_key(webhook_id, body_sha256, 0), claim_key(webhook_id, body_sha256, 1), delivery_id
FROM webhook_deliveries;
DROP TABLE webhook_deliveries;
ALTER TABLE deliveries RENAME TO webhook_deliveries;
ALTER TABLE webhook_deliveries ADD PRIMARY KEY (workspace_id, key_high, key_low);
COMMENT ON TABLE webhook_deliveries IS 'One distinct body received by one webhook: the claim that lets it be taken once';
COMMENT ON COLUMN webhook_deliveries.batch_id IS 'Open as long as that batch has a row that is not spilled, else settled';
COMMENT ON COLUMN webhook_deliveries.workspace_id IS 'Tenant';
COMMENT ON COLUMN webhook_deliveries.key_high IS 'First half of SHA-256(webhook_id, SHA-256(body))';
COMMENT ON COLUMN webhook_deliveries.key_low IS 'Second half';
COMMENT ON COLUMN webhook_deliveries.delivery_id IS 'Id of the signal; the same for every attempt';

CREATE TABLE submissions (
    batch_id      bigint NOT NULL,
    workspace_id  uuid NOT NULL,
    key_high      uuid NOT NULL,
    key_low       uuid NOT NULL,
    submission_id uuid NOT NULL
);
INSERT INTO submissions
SELECT CASE WHEN settled_at IS NULL THEN 1 ELSE 0 END, workspace_id,
       claim_key(workflow_id, key_sha256, 0), claim_key(workflow_id, key_sha256, 1), submission_id
FROM form_submissions;
DROP TABLE form_submissions;
ALTER TABLE submissions RENAME TO form_submissions;
ALTER TABLE form_submissions ADD PRIMARY KEY (workspace_id, key_high, key_low);
COMMENT ON TABLE form_submissions IS 'One accepted form post: the claim that lets its idempotency key start one run';
COMMENT ON COLUMN form_submissions.batch_id IS 'Open as long as that batch has a row that is not spilled, else settled';
COMMENT ON COLUMN form_submissions.workspace_id IS 'Tenant';
COMMENT ON COLUMN form_submissions.key_high IS 'First half of SHA-256(workflow_id, SHA-256(idempotency key)): a retry through a newer link is still a retry';
COMMENT ON COLUMN form_submissions.key_low IS 'Second half';
COMMENT ON COLUMN form_submissions.submission_id IS 'Id of the run; the same for every attempt';

DROP FUNCTION claim_key;

-- How many queues there are is known here, so that a change of the gateways' setting leaves no queue without a worker.

CREATE TABLE work_queues (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    queues  integer NOT NULL CHECK (queues BETWEEN 1 AND 256)
);
INSERT INTO work_queues (queues) VALUES (1);
COMMENT ON TABLE work_queues IS 'One row: which queues workers consume';
COMMENT ON COLUMN work_queues.is_only IS 'There is one row only';
COMMENT ON COLUMN work_queues.queues IS 'The most queues that a gateway has ever used, in each family; lower it when the others are empty';

-- Rate limits: a request that has a client and a token counts against both or against neither, so nothing is given back.

DROP FUNCTION take_hits(bytea, integer, integer);
DROP FUNCTION give_back_hit(bytea, timestamptz);

-- All rows are locked, in the order of their keys, before the clock is read: hits stand in the order in which they were
-- let through, and two calls can't wait for each other in a circle.
CREATE FUNCTION take_hits(limited bytea[], most integer[], clients integer[], tokens integer[],
    OUT refused_by integer, OUT next_in double precision)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    clock timestamptz;
    since timestamptz;
    used integer[];   -- live hits of each key
    before integer[]; -- the same, before this call
    nth integer;      -- the hit that must expire for one more to pass
BEGIN
    INSERT INTO rate_limits AS r (key, hits) SELECT key, '{}' FROM unnest(limited) WITH ORDINALITY AS k (key, place)
    ORDER BY place ON CONFLICT (key) DO UPDATE SET hits = r.hits;
    clock := clock_timestamp();
    since := clock - interval '60 seconds';
    used := ARRAY(SELECT (SELECT count(*)::int FROM unnest(r.hits) AS hit WHERE hit > since)
        FROM unnest(limited) WITH ORDINALITY AS k (key, place) JOIN rate_limits r ON r.key = k.key ORDER BY k.place);
    before := used;
    FOR wanted IN 1 .. cardinality(clients) LOOP
        refused_by := CASE
            WHEN used[clients[wanted]] >= most[clients[wanted]] THEN clients[wanted]
            WHEN used[tokens[wanted]] >= most[tokens[wanted]] THEN tokens[wanted] END;
        next_in := NULL;
        IF refused_by IS NULL THEN
            used[clients[wanted]] := used[clients[wanted]] + 1;
            IF tokens[wanted] IS NOT NULL THEN
                used[tokens[wanted]] := used[tokens[wanted]] + 1;
            END IF;
        ELSE
            nth := 1 + used[refused_by] - most[refused_by];
            next_in := extract(epoch FROM interval '60 seconds' + (coalesce(
                (SELECT hit FROM rate_limits r, unnest(r.hits) AS hit WHERE r.key = limited[refused_by] AND hit > since
                 ORDER BY hit OFFSET nth - 1 LIMIT 1), clock) - clock));
        END IF;
        RETURN NEXT;
    END LOOP;
    UPDATE rate_limits r SET hits = ARRAY(SELECT hit FROM unnest(r.hits) AS hit WHERE hit > since ORDER BY hit)
        || array_fill(clock, ARRAY[used[place] - before[place]])
    FROM unnest(limited) WITH ORDINALITY AS k (key, place)
    WHERE r.key = k.key AND used[place] > before[place];
END
$$;
COMMENT ON FUNCTION take_hits IS 'Lets requests through, each by its client and perhaps its token (places in `limited`), if all of them have had less than `most` in 60 seconds; `refused_by` is the place that has not, `next_in` the seconds until it would';

GRANT SELECT, INSERT, UPDATE, DELETE ON open_batches TO letterbox_gateway, letterbox_operator;
GRANT SELECT, UPDATE (queues) ON work_queues TO letterbox_gateway, letterbox_operator;
GRANT SELECT ON work_queues TO letterbox_worker;
GRANT SELECT, INSERT, UPDATE (batch_id) ON webhook_deliveries, form_submissions TO letterbox_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_deliveries, form_submissions TO letterbox_operator;
