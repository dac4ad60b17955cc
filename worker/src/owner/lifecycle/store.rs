//! The statements behind the life of workflows. A workflow is named by its id alone; its workspace
//! is looked up, because every key begins with one.

use jiff::Timestamp;
use letterbox_common::ids::{FormLinkId, ReleaseId, UserId, WorkflowId, WorkspaceId};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Client, Error, Row, Transaction};

/// A workflow in a list.
#[derive(Debug, Clone, Serialize)]
pub struct WorkflowRow {
    pub workflow_id: WorkflowId,
    pub workspace_id: WorkspaceId,
    pub owner_id: UserId,
    pub name: String,
    pub state: String,
    /// The release of the last deploy.
    pub release_id: Option<ReleaseId>,
    pub created_at: Timestamp,
}

/// A workflow with what it is made of.
#[derive(Debug, Clone, Serialize)]
pub struct WorkflowDetail {
    #[serde(flatten)]
    pub row: WorkflowRow,
    /// Counts the deploys.
    pub release_number: Option<i32>,
    /// The live form link, if there is one; not its token.
    pub form_link_id: Option<FormLinkId>,
    /// What the next deploy deploys, if it is given nothing else.
    pub definition: Option<Value>,
}

macro_rules! columns {
    () => {
        "f.workflow_id, f.workspace_id, f.owner_id, f.name, f.state, f.live_release_id, f.created_at"
    };
}

fn row(row: &Row) -> Result<WorkflowRow, Error> {
    Ok(WorkflowRow {
        workflow_id: row.try_get(0)?,
        workspace_id: row.try_get(1)?,
        owner_id: row.try_get(2)?,
        name: row.try_get(3)?,
        state: row.try_get(4)?,
        release_id: row.try_get(5)?,
        created_at: row.try_get(6)?,
    })
}

const CREATE: &str = concat!(
    "INSERT INTO workflows AS f (workspace_id, workflow_id, owner_id, name, draft)
SELECT m.workspace_id, $2, m.user_id, $4, $5 FROM members m WHERE m.workspace_id = $1 AND m.user_id = $3 AND m.may_run
RETURNING ",
    columns!()
);

pub async fn create(
    client: &Client,
    workspace: WorkspaceId,
    workflow: WorkflowId,
    owner: UserId,
    name: &str,
    draft: &str,
) -> Result<Option<WorkflowRow>, Error> {
    let created = client
        .query_opt(CREATE, &[&workspace, &workflow, &owner, &name, &draft])
        .await?;
    created.map(|created| row(&created)).transpose()
}

const LOCK_DRAFT: &str = "
SELECT f.draft FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
WHERE f.state <> 'deleted' FOR NO KEY UPDATE OF f";

/// Keeps everybody else from moving the workflow; nothing if there is none that could be deployed.
pub async fn lock_draft(
    client: &Transaction<'_>,
    workflow: WorkflowId,
) -> Result<Option<Option<String>>, Error> {
    client
        .query_opt(LOCK_DRAFT, &[&workflow])
        .await?
        .map(|row| row.try_get(0))
        .transpose()
}

const RELEASE: &str = "
INSERT INTO releases (workspace_id, workflow_id, release_id, number, form, actions)
SELECT f.workspace_id, f.workflow_id, $2, coalesce(max(r.number), 0) + 1, $3, $4
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
LEFT JOIN releases r ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
GROUP BY f.workspace_id, f.workflow_id";

pub async fn release(
    client: &Transaction<'_>,
    workflow: WorkflowId,
    release: ReleaseId,
    form: &str,
    actions: &str,
) -> Result<(), Error> {
    client
        .execute(RELEASE, &[&workflow, &release, &form, &actions])
        .await
        .map(drop)
}

const DEPLOY: &str = concat!(
    "UPDATE workflows f SET state = 'deployed', live_release_id = $2, draft = $3
FROM workspaces w WHERE f.workspace_id = w.workspace_id AND f.workflow_id = $1
RETURNING ",
    columns!()
);

pub async fn deploy(
    client: &Transaction<'_>,
    workflow: WorkflowId,
    release: ReleaseId,
    draft: &str,
) -> Result<WorkflowRow, Error> {
    row(&client
        .query_one(DEPLOY, &[&workflow, &release, &draft])
        .await?)
}

const MISSING_ACCOUNTS: &str = "
SELECT name FROM unnest($3::text[]) AS wanted (name)
WHERE NOT EXISTS (SELECT FROM connected_accounts a
    WHERE a.workspace_id = $1 AND a.user_id = $2 AND a.name = wanted.name AND a.disconnected_at IS NULL)";

/// Which of these accounts the owner of a workflow does not have.
pub async fn missing_accounts(
    client: &Transaction<'_>,
    workflow: &WorkflowRow,
    accounts: &[&str],
) -> Result<Vec<String>, Error> {
    let rows = client
        .query(
            MISSING_ACCOUNTS,
            &[&workflow.workspace_id, &workflow.owner_id, &accounts],
        )
        .await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

const MOVE: &str = concat!(
    "UPDATE workflows f SET state = $3
FROM workspaces w WHERE f.workspace_id = w.workspace_id AND f.workflow_id = $1 AND f.state = ANY ($2)
RETURNING ",
    columns!()
);

/// Nothing if there is no such workflow in one of these states.
pub async fn move_to(
    client: &Client,
    workflow: WorkflowId,
    from: &[&str],
    to: &str,
) -> Result<Option<WorkflowRow>, Error> {
    client
        .query_opt(MOVE, &[&workflow, &from, &to])
        .await?
        .map(|moved| row(&moved))
        .transpose()
}

const FIND: &str = concat!(
    "SELECT ",
    columns!(),
    ", r.number, l.form_link_id, f.draft
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
LEFT JOIN releases r
    ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id AND r.release_id = f.live_release_id
LEFT JOIN form_links l ON l.workspace_id = f.workspace_id AND l.workflow_id = f.workflow_id AND l.ended_at IS NULL"
);

pub async fn find(client: &Client, workflow: WorkflowId) -> Result<Option<WorkflowDetail>, Error> {
    let Some(found) = client.query_opt(FIND, &[&workflow]).await? else {
        return Ok(None);
    };
    let draft: Option<String> = found.try_get(9)?;
    Ok(Some(WorkflowDetail {
        row: row(&found)?,
        release_number: found.try_get(7)?,
        form_link_id: found.try_get(8)?,
        definition: draft.and_then(|draft| serde_json::from_str(&draft).ok()),
    }))
}

const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM workflows f WHERE f.workspace_id = $1 ORDER BY f.created_at, f.workflow_id"
);

pub async fn list(client: &Client, workspace: WorkspaceId) -> Result<Vec<WorkflowRow>, Error> {
    client
        .query(LIST, &[&workspace])
        .await?
        .iter()
        .map(row)
        .collect()
}

const CREATE_LINK: &str = "
INSERT INTO form_links (workspace_id, form_link_id, workflow_id, release_id, token_sha256)
SELECT f.workspace_id, $2, f.workflow_id, f.live_release_id, $3
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
RETURNING workspace_id";

/// Nothing if there is no such workflow. Whether it may have a link, the database decides.
pub async fn create_link(
    client: &Client,
    workflow: WorkflowId,
    link: FormLinkId,
    token_sha256: &[u8; 32],
) -> Result<Option<WorkspaceId>, Error> {
    let made = client
        .query_opt(CREATE_LINK, &[&workflow, &link, &token_sha256.as_slice()])
        .await?;
    made.map(|made| made.try_get(0)).transpose()
}

/// Every statement of this store, for the test that prepares them against the schema under the
/// operator's role.
pub const STATEMENTS: [&str; 9] = [
    CREATE,
    LOCK_DRAFT,
    RELEASE,
    DEPLOY,
    MISSING_ACCOUNTS,
    MOVE,
    FIND,
    LIST,
    CREATE_LINK,
];
