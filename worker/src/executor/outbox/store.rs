//! The statements behind the outbox. Rows come into it with whatever makes them necessary
//! (`executor/store/step.rs`, `runs/store.rs`, the answer to an approval); here is what the relay
//! does with them.

use std::time::SystemTime;

use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// Takes wakes that are due, the oldest first, for 30 seconds: nobody else hands them over
    /// meanwhile. $2 is whether to look at those, too, that have been due for long. Usually there
    /// are none, and where an old snapshot keeps dead entries from being cleared away, to look
    /// through them takes its time. The index is searched by `now()`, which does not change while
    /// the statement runs, as `clock_timestamp()` does. What somebody changes meanwhile is left for
    /// the next time.
    TAKE_DUE_WAKES = take_due_wakes "
UPDATE run_wakes w SET due_at = clock_timestamp() + interval '30 seconds'
WHERE w.ctid = ANY (ARRAY(
    SELECT ctid FROM run_wakes
    WHERE due_at <= now()
      AND due_at > CASE WHEN $2 THEN '-infinity' ELSE now() - interval '5 minutes' END
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING w.workspace_id, w.run_id, w.due_at";

    /// Puts off wakes that the broker has, by five minutes, or else lets them be due again at once,
    /// unless somebody has set their time meanwhile. Should a wake get lost at the broker, it is
    /// due again later; whoever takes the run sets the time anew.
    PUT_OFF_WAKES = put_off_wakes "
UPDATE run_wakes w SET due_at = clock_timestamp()
    + CASE WHEN taken.is_confirmed THEN interval '5 minutes' ELSE interval '0' END
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::boolean[])
     AS taken (workspace_id, run_id, due_at, is_confirmed)
WHERE w.workspace_id = taken.workspace_id AND w.run_id = taken.run_id AND w.due_at = taken.due_at";

    /// Wakes again what arrived where no executor is. After a while, so that it does not go round
    /// in a circle.
    WAKE_AGAIN = wake_again "
INSERT INTO run_wakes (workspace_id, run_id, due_at)
SELECT r.workspace_id, r.run_id, clock_timestamp() + interval '1 second'
FROM unnest($1::uuid[], $2::uuid[]) AS lost (workspace_id, run_id)
JOIN runs r ON r.workspace_id = lost.workspace_id AND r.run_id = lost.run_id
    AND r.state IN ('queued', 'running', 'waiting_approval')
ORDER BY r.workspace_id, r.run_id
ON CONFLICT (workspace_id, run_id) DO UPDATE SET due_at = least(run_wakes.due_at, EXCLUDED.due_at)";
}

/// A wake that was taken, until a time.
#[derive(Debug, Clone)]
pub(super) struct TakenWake {
    pub(super) workspace: WorkspaceId,
    pub(super) run: RunId,
    due_at: SystemTime,
}

/// Takes wakes that are due, at most `max` of them; also those that have been due for long, where
/// it shall look at `all`.
pub(super) async fn take_due(
    database: &Database,
    max: usize,
    all: bool,
) -> Result<Vec<TakenWake>, DatabaseError> {
    let max = max as i64;
    let rows = database.query(&TAKE_DUE_WAKES, &[&max, &all]).await?;
    rows.iter()
        .map(|row| {
            Ok(TakenWake {
                workspace: row.try_get("workspace_id")?,
                run: row.try_get("run_id")?,
                due_at: row.try_get("due_at")?,
            })
        })
        .collect()
}

/// Puts off what the broker has confirmed, and gives back the rest.
pub(super) async fn put_off(
    database: &Database,
    wakes: &[(TakenWake, bool)],
) -> Result<(), DatabaseError> {
    let workspaces: Vec<WorkspaceId> = wakes.iter().map(|(wake, _)| wake.workspace).collect();
    let runs: Vec<RunId> = wakes.iter().map(|(wake, _)| wake.run).collect();
    let times: Vec<SystemTime> = wakes.iter().map(|(wake, _)| wake.due_at).collect();
    let confirmed: Vec<bool> = wakes
        .iter()
        .map(|(_, is_confirmed)| *is_confirmed)
        .collect();
    database
        .execute(
            &PUT_OFF_WAKES,
            &[
                /* $1 workspace_id */ &workspaces,
                /* $2 run_id */ &runs,
                /* $3 due_at */ &times,
                /* $4 is_confirmed */ &confirmed,
            ],
        )
        .await
        .map(drop)
}

/// Wakes runs again whose wake arrived where no executor is.
pub(crate) async fn wake_again(
    database: &Database,
    wakes: &[(WorkspaceId, RunId)],
) -> Result<(), DatabaseError> {
    let (workspaces, runs): (Vec<WorkspaceId>, Vec<RunId>) = wakes.iter().copied().unzip();
    database
        .execute(&WAKE_AGAIN, &[&workspaces, &runs])
        .await
        .map(drop)
}
