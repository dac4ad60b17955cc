-- What operators look at.
-- Expands only: programs of before need nothing of it.

CREATE VIEW ready_lanes AS
WITH RECURSIVE lane AS (
    (SELECT workspace_id, account_id, due_at FROM run_wakes WHERE state = 'ready'
     ORDER BY workspace_id, account_id, due_at LIMIT 1)
    UNION ALL
    SELECT next.* FROM lane CROSS JOIN LATERAL (
        SELECT workspace_id, account_id, due_at FROM run_wakes
        WHERE state = 'ready' AND (workspace_id, account_id) > (lane.workspace_id, lane.account_id)
        ORDER BY workspace_id, account_id, due_at LIMIT 1) AS next
)
SELECT workspace_id, account_id, due_at FROM lane;
COMMENT ON VIEW ready_lanes IS 'Every lane in which wakes are ready. Goes from lane to lane by the index: how many there are in each costs nothing';
COMMENT ON COLUMN ready_lanes.account_id IS 'The account that its runs wait for; zeros where it is not known yet';
COMMENT ON COLUMN ready_lanes.due_at IS 'Since when the first of them is due';
GRANT SELECT ON ready_lanes TO letterbox_worker;

-- How many questions wait for a person, and for how long: for the metrics.
GRANT SELECT (state, created_at) ON approvals TO letterbox_worker;
CREATE INDEX approvals_by_age ON approvals (created_at) WHERE state = 'pending';

-- The trace that a run belongs to.
ALTER TABLE runs ADD COLUMN traceparent text,
    ADD CONSTRAINT traceparents_are_short CHECK (length(traceparent) = 55) NOT VALID;
COMMENT ON COLUMN runs.traceparent IS 'W3C trace context of its submission; null where nobody follows its trace';

-- What a workspace uses.
GRANT SELECT ON stored_bytes TO letterbox_operator;
