//! The statements behind an owner's orders.

use jiff::Timestamp;
use letterbox_common::{
    ids::{DeliveryId, UserId, WebhookId, WorkspaceId},
    webhook::WebhookAddress,
};
use serde::Serialize;
use tokio_postgres::{Client, Error, Row};

/// A tenant.
#[derive(Debug, Clone, Serialize)]
pub struct Workspace {
    pub workspace_id: WorkspaceId,
    pub name: String,
    pub created_at: Timestamp,
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

const CREATE_WORKSPACE: &str =
    "INSERT INTO workspaces (workspace_id, name) VALUES ($1, $2) RETURNING workspace_id, name, created_at";

pub async fn create_workspace(client: &Client, id: WorkspaceId, name: &str) -> Result<Workspace, Error> {
    workspace(&client.query_one(CREATE_WORKSPACE, &[&id, &name]).await?)
}

const WORKSPACES: &str = "SELECT workspace_id, name, created_at FROM workspaces ORDER BY created_at, workspace_id";

pub async fn workspaces(client: &Client) -> Result<Vec<Workspace>, Error> {
    client.query(WORKSPACES, &[]).await?.iter().map(workspace).collect()
}

fn workspace(row: &Row) -> Result<Workspace, Error> {
    Ok(Workspace { workspace_id: row.try_get(0)?, name: row.try_get(1)?, created_at: row.try_get(2)? })
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
    INSERT INTO members (workspace_id, user_id, role) VALUES ($1, $2, $3)
    ON CONFLICT (workspace_id, user_id) DO UPDATE SET role = EXCLUDED.role
    RETURNING workspace_id, user_id, role
)
SELECT workspace_id, user_id, u.email, u.name, role FROM stored JOIN users u USING (user_id)";

pub async fn set_member(client: &Client, workspace: WorkspaceId, user: UserId, role: &str) -> Result<Member, Error> {
    member(&client.query_one(SET_MEMBER, &[&workspace, &user, &role]).await?)
}

const REMOVE_MEMBER: &str = "
WITH removed AS (DELETE FROM members WHERE workspace_id = $1 AND user_id = $2 RETURNING workspace_id, user_id, role)
SELECT workspace_id, user_id, u.email, u.name, role FROM removed JOIN users u USING (user_id)";

pub async fn remove_member(client: &Client, workspace: WorkspaceId, user: UserId) -> Result<Option<Member>, Error> {
    client.query_opt(REMOVE_MEMBER, &[&workspace, &user]).await?.map(|row| member(&row)).transpose()
}

const MEMBERS: &str = "
SELECT workspace_id, user_id, u.email, u.name, role
FROM members JOIN users u USING (user_id) WHERE workspace_id = $1 ORDER BY u.email";

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

/// Every statement of this store, for the test that prepares them against the schema under the operator's role.
pub const STATEMENTS: [&str; 14] = [
    CREATE_WORKSPACE,
    WORKSPACES,
    WORKSPACE_EXISTS,
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
];
