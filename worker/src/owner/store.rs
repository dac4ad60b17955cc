//! The statements behind an owner's orders.

use jiff::Timestamp;
use letterbox_common::{
    ids::{DeliveryId, ReleaseId, RunId, UserId, WebhookId, WorkflowId, WorkspaceId},
    webhook::WebhookAddress,
};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Client, Error, Row};

/// A tenant.
#[derive(Debug, Clone, Serialize)]
pub struct Workspace {
    pub workspace_id: WorkspaceId,
    pub name: String,
    /// Runs that may start in a calendar month; without limit if there is none.
    pub run_allowance: Option<i32>,
    pub created_at: Timestamp,
}

/// A workspace's allowance of runs, and how much of it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowance {
    pub workspace_id: WorkspaceId,
    pub run_allowance: Option<i32>,
    /// This month (UTC), as `YYYY-MM`.
    pub month: String,
    /// Runs started in it.
    pub started: i32,
}

/// A person.
#[derive(Debug, Clone, Serialize)]
pub struct User {
    pub user_id: UserId,
    pub email: String,
    pub name: String,
    pub created_at: Timestamp,
}

/// A person's place in a workspace.
#[derive(Debug, Clone, Serialize)]
pub struct Member {
    pub workspace_id: WorkspaceId,
    pub user_id: UserId,
    pub email: String,
    pub name: String,
    pub role: String,
    pub deactivated_at: Option<Timestamp>,
    pub may_run: bool,
}

/// A webhook, without its secret.
#[derive(Debug, Clone, Serialize)]
pub struct WebhookRow {
    pub webhook_id: WebhookId,
    pub workspace_id: WorkspaceId,
    pub name: String,
    pub created_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}

/// A signal in a list.
#[derive(Debug, Clone, Serialize)]
pub struct SignalRow {
    pub signal_id: DeliveryId,
    pub workspace_id: WorkspaceId,
    pub webhook_id: WebhookId,
    pub kind: String,
    pub generic_reason: Option<String>,
    pub entity: Option<String>,
    pub source_tool: Option<String>,
    /// Decimal notation: a text, because programs read numbers as binary floats.
    pub amount_value: Option<String>,
    pub amount_currency: Option<String>,
    pub event_id: Option<String>,
    pub received_at: Timestamp,
}

/// A signal with everything that is known of it.
#[derive(Debug, Clone, Serialize)]
pub struct SignalDetail {
    #[serde(flatten)]
    pub row: SignalRow,
    pub stored_at: Timestamp,
    /// The exact body: it is UTF-8, or it would not have been accepted.
    pub body: String,
}

/// A run in a list.
#[derive(Debug, Clone, Serialize)]
pub struct RunRow {
    pub run_id: RunId,
    pub workspace_id: WorkspaceId,
    pub workflow_id: WorkflowId,
    pub release_id: ReleaseId,
    /// The user under whose identity it runs.
    pub run_as: UserId,
    pub state: String,
    pub refused_reason: Option<String>,
    pub received_at: Timestamp,
    pub created_at: Timestamp,
}

/// A run with everything that is known of it.
#[derive(Debug, Clone, Serialize)]
pub struct RunDetail {
    #[serde(flatten)]
    pub row: RunRow,
    /// `untrusted`: a stranger wrote the input.
    pub input_trust: String,
    pub input: Value,
}

const CREATE_WORKSPACE: &str = "
INSERT INTO workspaces (workspace_id, name, run_allowance) VALUES ($1, $2, $3)
RETURNING workspace_id, name, run_allowance, created_at";

pub async fn create_workspace(
    client: &Client,
    id: WorkspaceId,
    name: &str,
    allowance: Option<i32>,
) -> Result<Workspace, Error> {
    workspace(&client.query_one(CREATE_WORKSPACE, &[&id, &name, &allowance]).await?)
}

const WORKSPACES: &str =
    "SELECT workspace_id, name, run_allowance, created_at FROM workspaces ORDER BY created_at, workspace_id";

pub async fn workspaces(client: &Client) -> Result<Vec<Workspace>, Error> {
    client.query(WORKSPACES, &[]).await?.iter().map(workspace).collect()
}

fn workspace(row: &Row) -> Result<Workspace, Error> {
    Ok(Workspace {
        workspace_id: row.try_get(0)?,
        name: row.try_get(1)?,
        run_allowance: row.try_get(2)?,
        created_at: row.try_get(3)?,
    })
}

const ALLOWANCE: &str = "
SELECT w.workspace_id, w.run_allowance, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM'), coalesce(u.started, 0)
FROM workspaces w LEFT JOIN run_usage u
    ON u.workspace_id = w.workspace_id AND u.month = date_trunc('month', now() AT TIME ZONE 'UTC')
WHERE w.workspace_id = $1";

pub async fn allowance(client: &Client, workspace: WorkspaceId) -> Result<Option<Allowance>, Error> {
    let Some(row) = client.query_opt(ALLOWANCE, &[&workspace]).await? else { return Ok(None) };
    Ok(Some(Allowance {
        workspace_id: row.try_get(0)?,
        run_allowance: row.try_get(1)?,
        month: row.try_get(2)?,
        started: row.try_get(3)?,
    }))
}

const SET_ALLOWANCE: &str = "UPDATE workspaces SET run_allowance = $2 WHERE workspace_id = $1";

pub async fn set_allowance(client: &Client, workspace: WorkspaceId, runs: Option<i32>) -> Result<(), Error> {
    client.execute(SET_ALLOWANCE, &[&workspace, &runs]).await.map(drop)
}

const WORKSPACE_EXISTS: &str = "SELECT EXISTS (SELECT FROM workspaces WHERE workspace_id = $1)";

pub async fn workspace_exists(client: &Client, id: WorkspaceId) -> Result<bool, Error> {
    client.query_one(WORKSPACE_EXISTS, &[&id]).await?.try_get(0)
}

const CREATE_USER: &str = "INSERT INTO users (user_id, email, name) VALUES ($1, $2, $3) RETURNING created_at";

pub async fn create_user(client: &Client, id: UserId, email: &str, name: &str) -> Result<User, Error> {
    let created_at = client.query_one(CREATE_USER, &[&id, &email, &name]).await?.try_get(0)?;
    Ok(User { user_id: id, email: email.to_owned(), name: name.to_owned(), created_at })
}

const SET_MEMBER: &str = "
WITH stored AS (
    INSERT INTO members (workspace_id, user_id, role, deactivated_at)
    VALUES ($1, $2, $3, CASE WHEN $4 THEN clock_timestamp() END)
    ON CONFLICT (workspace_id, user_id) DO UPDATE
        SET role = EXCLUDED.role, deactivated_at = CASE WHEN $4 THEN coalesce(members.deactivated_at, clock_timestamp()) END
    RETURNING *
)
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM stored m JOIN users u USING (user_id)";

pub async fn set_member(
    client: &Client,
    workspace: WorkspaceId,
    user: UserId,
    role: &str,
    deactivated: bool,
) -> Result<Member, Error> {
    member(&client.query_one(SET_MEMBER, &[&workspace, &user, &role, &deactivated]).await?)
}

const REMOVE_MEMBER: &str = "
WITH removed AS (DELETE FROM members WHERE workspace_id = $1 AND user_id = $2 RETURNING *)
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM removed m JOIN users u USING (user_id)";

pub async fn remove_member(client: &Client, workspace: WorkspaceId, user: UserId) -> Result<Option<Member>, Error> {
    client.query_opt(REMOVE_MEMBER, &[&workspace, &user]).await?.map(|row| member(&row)).transpose()
}

const MEMBERS: &str = "
SELECT m.workspace_id, m.user_id, u.email, u.name, m.role, m.deactivated_at, m.may_run
FROM members m JOIN users u USING (user_id) WHERE m.workspace_id = $1 ORDER BY u.email";

pub async fn members(client: &Client, workspace: WorkspaceId) -> Result<Vec<Member>, Error> {
    client.query(MEMBERS, &[&workspace]).await?.iter().map(member).collect()
}

fn member(row: &Row) -> Result<Member, Error> {
    Ok(Member {
        workspace_id: row.try_get(0)?,
        user_id: row.try_get(1)?,
        email: row.try_get(2)?,
        name: row.try_get(3)?,
        role: row.try_get(4)?,
        deactivated_at: row.try_get(5)?,
        may_run: row.try_get(6)?,
    })
}

const CREATE_WEBHOOK: &str =
    "INSERT INTO webhooks (workspace_id, webhook_id, name, secret_sealed) VALUES ($1, $2, $3, $4)";

pub async fn create_webhook(client: &Client, address: WebhookAddress, name: &str, sealed: &[u8]) -> Result<(), Error> {
    client.execute(CREATE_WEBHOOK, &[&address.workspace, &address.webhook, &name, &sealed]).await.map(drop)
}

const WEBHOOKS: &str = "
SELECT webhook_id, workspace_id, name, created_at, deleted_at
FROM webhooks WHERE workspace_id = $1 ORDER BY created_at, webhook_id";

pub async fn webhooks(client: &Client, workspace: WorkspaceId) -> Result<Vec<WebhookRow>, Error> {
    client.query(WEBHOOKS, &[&workspace]).await?.iter().map(webhook).collect()
}

const DELETE_WEBHOOK: &str = "
UPDATE webhooks SET deleted_at = now(), secret_sealed = NULL
WHERE webhook_id = $1 AND deleted_at IS NULL
RETURNING webhook_id, workspace_id, name, created_at, deleted_at";

pub async fn delete_webhook(client: &Client, id: WebhookId) -> Result<Option<WebhookRow>, Error> {
    client.query_opt(DELETE_WEBHOOK, &[&id]).await?.map(|row| webhook(&row)).transpose()
}

fn webhook(row: &Row) -> Result<WebhookRow, Error> {
    Ok(WebhookRow {
        webhook_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        name: row.try_get(2)?,
        created_at: row.try_get(3)?,
        deleted_at: row.try_get(4)?,
    })
}

const SEALED_SECRETS: &str = "
SELECT workspace_id, webhook_id, secret_sealed FROM webhooks
WHERE deleted_at IS NULL AND ($1::uuid IS NULL OR (workspace_id, webhook_id) > ($1, $2))
ORDER BY workspace_id, webhook_id LIMIT $3";

pub async fn sealed_secrets(
    client: &Client,
    after: Option<WebhookAddress>,
    limit: i64,
) -> Result<Vec<(WebhookAddress, Vec<u8>)>, Error> {
    let (workspace, webhook) = after.map(|address| (address.workspace, address.webhook)).unzip();
    let rows = client.query(SEALED_SECRETS, &[&workspace, &webhook, &limit]).await?;
    rows.iter()
        .map(|row| Ok((WebhookAddress { workspace: row.try_get(0)?, webhook: row.try_get(1)? }, row.try_get(2)?)))
        .collect()
}

const RESEAL_SECRET: &str = "
UPDATE webhooks SET secret_sealed = $4 WHERE workspace_id = $1 AND webhook_id = $2 AND secret_sealed = $3";

pub async fn reseal_secret(client: &Client, address: WebhookAddress, old: &[u8], new: &[u8]) -> Result<u64, Error> {
    client.execute(RESEAL_SECRET, &[&address.workspace, &address.webhook, &old, &new]).await
}

const SIGNALS: &str = "
SELECT signal_id, workspace_id, webhook_id, kind, generic_reason, entity, source_tool, amount_value::text,
       amount_currency, event_id, received_at
FROM signals WHERE workspace_id = $1 ORDER BY signal_id DESC LIMIT $2";

pub async fn signals(client: &Client, workspace: WorkspaceId, limit: u32) -> Result<Vec<SignalRow>, Error> {
    client.query(SIGNALS, &[&workspace, &i64::from(limit)]).await?.iter().map(signal_row).collect()
}

/// Goes through the workspaces, because the key of a signal begins with one.
const SIGNAL: &str = "
SELECT s.signal_id, s.workspace_id, s.webhook_id, s.kind, s.generic_reason, s.entity, s.source_tool,
       s.amount_value::text, s.amount_currency, s.event_id, s.received_at, s.stored_at, s.body
FROM workspaces w JOIN signals s ON s.workspace_id = w.workspace_id AND s.signal_id = $1";

pub async fn signal(client: &Client, id: DeliveryId) -> Result<Option<SignalDetail>, Error> {
    let Some(row) = client.query_opt(SIGNAL, &[&id]).await? else { return Ok(None) };
    let body = String::from_utf8_lossy(row.try_get(12)?).into_owned();
    Ok(Some(SignalDetail { row: signal_row(&row)?, stored_at: row.try_get(11)?, body }))
}

fn signal_row(row: &Row) -> Result<SignalRow, Error> {
    Ok(SignalRow {
        signal_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        webhook_id: row.try_get(2)?,
        kind: row.try_get(3)?,
        generic_reason: row.try_get(4)?,
        entity: row.try_get(5)?,
        source_tool: row.try_get(6)?,
        amount_value: row.try_get(7)?,
        amount_currency: row.try_get(8)?,
        event_id: row.try_get(9)?,
        received_at: row.try_get(10)?,
    })
}

const RUNS: &str = "
SELECT run_id, workspace_id, workflow_id, release_id, run_as, state, refused_reason, received_at, created_at
FROM runs WHERE workspace_id = $1 AND ($2::uuid IS NULL OR workflow_id = $2) ORDER BY run_id DESC LIMIT $3";

pub async fn runs(
    client: &Client,
    workspace: WorkspaceId,
    workflow: Option<WorkflowId>,
    limit: u32,
) -> Result<Vec<RunRow>, Error> {
    client.query(RUNS, &[&workspace, &workflow, &i64::from(limit)]).await?.iter().map(run_row).collect()
}

/// Goes through the workspaces, because the key of a run begins with one.
const RUN: &str = "
SELECT r.run_id, r.workspace_id, r.workflow_id, r.release_id, r.run_as, r.state, r.refused_reason, r.received_at,
       r.created_at, r.input_trust, r.input
FROM workspaces w JOIN runs r ON r.workspace_id = w.workspace_id AND r.run_id = $1";

pub async fn run(client: &Client, id: RunId) -> Result<Option<RunDetail>, Error> {
    let Some(row) = client.query_opt(RUN, &[&id]).await? else { return Ok(None) };
    let input = String::from_utf8_lossy(row.try_get(10)?);
    let input = serde_json::from_str(&input).unwrap_or_else(|_| input.into());
    Ok(Some(RunDetail { row: run_row(&row)?, input_trust: row.try_get(9)?, input }))
}

fn run_row(row: &Row) -> Result<RunRow, Error> {
    Ok(RunRow {
        run_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        workflow_id: row.try_get(2)?,
        release_id: row.try_get(3)?,
        run_as: row.try_get(4)?,
        state: row.try_get(5)?,
        refused_reason: row.try_get(6)?,
        received_at: row.try_get(7)?,
        created_at: row.try_get(8)?,
    })
}

/// Every statement of this store, for the test that prepares them against the schema under the operator's role.
pub const STATEMENTS: [&str; 18] = [
    CREATE_WORKSPACE,
    WORKSPACES,
    WORKSPACE_EXISTS,
    ALLOWANCE,
    SET_ALLOWANCE,
    CREATE_USER,
    SET_MEMBER,
    REMOVE_MEMBER,
    MEMBERS,
    CREATE_WEBHOOK,
    WEBHOOKS,
    DELETE_WEBHOOK,
    SEALED_SECRETS,
    RESEAL_SECRET,
    SIGNALS,
    SIGNAL,
    RUNS,
    RUN,
];
