//! The statements behind the outbox. Rows come into it with whatever makes them necessary
//! (`executor/store/step.rs`, `runs/store.rs`, the answer to an approval); here is what the relay
//! does with them.

use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, Transaction, statements};

statements! {
    /// Runs that a worker must look at by now, kept from other relays until the transaction ends.
    DUE_WAKES = due_wakes "
SELECT workspace_id, run_id FROM run_wakes WHERE due_at <= clock_timestamp()
ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED";

    /// Puts off wakes that the broker has. Should one get lost there, it is due again later;
    /// whoever takes the run sets the time anew.
    PUT_OFF_WAKES = put_off_wakes "
UPDATE run_wakes w SET due_at = clock_timestamp() + interval '5 minutes'
FROM unnest($1::uuid[], $2::uuid[]) AS confirmed (workspace_id, run_id)
WHERE w.workspace_id = confirmed.workspace_id AND w.run_id = confirmed.run_id";

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

/// Runs that a worker must look at by now, at most `max` of them.
pub(super) async fn due_wakes(
    transaction: &Transaction<'_>,
    max: usize,
) -> Result<Vec<(WorkspaceId, RunId)>, DatabaseError> {
    let rows = transaction.query(&DUE_WAKES, &[&(max as i64)]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get("workspace_id")?, row.try_get("run_id")?)))
        .collect()
}

/// Puts off wakes that the broker has confirmed.
pub(super) async fn put_off(
    transaction: &Transaction<'_>,
    wakes: &[(WorkspaceId, RunId)],
) -> Result<(), DatabaseError> {
    let (workspaces, runs): (Vec<WorkspaceId>, Vec<RunId>) = wakes.iter().copied().unzip();
    transaction
        .execute(&PUT_OFF_WAKES, &[&workspaces, &runs])
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
