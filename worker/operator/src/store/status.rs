//! What waits, and for how long: a handful of rows of each, whatever there is of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use letterbox_common::{ids::WorkspaceId, states::RunState};
use letterbox_database::{Database, DatabaseError, statements};
use tokio_postgres::Row;

statements! {
    /// Runs that are due and have no worker yet: those that are ready, and those whose time has
    /// come. Held workspaces are not late.
    DUE_RUNS = due_runs "
WITH due AS (
    (SELECT workspace_id, due_at FROM run_wakes WHERE state = 'ready' LIMIT 1000000)
    UNION ALL
    (SELECT workspace_id, due_at FROM run_wakes
     WHERE state = 'scheduled' AND due_at <= now() LIMIT 1000000)
)
SELECT count(*) AS count, extract(epoch FROM now() - min(due_at))::float8 AS oldest_seconds,
       extract(epoch FROM now() - min(due_at) FILTER (WHERE workspace_id NOT IN (
           SELECT h.workspace_id FROM held_workspaces h)))::float8
           AS late_seconds
FROM due";

    /// Questions that wait for a person.
    PENDING_APPROVALS = pending_approvals "
SELECT count(*) AS count, extract(epoch FROM now() - min(created_at))::float8 AS oldest_seconds
FROM approvals WHERE state = 'pending'";

    /// Batches whose outcome is open, and of those the ones that wait for the broker.
    OPEN_BATCHES = open_batches_status "
SELECT count(*) FILTER (WHERE spilled_at IS NULL AND lease_until < now()) AS count,
       extract(epoch FROM now() - min(lease_until) FILTER (WHERE spilled_at IS NULL
           AND lease_until < now()))::float8 AS oldest_seconds,
       count(spilled_at) AS spilled,
       extract(epoch FROM now() - min(spilled_at))::float8 AS spilled_seconds
FROM open_batches";

    /// Runs that are not over, by state.
    RUNS_UNDER_WAY = runs_under_way "
SELECT state, count(*) AS count FROM runs WHERE finished_at IS NULL GROUP BY state";

    /// Runs that ended in the last hour, by state.
    RUNS_ENDED = runs_ended "
SELECT state, count(*) AS count FROM runs
WHERE finished_at > now() - interval '1 hour' GROUP BY state";

    /// Workers that are alive, their places, and whether one of them hands over runs.
    LIVING_WORKERS = living_workers "
SELECT count(*) AS workers, coalesce(sum(places), 0) AS places,
       (SELECT until_at > now() - interval '10 seconds' FROM relay_lease) AS has_relay
FROM workers WHERE seen_at > now() - interval '30 seconds'";

    /// What is held.
    HELD = held_workspaces "
SELECT NULL::uuid AS workspace_id, 'all workspaces' AS name, held_at
FROM all_workspaces WHERE held_at IS NOT NULL
UNION ALL
SELECT workspace_id, name, held_at FROM workspaces WHERE held_at IS NOT NULL
ORDER BY held_at LIMIT 100";

    /// The most queues that a gateway has ever used.
    QUEUES = status_queues "SELECT max(queues) AS queues FROM work_queues";
}

/// How much of one kind waits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waiting {
    pub(crate) count: i64,
    /// How long the oldest has been waiting.
    pub(crate) oldest_seconds: Option<f64>,
}

/// Everything that the database knows of what waits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Backlog {
    pub(crate) due_runs: Waiting,
    /// How long the oldest run has been due that is not held.
    pub(crate) due_late_seconds: Option<f64>,
    pub(crate) approvals: Waiting,
    /// Claims whose lease ended before anything came of them.
    pub(crate) open_batches: Waiting,
    /// What waits in the database because the broker is away.
    pub(crate) spilled: Waiting,
    pub(crate) under_way: BTreeMap<String, i64>,
    pub(crate) ended: BTreeMap<String, i64>,
    pub(crate) workers: i64,
    pub(crate) places: i64,
    pub(crate) has_relay: bool,
    /// Workspaces that are held; none of it for all.
    pub(crate) held: Vec<(Option<WorkspaceId>, String, Timestamp)>,
    pub(crate) queues: u16,
}

fn waiting(row: &Row, count: &str, oldest: &str) -> Result<Waiting, tokio_postgres::Error> {
    Ok(Waiting {
        count: row.try_get(count)?,
        oldest_seconds: row.try_get(oldest)?,
    })
}

fn by_state(rows: &[Row]) -> Result<BTreeMap<String, i64>, DatabaseError> {
    let counted = rows.iter().map(|row| {
        let state: RunState = row.try_get("state")?;
        Ok((state.to_string(), row.try_get("count")?))
    });
    counted.collect()
}

pub(crate) async fn backlog(database: &Database) -> Result<Backlog, DatabaseError> {
    let due = database.query_one(&DUE_RUNS, &[]).await?;
    let approvals = database.query_one(&PENDING_APPROVALS, &[]).await?;
    let open = database.query_one(&OPEN_BATCHES, &[]).await?;
    let workers = database.query_one(&LIVING_WORKERS, &[]).await?;
    let queues: i32 = database.query_one(&QUEUES, &[]).await?.try_get("queues")?;
    let held = database.query(&HELD, &[]).await?;
    let held = held.iter().map(|row| {
        let name = row.try_get("name")?;
        Ok((row.try_get("workspace_id")?, name, row.try_get("held_at")?))
    });
    Ok(Backlog {
        due_runs: waiting(&due, "count", "oldest_seconds")?,
        due_late_seconds: due.try_get("late_seconds")?,
        approvals: waiting(&approvals, "count", "oldest_seconds")?,
        open_batches: waiting(&open, "count", "oldest_seconds")?,
        spilled: waiting(&open, "spilled", "spilled_seconds")?,
        under_way: by_state(&database.query(&RUNS_UNDER_WAY, &[]).await?)?,
        ended: by_state(&database.query(&RUNS_ENDED, &[]).await?)?,
        workers: workers.try_get("workers")?,
        places: workers.try_get("places")?,
        has_relay: workers.try_get("has_relay")?,
        held: held.collect::<Result<_, DatabaseError>>()?,
        queues: u16::try_from(queues).unwrap_or(1),
    })
}
