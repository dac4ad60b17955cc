//! The statements of trials.

use jiff::Timestamp;
use letterbox_common::ids::{AccountId, UserId, WorkspaceId};
use letterbox_database::{FromRow, statements};

statements! {
    /// Takes what was asked and has not begun, of each workspace one at a time, each for 40
    /// seconds, and forgets what is an hour old, or from before the clock was set back.
    pub fn take_trials(most: i64) -> Vec<DueTrial> = "
WITH forgotten AS (
    DELETE FROM account_trials f USING (
        SELECT workspace_id, account_id FROM account_trials
        WHERE asked_at NOT BETWEEN now() - interval '1 hour' AND now() + interval '1 minute'
        FOR UPDATE SKIP LOCKED
    ) AS old WHERE f.workspace_id = old.workspace_id AND f.account_id = old.account_id
), due AS (
    SELECT t.workspace_id, t.account_id FROM account_trials t
    WHERE t.answered_at IS NULL AND t.begun_at IS NULL AND t.asked_at > now() - interval '1 minute'
      AND NOT EXISTS (
          SELECT FROM account_trials o
          WHERE o.workspace_id = t.workspace_id AND o.answered_at IS NULL
            AND (o.begun_at > now() - interval '150 seconds'
                OR o.asked_at > now() - interval '1 minute' AND o.begun_at IS NULL
                AND (o.taken_until BETWEEN now() AND now() + interval '40 seconds'
                    OR (o.asked_at, o.account_id) < (t.asked_at, t.account_id))))
    ORDER BY t.asked_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE account_trials t SET taken_until = now() + interval '40 seconds'
FROM due JOIN connected_accounts a USING (workspace_id, account_id)
WHERE t.workspace_id = due.workspace_id AND t.account_id = due.account_id
RETURNING t.workspace_id, t.account_id, t.user_id, t.asked_at, t.path, t.step, a.name";

    /// Begins a trial, if all that it was decided by still holds, it has not begun, and it was not
    /// asked for once more since: what has begun is never sent again.
    pub fn begin_trial(
        workspace: WorkspaceId, account: AccountId, asked_at: Timestamp, policy_version: i32,
    ) -> u64 = "
UPDATE account_trials t SET begun_at = clock_timestamp()
FROM connected_accounts c JOIN members m USING (workspace_id, user_id)
WHERE t.workspace_id = $1 AND t.account_id = $2 AND t.asked_at = $3 AND t.begun_at IS NULL
  AND t.answered_at IS NULL AND t.asked_at > clock_timestamp() - interval '1 minute'
  AND c.workspace_id = t.workspace_id AND c.account_id = t.account_id
  AND c.disconnected_at IS NULL AND c.waits_for IS NULL AND m.may_run
  AND (SELECT true FROM held_workspaces h WHERE h.workspace_id = $1) IS NULL
  AND $4 = coalesce((SELECT max(version) FROM policies p WHERE p.workspace_id = $1), 0)";

    /// The connected accounts of a user: their names and base URLs.
    pub fn accounts_of(workspace: WorkspaceId, user: UserId) -> Vec<(String, String)> = "
SELECT name, base_url FROM connected_accounts
WHERE workspace_id = $1 AND user_id = $2 AND disconnected_at IS NULL";

    /// Answers a trial that was not asked for once more since.
    pub fn answer_trial(
        workspace: WorkspaceId, account: AccountId, asked_at: Timestamp, status: Option<i32>,
        answer: Option<&str>, error: Option<&str>,
    ) = "
UPDATE account_trials SET answered_at = now(), status = $4, answer = $5, error = $6
WHERE workspace_id = $1 AND account_id = $2 AND asked_at = $3 AND answered_at IS NULL";
}

/// A trial that is to be sent.
#[derive(FromRow)]
pub struct DueTrial {
    pub workspace_id: WorkspaceId,
    pub account_id: AccountId,
    pub user_id: UserId,
    pub asked_at: Timestamp,
    /// Of a GET.
    pub path: Option<String>,
    /// JSON text of a [`SampledStep`](letterbox_workflow::rehearsal::SampledStep), if it is no GET.
    pub step: Option<String>,
    pub name: String,
}
