//! The statements behind an owner's orders.

use jiff::Timestamp;
use letterbox_common::{
    ids::{AccountId, ApprovalId, DeliveryId, ReleaseId, RunId, UserId, WebhookId, WorkflowId, WorkspaceId},
    webhook::WebhookAddress,
};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use super::{
    accounts::NewAccount,
    rotation::{Sealed, SealedColumn},
};

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
    /// Why it failed or was denied.
    pub failure: Option<String>,
    pub received_at: Timestamp,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// What a run has done of one action.
#[derive(Debug, Clone, Serialize)]
pub struct RunAction {
    pub action_id: String,
    #[serde(rename = "type")]
    pub action_type: String,
    pub state: String,
    /// `data`: what a submitter wrote fills it; `control`: it steered the run here.
    pub untrusted: Vec<String>,
    pub steered_by: Option<String>,
    pub decision: Option<String>,
    /// Which rule decided, from 1; none where the default did.
    pub decision_rule: Option<i32>,
    pub policy_version: Option<i32>,
    /// What people were asked, and what they said.
    pub approval: Option<ActionApproval>,
    /// What is sent, without the credential.
    pub request: Option<Value>,
    pub attempts: i32,
    pub response_status: Option<i32>,
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub retry_at: Option<Timestamp>,
    pub duration_milliseconds: Option<i64>,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
}

/// An approval as a run's story tells it.
#[derive(Debug, Clone, Serialize)]
pub struct ActionApproval {
    pub approval_id: ApprovalId,
    pub state: String,
    pub decided_by: Option<UserId>,
    pub decided_at: Option<Timestamp>,
    pub expires_at: Timestamp,
}

/// An account, without its credential.
#[derive(Debug, Clone, Serialize)]
pub struct AccountRow {
    pub account_id: AccountId,
    pub workspace_id: WorkspaceId,
    pub user_id: UserId,
    pub name: String,
    pub base_url: String,
    pub header: String,
    pub created_at: Timestamp,
    pub disconnected_at: Option<Timestamp>,
}

/// A workspace's policy.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyRow {
    pub workspace_id: WorkspaceId,
    /// Counts from 1; 0 is the default policy.
    pub version: i32,
    pub policy: Value,
}

/// A question whether a request may be sent.
#[derive(Debug, Clone, Serialize)]
pub struct ApprovalRow {
    pub approval_id: ApprovalId,
    pub workspace_id: WorkspaceId,
    pub run_id: RunId,
    pub action_id: String,
    #[serde(rename = "type")]
    pub action_type: String,
    pub state: String,
    /// Exactly what will be sent, without the credential.
    pub request: Option<Value>,
    pub untrusted: Vec<String>,
    pub steered_by: Option<String>,
    pub decision_rule: Option<i32>,
    pub policy_version: Option<i32>,
    pub expires_at: Timestamp,
    pub decided_by: Option<UserId>,
    pub decided_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// A run with everything that is known of it.
#[derive(Debug, Clone, Serialize)]
pub struct RunDetail {
    #[serde(flatten)]
    pub row: RunRow,
    /// What has been done and is about to be, in order.
    pub actions: Vec<RunAction>,
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

/// Every column that holds sealed values.
pub const SEALED: [SealedColumn; 2] = [
    SealedColumn {
        table: "webhooks",
        column: "secret_sealed",
        page: "
SELECT workspace_id, webhook_id, secret_sealed FROM webhooks
WHERE secret_sealed IS NOT NULL AND ($1::uuid IS NULL OR (workspace_id, webhook_id) > ($1, $2))
ORDER BY workspace_id, webhook_id LIMIT $3",
        replace: "
UPDATE webhooks SET secret_sealed = $4 WHERE workspace_id = $1 AND webhook_id = $2 AND secret_sealed = $3",
    },
    SealedColumn {
        table: "connected_accounts",
        column: "credential_sealed",
        page: "
SELECT workspace_id, account_id, credential_sealed FROM connected_accounts
WHERE credential_sealed IS NOT NULL AND ($1::uuid IS NULL OR (workspace_id, account_id) > ($1, $2))
ORDER BY workspace_id, account_id LIMIT $3",
        replace: "
UPDATE connected_accounts SET credential_sealed = $4
WHERE workspace_id = $1 AND account_id = $2 AND credential_sealed = $3",
    },
];

pub async fn sealed(
    client: &Client,
    column: SealedColumn,
    after: Option<(WorkspaceId, Uuid)>,
    limit: i64,
) -> Result<Vec<Sealed>, Error> {
    let (workspace, id) = after.unzip();
    let rows = client.query(column.page, &[&workspace, &id, &limit]).await?;
    let read = |row: &Row| Ok(Sealed { workspace: row.try_get(0)?, id: row.try_get(1)?, value: row.try_get(2)? });
    rows.iter().map(read).collect()
}

pub async fn reseal(
    client: &Client,
    column: SealedColumn,
    workspace: WorkspaceId,
    id: Uuid,
    old: &[u8],
    new: &[u8],
) -> Result<u64, Error> {
    client.execute(column.replace, &[&workspace, &id, &old, &new]).await
}

macro_rules! account_columns {
    () => {
        "account_id, workspace_id, user_id, name, base_url, header_name, created_at, disconnected_at"
    };
}

const CONNECT_ACCOUNT: &str = concat!(
    "INSERT INTO connected_accounts (workspace_id, account_id, user_id, name, base_url, header_name, credential_sealed)
SELECT m.workspace_id, $2, m.user_id, $4, $5, $6, $7 FROM members m WHERE m.workspace_id = $1 AND m.user_id = $3
RETURNING ",
    account_columns!()
);

/// Nothing if the user is no member.
pub async fn connect_account(
    client: &Client,
    id: AccountId,
    account: &NewAccount,
    sealed: &[u8],
) -> Result<Option<AccountRow>, Error> {
    let NewAccount { workspace, user, name, base_url, header, .. } = account;
    let connected =
        client.query_opt(CONNECT_ACCOUNT, &[workspace, &id, user, name, &base_url.as_str(), header, &sealed]).await?;
    connected.map(|row| account_row(&row)).transpose()
}

const ACCOUNTS: &str = concat!(
    "SELECT ",
    account_columns!(),
    " FROM connected_accounts WHERE workspace_id = $1 ORDER BY created_at, account_id"
);

pub async fn accounts(client: &Client, workspace: WorkspaceId) -> Result<Vec<AccountRow>, Error> {
    client.query(ACCOUNTS, &[&workspace]).await?.iter().map(account_row).collect()
}

const DISCONNECT_ACCOUNT: &str = concat!(
    "UPDATE connected_accounts SET disconnected_at = now(), credential_sealed = NULL
WHERE account_id = $1 AND disconnected_at IS NULL AND workspace_id IN (SELECT workspace_id FROM workspaces)
RETURNING ",
    account_columns!()
);

pub async fn disconnect_account(client: &Client, account: AccountId) -> Result<Option<AccountRow>, Error> {
    client.query_opt(DISCONNECT_ACCOUNT, &[&account]).await?.map(|row| account_row(&row)).transpose()
}

fn account_row(row: &Row) -> Result<AccountRow, Error> {
    Ok(AccountRow {
        account_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        user_id: row.try_get(2)?,
        name: row.try_get(3)?,
        base_url: row.try_get(4)?,
        header: row.try_get(5)?,
        created_at: row.try_get(6)?,
        disconnected_at: row.try_get(7)?,
    })
}

const POLICY: &str =
    "SELECT workspace_id, version, policy FROM policies WHERE workspace_id = $1 ORDER BY version DESC LIMIT 1";

pub async fn policy(client: &Client, workspace: WorkspaceId) -> Result<Option<PolicyRow>, Error> {
    client.query_opt(POLICY, &[&workspace]).await?.map(|row| policy_row(&row)).transpose()
}

const SET_POLICY: &str = "
INSERT INTO policies (workspace_id, version, policy)
SELECT $1, coalesce(max(version), 0) + 1, $2 FROM policies WHERE workspace_id = $1
RETURNING workspace_id, version, policy";

pub async fn set_policy(client: &Client, workspace: WorkspaceId, policy: &str) -> Result<PolicyRow, Error> {
    policy_row(&client.query_one(SET_POLICY, &[&workspace, &policy]).await?)
}

fn policy_row(row: &Row) -> Result<PolicyRow, Error> {
    Ok(PolicyRow { workspace_id: row.try_get(0)?, version: row.try_get(1)?, policy: json(row.try_get(2)?) })
}

macro_rules! approval_columns {
    () => {
        "p.approval_id, p.workspace_id, p.run_id, p.action_id, p.state, p.expires_at, p.decided_by, p.decided_at,
    p.created_at, a.type, a.untrusted, a.steered_by, a.decision_rule, a.policy_version, a.request"
    };
}

const APPROVALS: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM approvals p JOIN run_actions a USING (workspace_id, run_id, action_id)
WHERE p.workspace_id = $1 AND p.state = 'pending' AND p.expires_at > clock_timestamp() ORDER BY p.created_at, p.approval_id"
);

pub async fn approvals(client: &Client, workspace: WorkspaceId) -> Result<Vec<ApprovalRow>, Error> {
    client.query(APPROVALS, &[&workspace]).await?.iter().map(approval_row).collect()
}

const APPROVAL: &str = concat!(
    "SELECT ",
    approval_columns!(),
    " FROM workspaces w JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = $1
JOIN run_actions a ON a.workspace_id = p.workspace_id AND a.run_id = p.run_id AND a.action_id = p.action_id"
);

pub async fn approval(client: &Client, approval: ApprovalId) -> Result<Option<ApprovalRow>, Error> {
    client.query_opt(APPROVAL, &[&approval]).await?.map(|row| approval_row(&row)).transpose()
}

const DECIDE: &str = concat!(
    "WITH decided AS (
    UPDATE approvals p SET state = $3, decided_by = m.user_id, decided_at = clock_timestamp()
    FROM workspaces w JOIN members m
        ON m.workspace_id = w.workspace_id AND m.user_id = $2 AND m.role IN ('owner', 'editor') AND m.deactivated_at IS NULL
    WHERE p.workspace_id = w.workspace_id AND p.approval_id = $1 AND p.state = 'pending' AND p.expires_at > clock_timestamp()
      AND EXISTS (SELECT FROM runs r WHERE r.workspace_id = p.workspace_id AND r.run_id = p.run_id AND r.state = 'waiting_approval')
    RETURNING p.*
), wake AS (
    INSERT INTO run_wakes (workspace_id, run_id, due_at) SELECT workspace_id, run_id, clock_timestamp() FROM decided
    ON CONFLICT (workspace_id, run_id) DO UPDATE SET due_at = EXCLUDED.due_at
)
SELECT ",
    approval_columns!(),
    " FROM decided p JOIN run_actions a USING (workspace_id, run_id, action_id)"
);

/// Nothing if it can't be decided any more, or not by this user.
pub async fn decide(
    client: &Client,
    approval: ApprovalId,
    by: UserId,
    state: &str,
) -> Result<Option<ApprovalRow>, Error> {
    client.query_opt(DECIDE, &[&approval, &by, &state]).await?.map(|row| approval_row(&row)).transpose()
}

fn approval_row(row: &Row) -> Result<ApprovalRow, Error> {
    Ok(ApprovalRow {
        approval_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        run_id: row.try_get(2)?,
        action_id: row.try_get(3)?,
        state: row.try_get(4)?,
        expires_at: row.try_get(5)?,
        decided_by: row.try_get(6)?,
        decided_at: row.try_get(7)?,
        created_at: row.try_get(8)?,
        action_type: row.try_get(9)?,
        untrusted: row.try_get(10)?,
        steered_by: row.try_get(11)?,
        decision_rule: row.try_get(12)?,
        policy_version: row.try_get(13)?,
        request: row.try_get::<_, Option<&str>>(14)?.map(json),
    })
}

const RUN_ACTIONS: &str = "
SELECT a.action_id, a.type, a.state, a.untrusted, a.steered_by, a.decision, a.decision_rule, a.policy_version, a.request,
       a.attempts, a.response_status, a.outcome, a.error, a.retry_at, a.started_at, a.finished_at,
       p.approval_id, p.state, p.decided_by, p.decided_at, p.expires_at
FROM run_actions a LEFT JOIN approvals p USING (workspace_id, run_id, action_id)
WHERE a.workspace_id = $1 AND a.run_id = $2 ORDER BY a.position";

pub async fn run_actions(client: &Client, workspace: WorkspaceId, run: RunId) -> Result<Vec<RunAction>, Error> {
    let read = |row: &Row| {
        let (started_at, finished_at): (Timestamp, Option<Timestamp>) = (row.try_get(14)?, row.try_get(15)?);
        let approval = match row.try_get::<_, Option<ApprovalId>>(16)? {
            Some(approval_id) => Some(ActionApproval {
                approval_id,
                state: row.try_get(17)?,
                decided_by: row.try_get(18)?,
                decided_at: row.try_get(19)?,
                expires_at: row.try_get(20)?,
            }),
            None => None,
        };
        Ok(RunAction {
            approval,
            action_id: row.try_get(0)?,
            action_type: row.try_get(1)?,
            state: row.try_get(2)?,
            untrusted: row.try_get(3)?,
            steered_by: row.try_get(4)?,
            decision: row.try_get(5)?,
            decision_rule: row.try_get(6)?,
            policy_version: row.try_get(7)?,
            request: row.try_get::<_, Option<&str>>(8)?.map(json),
            attempts: row.try_get(9)?,
            response_status: row.try_get(10)?,
            outcome: row.try_get(11)?,
            error: row.try_get(12)?,
            retry_at: row.try_get(13)?,
            duration_milliseconds: finished_at.map(|end| end.duration_since(started_at).as_millis() as i64),
            started_at,
            finished_at,
        })
    };
    client.query(RUN_ACTIONS, &[&workspace, &run]).await?.iter().map(read).collect()
}

/// JSON text of ours as a value.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
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
SELECT run_id, workspace_id, workflow_id, release_id, run_as, state, refused_reason, failure, received_at,
       created_at, started_at, finished_at
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
SELECT r.run_id, r.workspace_id, r.workflow_id, r.release_id, r.run_as, r.state, r.refused_reason, r.failure,
       r.received_at, r.created_at, r.started_at, r.finished_at, r.input_trust, r.input
FROM workspaces w JOIN runs r ON r.workspace_id = w.workspace_id AND r.run_id = $1";

pub async fn run(client: &Client, id: RunId) -> Result<Option<RunDetail>, Error> {
    let Some(row) = client.query_opt(RUN, &[&id]).await? else { return Ok(None) };
    let input = String::from_utf8_lossy(row.try_get(13)?);
    let input = serde_json::from_str(&input).unwrap_or_else(|_| input.into());
    let (input_trust, row) = (row.try_get(12)?, run_row(&row)?);
    let actions = run_actions(client, row.workspace_id, row.run_id).await?;
    Ok(Some(RunDetail { row, actions, input_trust, input }))
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
        failure: row.try_get(7)?,
        received_at: row.try_get(8)?,
        created_at: row.try_get(9)?,
        started_at: row.try_get(10)?,
        finished_at: row.try_get(11)?,
    })
}

/// Every statement of this store, for the test that prepares them against the schema under the operator's role.
pub const STATEMENTS: [&str; 29] = [
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
    SEALED[0].page,
    SEALED[0].replace,
    SEALED[1].page,
    SEALED[1].replace,
    CONNECT_ACCOUNT,
    ACCOUNTS,
    DISCONNECT_ACCOUNT,
    POLICY,
    SET_POLICY,
    APPROVALS,
    APPROVAL,
    DECIDE,
    SIGNALS,
    SIGNAL,
    RUNS,
    RUN,
    RUN_ACTIONS,
];
