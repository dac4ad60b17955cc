//! Workflows and their releases.

use jiff::Timestamp;
use letterbox_common::{
    form::Form,
    ids::{FormLinkId, ReleaseId, UserId, WorkflowId, WorkspaceId},
    states::WorkflowState,
};
use letterbox_database::{Database, DatabaseError, Transaction, statements};
use letterbox_workflow::{Definition, actions::Action};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Error, Row};

/// What is shown of a workflow `f`.
macro_rules! columns {
    () => {
        "f.workflow_id, f.workspace_id, f.owner_id, f.name, f.state, f.live_release_id, \
         f.created_at"
    };
}

statements! {
    /// Creates a workflow of a member who may run it.
    CREATE_WORKFLOW = create_workflow concat!("
INSERT INTO workflows AS f (workspace_id, workflow_id, owner_id, name, draft)
SELECT m.workspace_id, $2, m.user_id, $4, $5
FROM members m WHERE m.workspace_id = $1 AND m.user_id = $3 AND m.may_run
RETURNING ", columns!());

    /// Locks the membership of a workflow's owner.
    LOCK_OWNER = lock_owner "
SELECT FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
JOIN members m ON m.workspace_id = f.workspace_id AND m.user_id = f.owner_id
FOR SHARE OF m";

    /// Locks a workflow against other moves. Gives the definition that it would deploy.
    LOCK_DRAFT = lock_draft "
SELECT f.draft
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
WHERE f.state <> 'deleted' FOR NO KEY UPDATE OF f";

    /// Adds the next release of a workflow.
    CREATE_RELEASE = create_release "
INSERT INTO releases (workspace_id, workflow_id, release_id, number, form, actions, first_account,
    on_failure, page, least_seconds)
SELECT f.workspace_id, f.workflow_id, $2, coalesce(max(r.number), 0) + 1, $3, $4, $5, $6, $7, $8
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
LEFT JOIN releases r ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
GROUP BY f.workspace_id, f.workflow_id";

    /// Deploys a release.
    DEPLOY_RELEASE = deploy_release concat!("
UPDATE workflows f SET state = 'deployed', live_release_id = $2, draft = $3
FROM workspaces w WHERE f.workspace_id = w.workspace_id AND f.workflow_id = $1
RETURNING ", columns!());

    /// Which of these accounts a user has, and where they are.
    OWNERS_ACCOUNTS = owners_accounts "
SELECT name, base_url FROM connected_accounts
WHERE workspace_id = $1 AND user_id = $2 AND name = ANY ($3) AND disconnected_at IS NULL";

    /// Moves a workflow from one of these states to another.
    MOVE_WORKFLOW = move_workflow concat!("
UPDATE workflows f SET state = $3
FROM workspaces w
WHERE f.workspace_id = w.workspace_id AND f.workflow_id = $1 AND f.state = ANY ($2)
RETURNING ", columns!());

    /// One workflow with its definition, the number of its release and its live link.
    WORKFLOW = workflow concat!("
SELECT ", columns!(), ", r.number AS release_number, l.form_link_id, l.closes_at,
    l.max_answers, CASE WHEN l.max_answers IS NOT NULL THEN l.answers END AS answers, f.draft
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
LEFT JOIN releases r
    ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
    AND r.release_id = f.live_release_id
LEFT JOIN form_links l
    ON l.workspace_id = f.workspace_id AND l.workflow_id = f.workflow_id AND l.ended_at IS NULL");

    /// The forms of a workflow, the one of the newest release first.
    FORMS = forms_of_workflow "
SELECT r.form FROM workspaces w JOIN releases r
    ON r.workspace_id = w.workspace_id AND r.workflow_id = $1 ORDER BY r.number DESC";

    /// The workflows of a workspace, oldest first.
    WORKFLOWS = workflows concat!("
SELECT ", columns!(), "
FROM workflows f WHERE f.workspace_id = $1 ORDER BY f.created_at, f.workflow_id");
}

/// A workflow in a list.
#[derive(Debug, Clone, Serialize)]
pub struct WorkflowRow {
    /// Stays the same over all its releases.
    pub workflow_id: WorkflowId,
    /// The workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// The user whose identity its runs use; may have left the workspace.
    pub owner_id: UserId,
    /// For people; submitters do not see it.
    pub name: String,
    /// Whether it takes submissions.
    pub state: WorkflowState,
    /// The release of the last deploy.
    pub release_id: Option<ReleaseId>,
    /// By the database's clock.
    pub created_at: Timestamp,
}

impl WorkflowRow {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            workflow_id: row.try_get("workflow_id")?,
            workspace_id: row.try_get("workspace_id")?,
            owner_id: row.try_get("owner_id")?,
            name: row.try_get("name")?,
            state: row.try_get("state")?,
            release_id: row.try_get("live_release_id")?,
            created_at: row.try_get("created_at")?,
        })
    }
}

/// A workflow with its definition.
#[derive(Debug, Clone, Serialize)]
pub struct WorkflowDetail {
    /// What a list shows of it.
    #[serde(flatten)]
    pub row: WorkflowRow,
    /// Counts the deploys.
    pub release_number: Option<i32>,
    /// The live form link, if there is one; not its token.
    pub form_link_id: Option<FormLinkId>,
    /// From when on the link takes nothing new.
    pub closes_at: Option<Timestamp>,
    /// After how many submissions the link takes nothing new.
    pub max_answers: Option<i32>,
    /// How many it has taken, where they are bounded.
    pub answers: Option<i32>,
    /// What the next deploy deploys, if it is given nothing else.
    pub definition: Option<Value>,
}

/// A workflow to create.
pub(crate) struct NewWorkflow<'a> {
    pub(crate) workspace: WorkspaceId,
    pub(crate) workflow: WorkflowId,
    pub(crate) owner: UserId,
    pub(crate) name: &'a str,
    /// JSON text of its definition.
    pub(crate) draft: &'a str,
}

/// None if the owner is not a member who may run workflows.
pub(crate) async fn create_workflow(
    database: &Database,
    new: &NewWorkflow<'_>,
) -> Result<Option<WorkflowRow>, DatabaseError> {
    let row = database
        .query_opt(
            &CREATE_WORKFLOW,
            &[
                /* $1 workspace_id */ &new.workspace,
                /* $2 workflow_id */ &new.workflow,
                /* $3 owner_id */ &new.owner,
                /* $4 name */ &new.name,
                /* $5 draft */ &new.draft,
            ],
        )
        .await?;
    Ok(row.map(|row| WorkflowRow::decode(&row)).transpose()?)
}

/// Before the workflow is locked, where a link shall be made: in the order of migrations/README.md.
pub(crate) async fn lock_owner(
    transaction: &Transaction<'_>,
    workflow: WorkflowId,
) -> Result<(), DatabaseError> {
    transaction
        .query_opt(&LOCK_OWNER, &[&workflow])
        .await
        .map(drop)
}

/// None if there is no workflow that could be deployed.
pub(crate) async fn lock_draft(
    transaction: &Transaction<'_>,
    workflow: WorkflowId,
) -> Result<Option<Option<String>>, DatabaseError> {
    let row = transaction.query_opt(&LOCK_DRAFT, &[&workflow]).await?;
    Ok(row.map(|row| row.try_get("draft")).transpose()?)
}

pub(crate) async fn create_release(
    transaction: &Transaction<'_>,
    workflow: WorkflowId,
    release: ReleaseId,
    definition: &Definition,
) -> Result<(), DatabaseError> {
    let (form, actions) = (definition.form_json(), definition.actions_json());
    let on_failure = definition.on_failure_json();
    let page = definition.page_json();
    let first_account = definition.actions.first().and_then(Action::account);
    transaction
        .execute(
            &CREATE_RELEASE,
            &[
                /* $1 workflow_id */ &workflow,
                /* $2 release_id */ &release,
                /* $3 form */ &form,
                /* $4 actions */ &actions,
                /* $5 first_account */ &first_account,
                /* $6 on_failure */ &on_failure,
                /* $7 page */ &page,
                /* $8 least_seconds */ &definition.least_seconds,
            ],
        )
        .await
        .map(drop)
}

pub(crate) async fn deploy(
    transaction: &Transaction<'_>,
    workflow: WorkflowId,
    release: ReleaseId,
    draft: &str,
) -> Result<WorkflowRow, DatabaseError> {
    let row = transaction
        .query_one(&DEPLOY_RELEASE, &[&workflow, &release, &draft])
        .await?;
    Ok(WorkflowRow::decode(&row)?)
}

/// Which of these accounts the owner of a workflow has: names and base URLs.
pub(crate) async fn owners_accounts(
    transaction: &Transaction<'_>,
    workflow: &WorkflowRow,
    names: &[&str],
) -> Result<Vec<(String, String)>, DatabaseError> {
    let (workspace, owner) = (workflow.workspace_id, workflow.owner_id);
    let rows = transaction
        .query(&OWNERS_ACCOUNTS, &[&workspace, &owner, &names])
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get("name")?, row.try_get("base_url")?)))
        .collect()
}

/// None if there is no such workflow in one of these states.
pub(crate) async fn move_workflow(
    database: &Database,
    workflow: WorkflowId,
    from: &[WorkflowState],
    to: WorkflowState,
) -> Result<Option<WorkflowRow>, DatabaseError> {
    let row = database
        .query_opt(&MOVE_WORKFLOW, &[&workflow, &from, &to])
        .await?;
    Ok(row.map(|row| WorkflowRow::decode(&row)).transpose()?)
}

pub(crate) async fn workflow(
    database: &Database,
    workflow: WorkflowId,
) -> Result<Option<WorkflowDetail>, DatabaseError> {
    let row = database.query_opt(&WORKFLOW, &[&workflow]).await?;
    let Some(row) = row else { return Ok(None) };
    let draft: Option<String> = row.try_get("draft")?;
    Ok(Some(WorkflowDetail {
        row: WorkflowRow::decode(&row)?,
        release_number: row.try_get("release_number")?,
        form_link_id: row.try_get("form_link_id")?,
        closes_at: row.try_get("closes_at")?,
        max_answers: row.try_get("max_answers")?,
        answers: row.try_get("answers")?,
        definition: draft.and_then(|draft| serde_json::from_str(&draft).ok()),
    }))
}

/// The forms that a workflow has had, the newest first.
pub(crate) async fn forms(
    database: &Database,
    workflow: WorkflowId,
) -> Result<Vec<Form>, DatabaseError> {
    let rows = database.query(&FORMS, &[&workflow]).await?;
    let mut forms = Vec::new();
    for row in &rows {
        let form: String = row.try_get("form")?;
        forms.extend(serde_json::from_str(&form).ok());
    }
    Ok(forms)
}

pub(crate) async fn workflows(
    database: &Database,
    workspace: WorkspaceId,
) -> Result<Vec<WorkflowRow>, DatabaseError> {
    let rows = database.query(&WORKFLOWS, &[&workspace]).await?;
    rows.iter()
        .map(|row| Ok(WorkflowRow::decode(row)?))
        .collect()
}
