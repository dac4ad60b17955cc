-- Why: whoever had many runs, or one slow account, had the places of all workers. Wakes are handed to the broker by one relay
-- at a time now, in turn for each workspace, and no more than may be in flight for a workspace and for an account; what is
-- over that waits here, at no cost: ready wakes are found by workspace and account, and those of later by their time.
--
-- Workers of before this file hand over without regard to it, and take runs that were not handed over. Stop them first.

ALTER TABLE run_wakes
    ADD COLUMN state text NOT NULL DEFAULT 'scheduled' CHECK (state IN ('scheduled', 'ready', 'handed_over')),
    ADD COLUMN account_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    ADD COLUMN handovers integer NOT NULL DEFAULT 0 CHECK (handovers >= 0);
COMMENT ON COLUMN run_wakes.state IS 'scheduled: for its time; ready: waits for its turn; handed_over: the broker or a worker has it';
COMMENT ON COLUMN run_wakes.account_id IS 'The account that the run calls next, or is calling; nil where that is not known';
COMMENT ON COLUMN run_wakes.handovers IS 'How often it was handed over in a row without a worker taking the run';
COMMENT ON COLUMN run_wakes.due_at IS 'When it is due; once handed over, when it is due again: a worker that has the run sets the end of its lease';

DROP INDEX run_wakes_by_time;
CREATE INDEX run_wakes_by_time ON run_wakes (due_at) WHERE state <> 'ready';
CREATE INDEX run_wakes_ready ON run_wakes (workspace_id, account_id, due_at) WHERE state = 'ready';
CREATE INDEX run_wakes_handed_over ON run_wakes (workspace_id) WHERE state = 'handed_over';

ALTER TABLE releases ADD COLUMN first_account text;
COMMENT ON COLUMN releases.first_account IS 'Name of the account that every run calls first; null where that depends';
GRANT SELECT (first_account) ON releases TO letterbox_worker;

CREATE TABLE workers (
    worker_id uuid PRIMARY KEY,
    name      text NOT NULL,
    places    integer NOT NULL CHECK (places > 0),
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE workers IS 'The workers that are alive; what is handed over is no more than they have places for';
COMMENT ON COLUMN workers.worker_id IS 'Made anew at each start';
COMMENT ON COLUMN workers.name IS 'As the database and the broker know its connections';
COMMENT ON COLUMN workers.places IS 'Runs that it executes at once';
COMMENT ON COLUMN workers.seen_at IS 'When it last said so';

CREATE TABLE relay_lease (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    worker_id uuid,
    until_at  timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO relay_lease DEFAULT VALUES;
COMMENT ON TABLE relay_lease IS 'Which worker''s relay hands over at present: it remembers what is in flight';
COMMENT ON COLUMN relay_lease.one IS 'There is one row';
COMMENT ON COLUMN relay_lease.worker_id IS 'Whose relay it is; null before the first';
COMMENT ON COLUMN relay_lease.until_at IS 'Until then no other relay takes its place';

GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO letterbox_worker;
GRANT SELECT, UPDATE (worker_id, until_at) ON relay_lease TO letterbox_worker;
GRANT SELECT ON workers TO letterbox_operator;
