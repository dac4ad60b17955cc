//! The statements behind the outbox. Rows come into it with the steps that make them necessary
//! (`executor/store.rs`, `runs/store.rs`, approvals); here is what the relay does with them.

use std::time::Duration;

use deadpool_postgres::{Pool, Transaction};
use letterbox_common::{
    database::{Checkout, DatabaseError, within},
    ids::{RunId, WorkspaceId},
};

const DEADLINE: Duration = Duration::from_secs(10);

/// due_wakes: runs that somebody has to look at by now, kept from other relays until this
/// transaction ends
const DUE_WAKES: &str = "
SELECT workspace_id, run_id FROM run_wakes WHERE due_at <= clock_timestamp() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED";

/// handed_over: the broker has these wakes. Should one get lost there, it is due again later; who
/// takes the run sets the time anew
const HANDED_OVER: &str = "
UPDATE run_wakes w SET due_at = clock_timestamp() + interval '5 minutes'
FROM unnest($1::uuid[], $2::uuid[]) AS handed (workspace_id, run_id)
WHERE w.workspace_id = handed.workspace_id AND w.run_id = handed.run_id";

/// wake_again: for wakes that came where no executor is; in a while, lest they go round in a circle
const WAKE_AGAIN: &str = "
INSERT INTO run_wakes (workspace_id, run_id, due_at)
SELECT r.workspace_id, r.run_id, clock_timestamp() + interval '1 second'
FROM unnest($1::uuid[], $2::uuid[]) AS lost (workspace_id, run_id)
JOIN runs r ON r.workspace_id = lost.workspace_id AND r.run_id = lost.run_id
    AND r.state IN ('queued', 'running', 'waiting_approval')
ORDER BY r.workspace_id, r.run_id
ON CONFLICT (workspace_id, run_id) DO UPDATE SET due_at = least(run_wakes.due_at, EXCLUDED.due_at)";

/// Every statement of this store, for the test that prepares them against the schema under the
/// worker's role.
pub const STATEMENTS: [&str; 3] = [DUE_WAKES, HANDED_OVER, WAKE_AGAIN];

/// Runs that somebody has to look at by now.
pub async fn due_wakes(
    transaction: &Transaction<'_>,
    most: i64,
) -> Result<Vec<(WorkspaceId, RunId)>, DatabaseError> {
    let statement = transaction.prepare_cached(DUE_WAKES).await?;
    let rows = transaction.query(&statement, &[&most]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// Puts off wakes that the broker has confirmed.
pub async fn handed_over(
    transaction: &Transaction<'_>,
    wakes: &[(WorkspaceId, RunId)],
) -> Result<(), DatabaseError> {
    let (workspaces, runs): (Vec<WorkspaceId>, Vec<RunId>) = wakes.iter().copied().unzip();
    let statement = transaction.prepare_cached(HANDED_OVER).await?;
    transaction
        .execute(&statement, &[&workspaces, &runs])
        .await?;
    Ok(())
}

/// Sees to it that runs are looked at again, when their wake came where no executor is.
pub async fn wake_again(pool: &Pool, wakes: &[(WorkspaceId, RunId)]) -> Result<(), DatabaseError> {
    let waking = async {
        let (workspaces, runs): (Vec<WorkspaceId>, Vec<RunId>) = wakes.iter().copied().unzip();
        let client = Checkout::get(pool).await?;
        let statement = client.prepare_cached(WAKE_AGAIN).await?;
        client.execute(&statement, &[&workspaces, &runs]).await?;
        client.done();
        Ok(())
    };
    within(DEADLINE, "waking runs", waking).await
}
