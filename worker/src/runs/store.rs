//! Recording runs: one transaction for a batch, in which each new submission is queued or refused,
//! the workspaces' allowances are taken, and what is queued is put into the outbox.
//!
//! The transaction locks the usage of every workspace it touches, in their order, before it looks
//! at anything: two workers can't take the same last place, and of two that have the same message
//! the second finds the run.

use std::{collections::BTreeMap, time::Duration};

use deadpool_postgres::Pool;
use letterbox_common::{
    database::{Checkout, DatabaseError, within},
    ids::WorkspaceId,
};
use tokio_postgres::Row;

use super::Submission;

const DEADLINE: Duration = Duration::from_secs(10);

/// lock_usage: the usage of this month, begun where there is none yet
const LOCK_USAGE: &str = "
INSERT INTO run_usage (workspace_id, month)
SELECT workspace_id, date_trunc('month', now() AT TIME ZONE 'UTC') FROM unnest($1::uuid[]) AS wanted (workspace_id)
ORDER BY workspace_id
ON CONFLICT (workspace_id, month) DO UPDATE SET started = run_usage.started";

/// insert_runs: a batch of submissions as runs; those that came before change nothing. A submission
/// to a workflow that does not exist breaks a constraint, rather than vanish in a join.
const INSERT_RUNS: &str = "
WITH new AS (
    SELECT n.*, w.owner_id, s.run_allowance, u.started,
           CASE WHEN w.state = 'deleted' THEN 'workflow_unavailable'
                WHEN m.may_run IS NOT TRUE THEN 'owner_cannot_run' END AS reason
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::timestamptz[], $6::bytea[])
         AS n (workspace_id, run_id, workflow_id, release_id, received_at, input)
    LEFT JOIN workflows w ON w.workspace_id = n.workspace_id AND w.workflow_id = n.workflow_id
    LEFT JOIN members m ON m.workspace_id = n.workspace_id AND m.user_id = w.owner_id
    LEFT JOIN workspaces s ON s.workspace_id = n.workspace_id
    LEFT JOIN run_usage u
        ON u.workspace_id = n.workspace_id AND u.month = date_trunc('month', now() AT TIME ZONE 'UTC')
    WHERE NOT EXISTS (SELECT FROM runs r WHERE r.workspace_id = n.workspace_id AND r.run_id = n.run_id)
), counted AS (
    SELECT new.*, started + row_number() OVER (PARTITION BY workspace_id, reason IS NULL ORDER BY run_id) AS place
    FROM new
), decided AS (
    SELECT counted.*, CASE WHEN reason IS NULL AND place > run_allowance THEN 'allowance_exhausted' ELSE reason END AS refused
    FROM counted
), inserted AS (
    INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state, refused_reason, input, received_at)
    SELECT workspace_id, run_id, workflow_id, release_id, owner_id,
           CASE WHEN refused IS NULL THEN 'queued' ELSE 'refused' END, refused, input, received_at
    FROM decided ORDER BY workspace_id, run_id
    ON CONFLICT (workspace_id, run_id) DO NOTHING
    RETURNING workspace_id, run_id, state
), wakes AS (
    INSERT INTO run_wakes (workspace_id, run_id, due_at)
    SELECT workspace_id, run_id, clock_timestamp() FROM inserted WHERE state = 'queued'
), used AS (
    UPDATE run_usage u SET started = u.started + i.started
    FROM (SELECT workspace_id, count(*) AS started FROM inserted WHERE state = 'queued' GROUP BY workspace_id) AS i
    WHERE u.workspace_id = i.workspace_id AND u.month = date_trunc('month', now() AT TIME ZONE 'UTC')
)
SELECT count(*) FILTER (WHERE state = 'queued'), count(*) FILTER (WHERE state = 'refused') FROM inserted";

/// Every statement of this store, for the test that prepares them against the schema under the
/// worker's role.
pub const STATEMENTS: [&str; 2] = [LOCK_USAGE, INSERT_RUNS];

/// Records submissions as runs, all or none. They are committed when this returns.
///
/// # Errors
/// Transient when the database is away (whether it committed is then unknown, and does not matter),
/// permanent when one of them breaks a constraint.
pub async fn store(pool: &Pool, submissions: &[&Submission]) -> Result<(), DatabaseError> {
    within(DEADLINE, "recording runs", insert(pool, submissions))
        .await
        .inspect_err(|error| tracing::warn!(%error, submissions = submissions.len(), "runs could not be recorded"))
}

async fn insert(pool: &Pool, submissions: &[&Submission]) -> Result<(), DatabaseError> {
    // By key: sorted, and each once.
    let rows: BTreeMap<_, &Submission> = submissions
        .iter()
        .map(|one| ((one.workspace, one.run), *one))
        .collect();
    let (keys, rows): (Vec<_>, Vec<&Submission>) = rows.into_iter().unzip();
    let (workspaces, runs): (Vec<WorkspaceId>, Vec<_>) = keys.into_iter().unzip();
    let mut tenants = workspaces.clone();
    tenants.dedup();
    let workflows: Vec<_> = rows.iter().map(|one| one.workflow).collect();
    let releases: Vec<_> = rows.iter().map(|one| one.release).collect();
    let received: Vec<_> = rows.iter().map(|one| one.received_at).collect();
    let inputs: Vec<&[u8]> = rows.iter().map(|one| one.input.as_slice()).collect();

    let mut client = Checkout::get(pool).await?;
    let transaction = client.transaction().await?;
    let lock = transaction.prepare_cached(LOCK_USAGE).await?;
    transaction.execute(&lock, &[&tenants]).await?;
    let record = transaction.prepare_cached(INSERT_RUNS).await?;
    let row: Row = transaction
        .query_one(
            &record,
            &[
                &workspaces,
                &runs,
                &workflows,
                &releases,
                &received,
                &inputs,
            ],
        )
        .await?;
    transaction.commit().await?;
    client.done();

    let (queued, refused): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let repeated = rows.len() as i64 - queued - refused;
    for (outcome, count) in [
        ("queued", queued),
        ("refused", refused),
        ("repeated", repeated),
    ] {
        metrics::counter!("letterbox_runs_total", "outcome" => outcome).increment(count as u64);
    }
    Ok(())
}
