//! Loading runs that were taken: what was submitted, what has been done, what holds now.

use std::collections::HashMap;

use letterbox_common::ids::{AccountId, ReleaseId, RunId, UserId, WorkflowId, WorkspaceId};
use letterbox_database::{Client, Database, DatabaseError, FromRow, Row, RowError, statements};
use letterbox_workflow::release::ReleaseTexts;

use super::{TurnKey, key, rows::RunRow};
use crate::executor::{
    kept_answers::MAX_HELD,
    record::{ActionRecord, Circumstances, RunFacts, TakenRun},
};

/// The columns of [`Circumstances`]: of a workspace `w`, a member `m` and an account `a`.
macro_rules! circumstances {
    () => {
        "coalesce(m.may_run, false) AS owner_may_run,
       (SELECT true FROM held_workspaces h
        WHERE h.workspace_id = w.workspace_id) IS NOT NULL AS is_held,
       w.retry_attempts, w.retry_first_milliseconds::float8 / 1000 AS retry_first_pause,
       a.account_id, a.name, a.base_url, a.header_name, a.sender, a.waits_for IS NOT NULL AS waits,
       coalesce(a.credential_sealed, '') AS credential_sealed,
       coalesce((SELECT max(version) FROM policies p WHERE p.workspace_id = w.workspace_id), 0)
           AS policy_version"
    };
}

statements! {
    /// Loads runs, and what holds for an action that calls the account of each. Each run is looked
    /// up by its key, whatever a plan of an empty table would prefer.
    fn load_runs(runs: &[RunRow<'_>]) -> Vec<LoadedRun> = concat!("
SELECT r.workspace_id, r.run_id, r.run_as, r.workflow_id, r.release_id, r.received_at, r.input,
       r.failing, r.traceparent, ", circumstances!(), "
FROM unnest($1::run_change[]) AS t
CROSS JOIN LATERAL (
    SELECT * FROM runs r WHERE r.workspace_id = t.workspace_id AND r.run_id = t.run_id LIMIT 1
) AS r
JOIN workspaces w ON w.workspace_id = t.workspace_id
LEFT JOIN members m ON m.workspace_id = r.workspace_id AND m.user_id = r.run_as
LEFT JOIN connected_accounts a
    ON a.workspace_id = t.workspace_id AND a.account_id = t.account_id AND a.user_id = r.run_as
    AND a.disconnected_at IS NULL");

    /// How much runs have stored: sizes are read without what they are of.
    fn stored_of_runs(runs: &[RunRow<'_>]) -> Vec<Stored> = "
SELECT a.workspace_id, a.run_id,
       sum(coalesce(pg_column_size(a.request), 0)
           + coalesce(pg_column_size(a.answer_sealed), 0)
           + coalesce(pg_column_size(a.failed_with), 0))::bigint AS stored
FROM unnest($1::run_change[]) AS t
JOIN run_actions a ON a.workspace_id = t.workspace_id AND a.run_id = t.run_id
GROUP BY a.workspace_id, a.run_id";

    /// What runs have done, with the answers of people. Of an action that is over its request is
    /// not needed any more, and of an agent that is over no part. What accounts have answered is
    /// read for runs with little of it, and for the parts of agents.
    fn action_records(runs: &[RunRow<'_>], with_little: &[RunId]) -> Vec<Record> = "
SELECT a.workspace_id, a.run_id, a.action_id, a.state, a.branch, a.attempts,
       a.is_told OR a.state = 'succeeded' AS is_done,
       CASE WHEN a.is_told AND a.answer_sealed IS NULL THEN a.error END AS refused,
       CASE WHEN a.state = 'failed' AND NOT a.is_told THEN a.error END AS failed,
       CASE WHEN a.state <> 'succeeded' AND NOT a.is_told THEN a.request END AS request,
       a.response_status, coalesce(octet_length(a.answer_sealed), 0) AS answer_length,
       CASE WHEN a.run_id = ANY ($2) OR a.part_of IS NOT NULL
           THEN a.answer_sealed END AS answer_sealed,
       a.unanswered, a.begun, a.answered,
       extract(epoch FROM clock_timestamp() - a.started_at)::float8 AS age,
       extract(epoch FROM a.retry_at - clock_timestamp())::float8 AS retry_in,
       p.state AS approval_state, CASE p.state
           WHEN 'pending'
               -- Longer than an answer may take that began in time, so that none is overlooked.
               THEN extract(epoch FROM p.expires_at + interval '5 seconds'
                   - question_clock(a.workspace_id))::float8
       END AS approval_expires_in,
       CASE p.state
           WHEN 'approved' THEN NOT approval_stands(a.workspace_id, p.decided_by,
               (SELECT run_as FROM runs r
                WHERE r.workspace_id = a.workspace_id AND r.run_id = a.run_id), p.proven_by)
       END AS approval_lapsed
FROM unnest($1::run_change[]) AS t
JOIN run_actions a ON a.workspace_id = t.workspace_id AND a.run_id = t.run_id
LEFT JOIN approvals p ON p.workspace_id = a.workspace_id AND p.run_id = a.run_id
    AND p.action_id = a.action_id
LEFT JOIN run_actions g ON g.workspace_id = a.workspace_id AND g.run_id = a.run_id
    AND g.action_id = a.part_of
WHERE g.state IS DISTINCT FROM 'succeeded'";

    /// What accounts have answered to some actions of a run, sealed; of those only that have kept
    /// it.
    pub fn answers_of_actions(
        workspace: WorkspaceId, run: RunId, actions: &[&str],
    ) -> Vec<(String, Vec<u8>)> = "
SELECT action_id, answer_sealed FROM run_actions
WHERE workspace_id = $1 AND run_id = $2 AND action_id = ANY ($3) AND answer_sealed IS NOT NULL";

    /// What holds now for an action of a user that calls the account with this name.
    pub fn circumstances(
        workspace: WorkspaceId, owner: UserId, account: &str,
    ) -> Circumstances = concat!("
SELECT ", circumstances!(), "
FROM workspaces w
LEFT JOIN members m ON m.workspace_id = w.workspace_id AND m.user_id = $2
LEFT JOIN connected_accounts a
    ON a.workspace_id = w.workspace_id AND a.user_id = $2 AND a.name = $3
    AND a.disconnected_at IS NULL
WHERE w.workspace_id = $1");

    /// A release.
    pub fn release_texts(
        workspace: WorkspaceId, workflow: WorkflowId, release: ReleaseId,
    ) -> StoredRelease = "
SELECT form, actions, on_failure, language FROM releases
WHERE workspace_id = $1 AND workflow_id = $2 AND release_id = $3";

    /// The text of a policy.
    pub fn policy_text(workspace: WorkspaceId, version: i32) -> (String,) = "
SELECT policy FROM policies WHERE workspace_id = $1 AND version = $2";
}

/// A loaded run, with its records by action.
pub type Loaded = (RunFacts, HashMap<String, ActionRecord>);
pub type AllLoaded = HashMap<TurnKey, Loaded>;

/// Loads runs, each to call an account, by run, without what they have done.
pub async fn load_new<C: Client>(
    client: &C,
    runs: impl Iterator<Item = (TurnKey, Option<AccountId>)>,
) -> Result<AllLoaded, C::Error> {
    let rows = runs.map(|(key, account)| RunRow::of_run(key, account));
    let rows: Vec<RunRow<'_>> = rows.collect();
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let found = load_runs(client, &rows).await?.into_iter();
    Ok(found
        .map(|one| (one.key, (one.facts, HashMap::new())))
        .collect())
}

/// Loads runs that were taken, by run.
pub async fn load(database: &Database, taken: &[TakenRun]) -> Result<AllLoaded, DatabaseError> {
    let all = taken.iter().map(|one| (one.turn.key(), one.account));
    let mut loaded = load_new(database, all).await?;

    // In its first turn a run has done nothing yet.
    let before = taken.iter().filter(|one| !one.is_first);
    let before = before.map(|one| RunRow::of_run(one.turn.key(), one.account));
    let before: Vec<RunRow<'_>> = before.collect();
    if !before.is_empty() {
        for Stored { key, stored } in stored_of_runs(database, &before).await? {
            if let Some((facts, _)) = loaded.get_mut(&key) {
                facts.stored = usize::try_from(stored).unwrap_or(usize::MAX);
            }
        }
        let with_little = loaded.iter();
        let with_little = with_little.filter(|(_, (facts, _))| facts.stored <= MAX_HELD);
        let with_little: Vec<RunId> = with_little.map(|((_, run), _)| *run).collect();
        for one in action_records(database, &before, &with_little).await? {
            if let Some((_, records)) = loaded.get_mut(&one.key) {
                records.insert(one.action_id, one.record);
            }
        }
    }
    Ok(loaded)
}

#[derive(FromRow)]
struct LoadedRun {
    #[row(from = key)]
    key: TurnKey,
    #[row(flatten)]
    facts: RunFacts,
}

#[derive(FromRow)]
struct Stored {
    #[row(from = key)]
    key: TurnKey,
    stored: i64,
}

#[derive(FromRow)]
struct Record {
    #[row(from = key)]
    key: TurnKey,
    action_id: String,
    #[row(flatten)]
    record: ActionRecord,
}

/// The JSON texts of a release, and the version of the language that they were checked by.
#[derive(FromRow)]
pub struct StoredRelease {
    #[row(from = texts)]
    pub texts: ReleaseTexts,
    pub language: i16,
}

fn texts(row: &Row) -> Result<ReleaseTexts, RowError> {
    Ok(ReleaseTexts {
        form: row.try_get("form")?,
        actions: row.try_get("actions")?,
        on_failure: row.try_get("on_failure")?,
    })
}
