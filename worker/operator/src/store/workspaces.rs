//! Workspaces and their allowances.

use jiff::Timestamp;
use letterbox_common::ids::{RunId, WebhookId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use tokio_postgres::{Error, Row};

statements! {
    /// Creates a workspace.
    CREATE_WORKSPACE = create_workspace "
INSERT INTO workspaces (workspace_id, name, run_allowance) VALUES ($1, $2, $3)
RETURNING workspace_id, name, run_allowance, held_at, created_at";

    /// All workspaces, oldest first.
    WORKSPACES = workspaces "
SELECT workspace_id, name, run_allowance, held_at, created_at
FROM workspaces ORDER BY created_at, workspace_id";

    /// Whether there is such a workspace.
    WORKSPACE_EXISTS = workspace_exists "
SELECT EXISTS (SELECT FROM workspaces WHERE workspace_id = $1) AS is_there";

    /// The allowance of a workspace and what it has used of it this month.
    ALLOWANCE = allowance "
SELECT w.workspace_id, w.run_allowance, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM') AS month,
       coalesce(u.started, 0) AS started
FROM workspaces w LEFT JOIN run_usage u
    ON u.workspace_id = w.workspace_id
    AND u.month = date_trunc('month', now() AT TIME ZONE 'UTC')
WHERE w.workspace_id = $1";

    /// What a workspace has used, and what of it waits.
    USAGE = workspace_usage "
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

    /// What the webhooks of a workspace have stored today, the most first.
    USAGE_BY_WEBHOOK = usage_by_webhook "
SELECT w.webhook_id, w.name, b.bytes AS bytes_today
FROM stored_bytes b JOIN webhooks w USING (workspace_id, webhook_id)
WHERE b.workspace_id = $1 AND b.day = (now() AT TIME ZONE 'UTC')::date
ORDER BY b.bytes DESC, w.webhook_id LIMIT 100";

    /// Ends the forms, webhooks and accounts of a workspace of this name.
    CLOSE_WORKSPACE = close_workspace "
SELECT close_workspace(workspace_id) FROM workspaces WHERE workspace_id = $1 AND name = $2";

    /// Deletes a piece of what a closed workspace holds, and in the end the workspace.
    EMPTY_WORKSPACE = empty_workspace "SELECT empty_workspace($1, $2) AS deleted";

    /// How often a workspace has its actions tried.
    RETRIES = retries "
SELECT workspace_id, retry_attempts, retry_first_milliseconds
FROM workspaces WHERE workspace_id = $1";

    /// Sets how often a workspace has its actions tried.
    SET_RETRIES = set_retries "
UPDATE workspaces SET retry_attempts = $2, retry_first_milliseconds = $3
WHERE workspace_id = $1";

    /// Sets whether answers are kept when their run has succeeded.
    KEEP_ANSWERS = keep_answers "
UPDATE workspaces SET keep_answers = $2 WHERE workspace_id = $1";

    /// Sets whether new runs can be found by what was submitted to them.
    SET_SEARCH = set_search "
UPDATE workspaces SET is_searchable = $2 WHERE workspace_id = $1";

    /// Whether new runs can be found by what was submitted to them.
    IS_SEARCHABLE = is_searchable "
SELECT coalesce((SELECT is_searchable FROM workspaces WHERE workspace_id = $1), false)
       AS is_searchable";

    /// Takes the next runs out of the search.
    STOP_SEARCH = stop_search "SELECT stop_search($1, $2, $3) AS last";

    /// Holds a workspace, if it is not held yet.
    HOLD = hold "
UPDATE workspaces SET held_at = clock_timestamp() WHERE workspace_id = $1 AND held_at IS NULL";

    /// Holds all workspaces, if they are not held yet.
    HOLD_ALL = hold_all "
UPDATE all_workspaces SET held_at = clock_timestamp() WHERE held_at IS NULL";

    /// Lets the runs of a workspace, or of all, begin actions again.
    RELEASE = release "SELECT release_hold($1) AS was_held";

    /// Sets the allowance of a workspace.
    SET_ALLOWANCE = set_allowance "
UPDATE workspaces SET run_allowance = $2 WHERE workspace_id = $1";
}

/// What a workspace uses: for invoices, and to see who needs so much. No metric has it.
#[derive(Debug, Clone, Serialize)]
pub struct Usage {
    /// The tenant.
    pub workspace_id: WorkspaceId,
    /// This month, in UTC.
    pub month: String,
    /// Runs that have started in it.
    pub runs_started: i32,
    /// Runs that may; none is unlimited.
    pub run_allowance: Option<i32>,
    /// Runs that are not over.
    pub runs_under_way: i64,
    /// Questions that wait for a person.
    pub pending_approvals: i64,
    /// Bodies of signals and inputs of runs that were stored today (UTC), a few seconds ago.
    pub bytes_today: i64,
    /// Of them, what webhooks have stored, the most first; a hundred of them.
    pub webhooks: Vec<WebhookUsage>,
}

/// What a webhook has stored today.
#[derive(Debug, Clone, Serialize)]
pub struct WebhookUsage {
    /// The webhook.
    pub webhook_id: WebhookId,
    /// For people.
    pub name: String,
    /// Bodies of signals.
    pub bytes_today: i64,
}

/// What a workspace uses; none where there is no such workspace.
pub(crate) async fn usage(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Option<Usage>, DatabaseError> {
    let Some(row) = database.query_opt(&USAGE, &[&workspace]).await? else {
        return Ok(None);
    };
    let webhooks = database.query(&USAGE_BY_WEBHOOK, &[&workspace]).await?;
    let webhooks = webhooks.iter().map(|row| {
        Ok(WebhookUsage {
            webhook_id: row.try_get("webhook_id")?,
            name: row.try_get("name")?,
            bytes_today: row.try_get("bytes_today")?,
        })
    });
    Ok(Some(Usage {
        workspace_id: row.try_get("workspace_id")?,
        month: row.try_get("month")?,
        runs_started: row.try_get("runs_started")?,
        run_allowance: row.try_get("run_allowance")?,
        runs_under_way: row.try_get("runs_under_way")?,
        pending_approvals: row.try_get("pending_approvals")?,
        bytes_today: row.try_get("bytes_today")?,
        webhooks: webhooks.collect::<Result<_, DatabaseError>>()?,
    }))
}

/// A tenant.
#[derive(Debug, Clone, Serialize)]
pub struct Workspace {
    /// `orgId` in the URLs of its webhooks.
    pub workspace_id: WorkspaceId,
    /// For people; need not be unique.
    pub name: String,
    /// Runs that may start in a calendar month; none is unlimited.
    pub run_allowance: Option<i32>,
    /// Since when its runs begin no action; None while they do.
    pub held_at: Option<Timestamp>,
    /// By the database's clock.
    pub created_at: Timestamp,
}

impl Workspace {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            workspace_id: row.try_get("workspace_id")?,
            name: row.try_get("name")?,
            run_allowance: row.try_get("run_allowance")?,
            held_at: row.try_get("held_at")?,
            created_at: row.try_get("created_at")?,
        })
    }
}

/// A workspace's allowance of runs, and how much of it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowance {
    /// The workspace whose runs are counted.
    pub workspace_id: WorkspaceId,
    /// Runs that may start in a calendar month; None is unlimited.
    pub run_allowance: Option<i32>,
    /// This month (UTC), as `YYYY-MM`.
    pub month: String,
    /// Runs started in it.
    pub started: i32,
}

/// How often an action of a workspace is tried; None is what workers are set to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Retries {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Attempts at one action, the first included.
    pub attempts: Option<i32>,
    /// Pause before the second attempt, doubled for each further one, up to an hour.
    pub first_pause_milliseconds: Option<i32>,
}

pub(crate) async fn retries(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Option<Retries>, DatabaseError> {
    let row = database.query_opt(&RETRIES, &[&workspace]).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Retries {
        workspace_id: row.try_get("workspace_id")?,
        attempts: row.try_get("retry_attempts")?,
        first_pause_milliseconds: row.try_get("retry_first_milliseconds")?,
    }))
}

pub(crate) async fn set_retries(
    database: &Database,
    retries: &Retries,
) -> Result<(), DatabaseError> {
    database
        .execute(
            &SET_RETRIES,
            &[
                /* $1 workspace_id */ &retries.workspace_id,
                /* $2 retry_attempts */ &retries.attempts,
                /* $3 retry_first_milliseconds */ &retries.first_pause_milliseconds,
            ],
        )
        .await
        .map(drop)
}

pub(crate) async fn create_workspace(
    database: &Database,
    id: WorkspaceId,
    name: &str,
    allowance: Option<i32>,
) -> Result<Workspace, DatabaseError> {
    let row = database
        .query_one(&CREATE_WORKSPACE, &[&id, &name, &allowance])
        .await?;
    Ok(Workspace::decode(&row)?)
}

pub(crate) async fn workspaces(database: &Database) -> Result<Vec<Workspace>, DatabaseError> {
    let rows = database.query(&WORKSPACES, &[]).await?;
    rows.iter().map(|row| Ok(Workspace::decode(row)?)).collect()
}

pub(crate) async fn workspace_exists(
    database: &Database,
    id: WorkspaceId,
) -> Result<bool, DatabaseError> {
    Ok(database
        .query_one(&WORKSPACE_EXISTS, &[&id])
        .await?
        .try_get("is_there")?)
}

pub(crate) async fn allowance(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Option<Allowance>, DatabaseError> {
    let row = database.query_opt(&ALLOWANCE, &[&workspace]).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Allowance {
        workspace_id: row.try_get("workspace_id")?,
        run_allowance: row.try_get("run_allowance")?,
        month: row.try_get("month")?,
        started: row.try_get("started")?,
    }))
}

pub(crate) async fn set_allowance(
    database: &Database,
    workspace: WorkspaceId,
    runs: Option<i32>,
) -> Result<(), DatabaseError> {
    database
        .execute(&SET_ALLOWANCE, &[&workspace, &runs])
        .await
        .map(drop)
}

pub(crate) async fn keep_answers(
    database: &Database,
    workspace: WorkspaceId,
    keep: bool,
) -> Result<(), DatabaseError> {
    database
        .execute(&KEEP_ANSWERS, &[&workspace, &keep])
        .await
        .map(drop)
}

/// Holds a workspace, or all; false where it was held already.
pub(crate) async fn hold(
    database: &Database,
    workspace: Option<WorkspaceId>,
) -> Result<bool, DatabaseError> {
    let held = match workspace {
        Some(workspace) => database.execute(&HOLD, &[&workspace]).await?,
        None => database.execute(&HOLD_ALL, &[]).await?,
    };
    Ok(held > 0)
}

/// Releases a workspace, or all; false where it was not held.
pub(crate) async fn release(
    database: &Database,
    workspace: Option<WorkspaceId>,
) -> Result<bool, DatabaseError> {
    let row = database.query_one(&RELEASE, &[&workspace]).await?;
    Ok(row.try_get("was_held")?)
}

/// False if there is no such workspace of this name.
pub(crate) async fn close_workspace(
    database: &Database,
    workspace: WorkspaceId,
    name: &str,
) -> Result<bool, DatabaseError> {
    let closed = database
        .query_opt(&CLOSE_WORKSPACE, &[&workspace, &name])
        .await?;
    Ok(closed.is_some())
}

/// Deletes at most `most` rows; gives how many, 0 when the workspace itself is gone.
pub(crate) async fn empty_workspace(
    database: &Database,
    workspace: WorkspaceId,
    most: i32,
) -> Result<i64, DatabaseError> {
    let row = database
        .query_one(&EMPTY_WORKSPACE, &[&workspace, &most])
        .await?;
    Ok(row.try_get("deleted")?)
}

pub(crate) async fn set_search(
    database: &Database,
    workspace: WorkspaceId,
    is_searchable: bool,
) -> Result<(), DatabaseError> {
    database
        .execute(&SET_SEARCH, &[&workspace, &is_searchable])
        .await
        .map(drop)
}

/// Takes so many runs, beyond one, out of the search; gives the last of them, None at the end.
pub(crate) async fn stop_search(
    database: &Database,
    workspace: WorkspaceId,
    beyond: RunId,
    most: i32,
) -> Result<Option<RunId>, DatabaseError> {
    let row = database
        .query_one(&STOP_SEARCH, &[&workspace, &beyond, &most])
        .await?;
    Ok(row.try_get("last")?)
}

pub(crate) async fn is_searchable(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<bool, DatabaseError> {
    let row = database.query_one(&IS_SEARCHABLE, &[&workspace]).await?;
    Ok(row.try_get("is_searchable")?)
}
