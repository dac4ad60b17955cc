//! Statements that measure waiting work. They use the indexes and count up to 10,000. Index entries
//! kept by an old snapshot still cost time, so only one worker runs them, and not often.

use letterbox_common::states::ActiveState;
use letterbox_database::{Database, DatabaseError, FromRow, statements};
use uuid::Uuid;

statements! {
    /// Whether no other worker has been alive for longer: ids of workers sort by their start.
    pub(crate) fn is_oldest_worker(worker: Uuid) -> (bool,) = "
SELECT NOT EXISTS (SELECT FROM workers
                   WHERE is_alive(seen_at, 15) AND worker_id < $1) AS is_oldest";

    /// How long the oldest run that no worker has taken has been due, in seconds; 0 if there is
    /// none. Examines the first ready run of each lane, and the first runs whose time has come.
    /// Runs of held workspaces are not late, nor are those whose account waits.
    fn oldest_due_run() -> (f64,) = "
WITH unseen AS (
    SELECT workspace_id, account_id, due_at FROM active_runs
    WHERE (state = 'ready') IS FALSE AND state = 'scheduled' AND due_at <= now()
    ORDER BY due_at LIMIT 1000
), due AS (
    SELECT workspace_id, account_id, due_at
    FROM ready_lanes('00000000-0000-0000-0000-000000000000',
        '00000000-0000-0000-0000-000000000000', 10000)
    UNION ALL SELECT workspace_id, account_id, due_at FROM unseen
)
SELECT coalesce(extract(epoch FROM now() - min(due_at)), 0)::float8 AS seconds
FROM due WHERE workspace_id NOT IN (SELECT h.workspace_id FROM held_workspaces h)
  AND (workspace_id, account_id) NOT IN (
      SELECT w.workspace_id, w.account_id FROM waiting_accounts w)";

    /// The number of pending approvals, and the age of the oldest in seconds.
    fn oldest_approval() -> (i64, f64) = "
SELECT (SELECT count(*) FROM (SELECT FROM approvals WHERE state = 'pending' LIMIT 10000) AS few)
           AS approvals,
       coalesce(extract(epoch FROM now() - (SELECT created_at FROM approvals
           WHERE state = 'pending' ORDER BY created_at LIMIT 1)), 0)::float8 AS seconds";

    /// The number of runs that are not over, by state. Ordered as the indexes are, so that no plan
    /// reads those of one state to count those of another.
    fn waiting_runs() -> WaitingRuns = "
SELECT (SELECT count(*) FROM (SELECT FROM active_runs WHERE state = 'ready'
           ORDER BY workspace_id, account_id, due_at LIMIT 10000) AS few) AS ready,
       (SELECT count(*) FROM taken_runs) AS taken,
       (SELECT count(*) FROM (SELECT FROM active_runs
           WHERE (state = 'ready') IS FALSE AND state = 'scheduled'
           ORDER BY due_at LIMIT 10000) AS few) AS scheduled";
}

/// Runs that are not over, by state.
#[derive(FromRow)]
struct WaitingRuns {
    ready: i64,
    taken: i64,
    scheduled: i64,
}

/// Waiting work.
pub(super) struct Backlog {
    /// In seconds.
    pub(super) oldest_due_run: f64,
    /// In seconds.
    pub(super) oldest_approval: f64,
    pub(super) approvals: i64,
    pub(super) runs: [(ActiveState, i64); 3],
}

impl Backlog {
    /// Reported while another worker queries the database.
    pub(super) const NOTHING: Self = Self {
        oldest_due_run: 0.0,
        oldest_approval: 0.0,
        approvals: 0,
        runs: [
            (ActiveState::Ready, 0),
            (ActiveState::Taken, 0),
            (ActiveState::Scheduled, 0),
        ],
    };
}

/// Measures waiting work; `None` if another worker reports it.
pub(super) async fn waiting(
    database: &Database,
    worker: Uuid,
) -> Result<Option<Backlog>, DatabaseError> {
    if !is_oldest_worker(database, worker).await?.0 {
        return Ok(None);
    }
    let (oldest_due_run,) = oldest_due_run(database).await?;
    let (approvals, oldest_approval) = oldest_approval(database).await?;
    let runs = waiting_runs(database).await?;
    Ok(Some(Backlog {
        oldest_due_run,
        oldest_approval,
        approvals,
        runs: [
            (ActiveState::Ready, runs.ready),
            (ActiveState::Taken, runs.taken),
            (ActiveState::Scheduled, runs.scheduled),
        ],
    }))
}
