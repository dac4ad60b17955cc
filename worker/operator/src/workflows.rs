//! Workflows and their life. Every move is one transaction; a trigger ends the live form link in it
//! (migrations/V4).
//!
//! ```text
//! draft ──deploy──> deployed <──activate── paused          delete: from everywhere, for good
//!   ^                │  │ ^─deploy, activate (again)          │
//!   └──────draft─────┘  └──────────pause────────>             └─deploy──> deployed, draft──> draft
//! ```

use jiff::Timestamp;
use letterbox_common::{
    ids::{FormLinkId, ReleaseId, UserId, WorkflowId, WorkspaceId},
    states::WorkflowState,
};
use letterbox_database::{FromRow, statements};
use letterbox_workflow::Definition;
use serde::Serialize;
use serde_json::Value;

use crate::{Operator, Reason, Result, asking::Sought, check_name, optional_json};

/// The columns of a [`WorkflowRow`]: of a workflow `f`.
macro_rules! workflow_columns {
    () => {
        "f.workflow_id, f.workspace_id, f.owner_id, f.name, f.state, \
         f.live_release_id AS release_id, f.created_at"
    };
}

pub(crate) use workflow_columns;

statements! {
    /// Creates a workflow of a member who may run it.
    desk fn create_workflow(
        workspace: WorkspaceId, workflow: WorkflowId, owner: UserId, name: &str,
        definition: &str,
    ) -> Option<WorkflowRow> = concat!("
INSERT INTO workflows AS f (workspace_id, workflow_id, owner_id, name, definition)
SELECT m.workspace_id, $2, m.user_id, $4, $5
FROM members m WHERE m.workspace_id = $1 AND m.user_id = $3 AND m.may_run
RETURNING ", workflow_columns!());

    /// The workspace of a workflow.
    desk fn home_of_workflow(workflow: WorkflowId) -> Option<(WorkspaceId,)> = "
SELECT f.workspace_id
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1";

    /// Moves a workflow from one of these states to another.
    desk fn move_workflow(
        workspace: WorkspaceId, workflow: WorkflowId, from: &[WorkflowState], to: WorkflowState,
    ) -> Option<WorkflowRow> = concat!("
UPDATE workflows f SET state = $4
WHERE f.workspace_id = $1 AND f.workflow_id = $2 AND f.state = ANY ($3)
RETURNING ", workflow_columns!());

    /// Gives a workflow to another member who may run workflows.
    fn transfer_workflow(
        workspace: WorkspaceId, workflow: WorkflowId, to: UserId,
    ) -> Option<WorkflowRow> = concat!("
UPDATE workflows f SET owner_id = m.user_id
FROM members m
WHERE f.workspace_id = $1 AND f.workflow_id = $2
  AND m.workspace_id = f.workspace_id AND m.user_id = $3 AND m.may_run AND f.state <> 'deleted'
RETURNING ", workflow_columns!());

    /// One workflow with its definition, the number of its release and its live link.
    desk fn workflow(workflow: WorkflowId) -> Option<WorkflowDetail> = concat!("
SELECT ", workflow_columns!(), ", r.number AS release_number, r.language AS release_language,
    l.form_link_id, l.closes_at, l.max_answers,
    CASE WHEN l.max_answers IS NOT NULL THEN l.answers END AS answers,
    f.definition
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
LEFT JOIN releases r
    ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
    AND r.release_id = f.live_release_id
LEFT JOIN form_links l
    ON l.workspace_id = f.workspace_id AND l.workflow_id = f.workflow_id AND l.ended_at IS NULL");

    /// Replaces the definition that the next deploy takes, if it is still the former one.
    desk fn save_draft(
        workspace: WorkspaceId, workflow: WorkflowId, former: &str, definition: &str,
    ) -> u64 = "
UPDATE workflows SET definition = $4
WHERE workspace_id = $1 AND workflow_id = $2 AND coalesce(definition, '') = $3
  AND state <> 'deleted'";

    /// The workflows of a workspace, oldest first.
    desk fn workflows(workspace: WorkspaceId) -> Vec<WorkflowRow> = concat!("
SELECT ", workflow_columns!(), "
FROM workflows f WHERE f.workspace_id = $1 ORDER BY f.created_at, f.workflow_id");
}

/// Why a workflow can't be changed any more.
pub(crate) const GONE: Reason = Reason::NotFound("workflow, or it is deleted");

/// A move that is not a deploy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// From deployed to paused.
    Pause,
    /// Also of what is deployed: then it only ends the link.
    Activate,
    /// From deployed or paused back to draft.
    Draft,
    /// From any other state, for good.
    Delete,
}

impl Move {
    fn from(self) -> &'static [WorkflowState] {
        use WorkflowState::{Deployed, Draft, Paused};
        match self {
            Self::Pause => &[Deployed],
            Self::Activate | Self::Draft => &[Deployed, Paused],
            Self::Delete => &[Draft, Deployed, Paused],
        }
    }

    fn to(self) -> WorkflowState {
        match self {
            Self::Pause => WorkflowState::Paused,
            Self::Activate => WorkflowState::Deployed,
            Self::Draft => WorkflowState::Draft,
            Self::Delete => WorkflowState::Deleted,
        }
    }
}

/// A workflow in a list.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct WorkflowRow {
    /// Stays the same over all its releases.
    pub workflow_id: WorkflowId,
    /// The workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// The user whose identity its runs use; may have left the workspace.
    pub owner_id: UserId,
    /// For people; submitters don't see it.
    pub name: String,
    /// Whether it takes submissions.
    pub state: WorkflowState,
    /// The release of the last deploy.
    pub release_id: Option<ReleaseId>,
    /// By the database's clock.
    pub created_at: Timestamp,
}

/// A workflow with its definition.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct WorkflowDetail {
    /// The workflow as in a list.
    #[serde(flatten)]
    #[row(flatten)]
    pub row: WorkflowRow,
    /// Counts the deploys.
    pub release_number: Option<i32>,
    /// The version of the language of templates by which it was checked.
    pub release_language: Option<i16>,
    /// The live form link, if there is one; not its token.
    pub form_link_id: Option<FormLinkId>,
    /// When the link closes.
    pub closes_at: Option<Timestamp>,
    /// After how many submissions the link takes nothing new.
    pub max_answers: Option<i32>,
    /// How many it has taken, if they are limited.
    pub answers: Option<i32>,
    /// The definition that the next deploy uses, if it is given no other.
    #[row(with = optional_json)]
    pub definition: Option<Value>,
    /// Its text, as it was given.
    #[serde(skip)]
    #[row(name = definition)]
    pub text: Option<String>,
}

impl Operator {
    /// Creates a workflow as a draft. `definition` is JSON text.
    ///
    /// # Errors
    /// When the definition has mistakes, or the owner is not a member who may run workflows.
    pub async fn create_workflow(
        &self,
        workspace: WorkspaceId,
        owner: UserId,
        name: &str,
        definition: &str,
    ) -> Result<WorkflowRow> {
        check_name(name)?;
        Definition::check(definition).map_err(Reason::InvalidDefinition)?;
        let id = WorkflowId::generate();
        let created = create_workflow(self, workspace, id, owner, name, definition).await?;
        created.ok_or(Reason::OwnerMustRun.into())
    }

    /// Replaces the definition of a workflow that the next deploy takes. `former` is the one that
    /// was edited.
    ///
    /// # Errors
    /// When the definition has mistakes, or it was changed since.
    pub async fn save_draft(
        &self,
        workflow: WorkflowId,
        former: &str,
        definition: &str,
    ) -> Result<()> {
        Definition::check(definition).map_err(Reason::InvalidDefinition)?;
        let workspace = self.home(workflow).await?;
        match save_draft(self, workspace, workflow, former, definition).await? {
            0 => Err(Reason::DraftConflict.into()),
            _ => Ok(()),
        }
    }

    /// Moves a workflow. The live link dies with it.
    pub async fn move_workflow(&self, workflow: WorkflowId, to: Move) -> Result<WorkflowRow> {
        let from = to.from();
        let to = to.to();
        let workspace = self.home(workflow).await?;
        if let Some(moved) = move_workflow(self, workspace, workflow, from, to).await? {
            return Ok(moved);
        }
        let state = self.workflow(workflow).await?.row.state;
        // The row can be read but not changed: it is another person's.
        if from.contains(&state) {
            return Err(Reason::NotAllowed("the workflow is its owner's".to_owned()).into());
        }
        Err(Reason::ImpossibleMove { from: state, to }.into())
    }

    /// Gives a workflow to another member: later runs use that member's identity and accounts. The
    /// live link dies with it; runs that have been recorded stay with the former owner.
    ///
    /// # Errors
    /// When there is no such workflow, it is deleted, or the user is not a member who may run
    /// workflows.
    pub async fn transfer_workflow(&self, workflow: WorkflowId, to: UserId) -> Result<WorkflowRow> {
        let workspace = self.home(workflow).await?;
        if let Some(transferred) = transfer_workflow(self, workspace, workflow, to).await? {
            return Ok(transferred);
        }
        let found = self.workflow(workflow).await?.row;
        Err(match found.state {
            WorkflowState::Deleted => GONE.into(),
            _ => Reason::OwnerMustRun.into(),
        })
    }

    /// The workspace of a workflow.
    pub(crate) async fn home(&self, workflow: WorkflowId) -> Result<WorkspaceId> {
        Ok(home_of_workflow(self, workflow).await?.ok_or(GONE)?.0)
    }

    /// Gives one workflow with its definition.
    pub async fn workflow(&self, workflow: WorkflowId) -> Result<WorkflowDetail> {
        self::workflow(self, workflow).await?.found("workflow")
    }

    /// Lists the workflows of a workspace, deleted ones included.
    pub async fn workflows(&self, workspace: WorkspaceId) -> Result<Vec<WorkflowRow>> {
        self.need_workspace(workspace).await?;
        workflows(self, workspace).await
    }
}
