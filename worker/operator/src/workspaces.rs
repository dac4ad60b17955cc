//! Workspaces: what they use, holds, and their end.

use jiff::Timestamp;
use letterbox_common::ids::{RunId, WebhookId, WorkspaceId};
use letterbox_database::{FromRow, statements};
use serde::Serialize;

use crate::{
    Operator, Reason, Result, asking::Sought, check_name, received::a_day_ago,
    workspace_settings::stored_allowance,
};

/// Rows that one statement deletes or changes.
const PIECE: i32 = 1_000;

statements! {
    /// Creates a workspace.
    fn create_workspace(
        workspace: WorkspaceId, name: &str, run_allowance: Option<i32>,
    ) -> Workspace = "
INSERT INTO workspaces (workspace_id, name, run_allowance) VALUES ($1, $2, $3)
RETURNING workspace_id, name, run_allowance, held_at, created_at";

    /// All workspaces, oldest first.
    desk fn workspaces() -> Vec<Workspace> = "
SELECT workspace_id, name, run_allowance, held_at, created_at
FROM workspaces ORDER BY created_at, workspace_id";

    /// What has come into each workspace in the last 24 hours.
    desk fn days(a_day_ago: RunId) -> Vec<Day> = "
SELECT w.workspace_id, w.name, count(f.workflow_id) AS workflows,
       coalesce(sum(u.answers), 0)::bigint AS answers, coalesce(sum(u.failed), 0)::bigint AS failed
FROM workspaces w
LEFT JOIN workflows f ON f.workspace_id = w.workspace_id AND f.state <> 'deleted'
LEFT JOIN LATERAL (
    SELECT count(*) AS answers, count(*) FILTER (WHERE r.state = 'failed') AS failed
    FROM (SELECT r.state FROM runs r
          WHERE r.workflow_id = f.workflow_id AND r.workspace_id = f.workspace_id
            AND r.run_id >= $1
          ORDER BY r.run_id DESC LIMIT 1001) AS r
) AS u ON true
GROUP BY w.workspace_id, w.name ORDER BY w.name, w.workspace_id";

    /// Whether there is such a workspace.
    desk fn workspace_exists(workspace: WorkspaceId) -> u64 = "
SELECT FROM workspaces WHERE workspace_id = $1";

    /// A workspace's usage.
    fn workspace_usage(workspace: WorkspaceId) -> Option<Usage> = "
SELECT w.workspace_id, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM') AS month, w.run_allowance,
       coalesce(u.started, 0) AS runs_started, coalesce(b.bytes, 0) AS bytes_today,
       (SELECT count(*) FROM runs r WHERE r.workspace_id = $1 AND r.finished_at IS NULL)
           AS runs_under_way,
       (SELECT count(*) FROM approvals a WHERE a.workspace_id = $1 AND a.state = 'pending')
           AS pending_approvals
FROM workspaces w
LEFT JOIN run_usage u ON u.workspace_id = w.workspace_id
    AND u.month = date_trunc('month', now() AT TIME ZONE 'UTC')
LEFT JOIN stored_bytes b ON b.workspace_id = w.workspace_id
    AND b.day = (now() AT TIME ZONE 'UTC')::date
    AND b.webhook_id IS NULL
WHERE w.workspace_id = $1";

    /// Bytes that a workspace's webhooks have stored today, the largest first.
    fn usage_by_webhook(workspace: WorkspaceId) -> Vec<WebhookUsage> = "
SELECT w.webhook_id, w.name, b.bytes AS bytes_today
FROM stored_bytes b JOIN webhooks w USING (workspace_id, webhook_id)
WHERE b.workspace_id = $1 AND b.day = (now() AT TIME ZONE 'UTC')::date
ORDER BY b.bytes DESC, w.webhook_id LIMIT 100";

    /// Ends the forms, webhooks and accounts of a workspace of this name.
    fn close_workspace(workspace: WorkspaceId, name: &str) -> u64 = "
SELECT close_workspace(workspace_id) FROM workspaces WHERE workspace_id = $1 AND name = $2";

    /// Deletes a piece of what a closed workspace holds, and in the end the workspace.
    fn empty_workspace(workspace: WorkspaceId, most: i32) -> (i64,) = "
SELECT empty_workspace($1, $2) AS deleted";

    /// Whether new runs can be found by what was submitted to them.
    desk pub(crate) fn is_searchable(workspace: WorkspaceId) -> (bool,) = "
SELECT coalesce((SELECT is_searchable FROM workspaces WHERE workspace_id = $1), false)
       AS is_searchable";

    /// Takes the next runs out of the search. Returns the last of them.
    fn stop_search(
        workspace: WorkspaceId, beyond: Option<RunId>, most: i32,
    ) -> (Option<RunId>,) = "SELECT stop_search($1, $2, $3) AS last";

    /// Holds a workspace, if it is not held yet.
    fn hold(workspace: WorkspaceId) -> u64 = "
UPDATE workspaces SET held_at = clock_timestamp() WHERE workspace_id = $1 AND held_at IS NULL";

    /// Holds all workspaces, if they are not held yet.
    fn hold_all() -> u64 = "
UPDATE all_workspaces SET held_at = clock_timestamp() WHERE held_at IS NULL";

    /// Lets the runs of a workspace, or of all, begin actions again.
    fn release(workspace: Option<WorkspaceId>) -> (bool,) = "
SELECT release_hold($1) AS was_held";
}

/// A tenant.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Workspace {
    /// `orgId` in the URLs of its webhooks.
    pub workspace_id: WorkspaceId,
    /// For people; need not be unique.
    pub name: String,
    /// Runs that may start in a calendar month; `None` is unlimited.
    pub run_allowance: Option<i32>,
    /// Since when its runs begin no action; `None` while they do.
    pub held_at: Option<Timestamp>,
    /// By the database's clock.
    pub created_at: Timestamp,
}

/// The usage of a workspace: for invoices, and to see which one needs so much. No metric has it.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Usage {
    /// The tenant.
    pub workspace_id: WorkspaceId,
    /// This month, in UTC.
    pub month: String,
    /// Runs that have started in it.
    pub runs_started: i32,
    /// Runs that may; `None` is unlimited.
    pub run_allowance: Option<i32>,
    /// Runs that are not over.
    pub runs_under_way: i64,
    /// Questions that wait for a person.
    pub pending_approvals: i64,
    /// Bodies of signals and inputs of runs that were stored today (UTC), a few seconds ago.
    pub bytes_today: i64,
    /// The share of each webhook in them, largest first; at most a hundred.
    #[row(default)]
    pub webhooks: Vec<WebhookUsage>,
}

/// The usage of a webhook.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct WebhookUsage {
    /// The webhook.
    pub webhook_id: WebhookId,
    /// For people.
    pub name: String,
    /// Bodies of signals.
    pub bytes_today: i64,
}

/// What has come into a workspace in the last 24 hours; of each workflow 1001 submissions are
/// counted at most.
#[derive(Debug, Clone, FromRow)]
pub struct Day {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Its name.
    pub name: String,
    /// How many workflows it has.
    pub workflows: i64,
    /// Submissions.
    pub answers: i64,
    /// Those of them whose runs failed.
    pub failed: i64,
}

impl Operator {
    /// What has come into each workspace in the last 24 hours.
    pub async fn days(&self) -> Result<Vec<Day>> {
        days(self, a_day_ago()).await
    }

    /// Creates a workspace that may start `run_allowance` runs in a calendar month; `None` is
    /// unlimited.
    pub async fn create_workspace(
        &self,
        name: &str,
        run_allowance: Option<u32>,
    ) -> Result<Workspace> {
        check_workspace(name)?;
        let id = WorkspaceId::generate();
        let allowance = stored_allowance(run_allowance)?;
        create_workspace(self, id, name, allowance).await
    }

    /// Lists all workspaces.
    pub async fn workspaces(&self) -> Result<Vec<Workspace>> {
        workspaces(self).await
    }

    /// Tells what a workspace uses.
    pub async fn usage(&self, workspace: WorkspaceId) -> Result<Usage> {
        let mut usage = workspace_usage(self, workspace).await?.found("workspace")?;
        usage.webhooks = usage_by_webhook(self, workspace).await?;
        Ok(usage)
    }

    /// Deletes what stands for the values of runs, in small pieces: in no other transaction, since
    /// what records runs waits for a piece.
    pub(crate) async fn end_search(&self, workspace: WorkspaceId) -> Result<()> {
        let mut beyond = None::<RunId>;
        loop {
            (beyond,) = stop_search(self, workspace, beyond, PIECE).await?;
            if beyond.is_none() {
                return Ok(());
            }
        }
    }

    /// Holds a workspace, or all: its runs begin no action until it is released. Forms and webhooks
    /// go on. Returns `false` if it was held already.
    pub async fn hold(&self, workspace: Option<WorkspaceId>) -> Result<bool> {
        self.need_workspace(workspace).await?;
        let held = match workspace {
            Some(workspace) => hold(self, workspace).await?,
            None => hold_all(self).await?,
        };
        Ok(held > 0)
    }

    /// Lets the runs of a workspace, or of all, begin actions again. Questions that waited for an
    /// answer meanwhile wait for so much longer. Returns `false` if it was not held.
    pub async fn release(&self, workspace: Option<WorkspaceId>) -> Result<bool> {
        self.need_workspace(workspace).await?;
        Ok(release(self, workspace).await?.0)
    }

    /// Deletes a workspace with everything in it, and the users who belong to no other. Its forms,
    /// webhooks and accounts end first; the rest goes in small pieces. To repeat the order after a
    /// failure is safe.
    ///
    /// # Errors
    /// When there is no such workspace of this name, or its signals still go to queues.
    pub async fn delete_workspace(&self, workspace: WorkspaceId, name: &str) -> Result<u64> {
        // Queues and logins are at the broker, where nothing here would end them.
        let subscriptions = self.subscriptions(workspace).await?;
        if !subscriptions.is_empty() {
            let targets = subscriptions.into_iter().map(|one| one.target);
            return Err(Reason::Subscribed(targets.collect()).into());
        }
        let closed = close_workspace(self, workspace, name).await?;
        closed.found("workspace of this name")?;
        let mut deleted = 0;
        loop {
            let (rows,) = empty_workspace(self, workspace, PIECE).await?;
            // At last it deletes the workspace itself, and then finds nothing.
            if rows == 0 {
                return Ok(deleted);
            }
            deleted += rows.unsigned_abs();
        }
    }

    /// There must be this workspace; `None` is all.
    pub(crate) async fn need_workspace(
        &self,
        workspace: impl Into<Option<WorkspaceId>>,
    ) -> Result<()> {
        match workspace.into() {
            Some(workspace) => workspace_exists(self, workspace).await?.found("workspace"),
            None => Ok(()),
        }
    }
}

/// Checks the name of a new workspace.
pub(crate) fn check_workspace(name: &str) -> Result<()> {
    match name {
        "all" => Err(Reason::ReservedName.into()),
        name => check_name(name),
    }
}
