//! The life of a workflow and of its form link. Every move is one transaction; that the live link
//! dies in it, the database sees to (migrations/V5).
//!
//! ```text
//! draft ──deploy──> deployed <──activate── paused          delete: from everywhere, for good
//!   ^                │  │ ^─deploy, activate (again)          │
//!   └──────draft─────┘  └──────────pause────────>             └─deploy──> deployed, draft──> draft
//! ```

mod store;

use letterbox_common::{
    form::FormToken,
    ids::{FormLinkId, ReleaseId, UserId, WorkflowId, WorkspaceId},
};

use serde::Serialize;

use super::{Owner, OwnerError, check_name};
use crate::{actions, definition::Definition};

pub use store::{STATEMENTS, WorkflowDetail, WorkflowRow};

/// A move that is not a deploy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Pause,
    /// Of what is deployed already, too: then it only ends the link.
    Activate,
    Draft,
    Delete,
}

impl Move {
    fn from(self) -> &'static [&'static str] {
        match self {
            Self::Pause => &["deployed"],
            Self::Activate | Self::Draft => &["deployed", "paused"],
            Self::Delete => &["draft", "deployed", "paused"],
        }
    }

    fn to(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Activate => "deployed",
            Self::Draft => "draft",
            Self::Delete => "deleted",
        }
    }
}

/// A deployed workflow, and what its owner may want to mend.
#[derive(Debug, Clone, Serialize)]
pub struct Deployed {
    #[serde(flatten)]
    pub workflow: WorkflowRow,
    pub warnings: Vec<String>,
}

/// A form link and its token, at the only time that it is shown.
#[derive(Debug, Clone)]
pub struct NewFormLink {
    pub workspace: WorkspaceId,
    pub workflow: WorkflowId,
    pub link: FormLinkId,
    pub token: FormToken,
}

impl Owner {
    /// Creates a workflow as a draft. `definition` is JSON text.
    ///
    /// # Errors
    /// When the definition has mistakes, or the owner is no member who may run workflows.
    pub async fn create_workflow(
        &self,
        workspace: WorkspaceId,
        owner: UserId,
        name: &str,
        definition: &str,
    ) -> Result<WorkflowRow, OwnerError> {
        check_name(name)?;
        check(definition)?;
        let created = store::create(
            &self.client,
            workspace,
            WorkflowId::generate(),
            owner,
            name,
            definition,
        )
        .await?;
        created.ok_or_else(|| {
            OwnerError::refused(
                "the owner has to be a member of the workspace who may run workflows",
            )
        })
    }

    /// Makes a release of `definition`, or of the one that the workflow has, and deploys it.
    ///
    /// # Errors
    /// When the definition has mistakes, or there is no such workflow, or it is deleted.
    pub async fn deploy(
        &mut self,
        workflow: WorkflowId,
        definition: Option<&str>,
    ) -> Result<Deployed, OwnerError> {
        let transaction = self.client.transaction().await?;
        let draft = store::lock_draft(&transaction, workflow).await?;
        let draft = draft
            .ok_or_else(|| OwnerError::refused("there is no such workflow, or it is deleted"))?;
        let text = definition.map(str::to_owned).or(draft);
        let text =
            text.ok_or_else(|| OwnerError::refused("the workflow has no definition: give one"))?;
        let definition = check(&text)?;
        let release = ReleaseId::generate();
        store::release(
            &transaction,
            workflow,
            release,
            &definition.form_json(),
            definition.actions_json(),
        )
        .await?;
        let deployed = store::deploy(&transaction, workflow, release, &text).await?;
        let accounts = actions::accounts(&definition.actions);
        let missing = store::missing_accounts(&transaction, &deployed, &accounts).await?;
        transaction.commit().await?;
        let warn = |name: &String| {
            format!("the owner has no connected account {name:?}: actions that use it will fail")
        };
        Ok(Deployed {
            workflow: deployed,
            warnings: missing.iter().map(warn).collect(),
        })
    }

    /// Moves a workflow. The live link dies with it.
    ///
    /// # Errors
    /// When there is no such workflow, or its state does not allow this move.
    pub async fn move_workflow(
        &self,
        workflow: WorkflowId,
        to: Move,
    ) -> Result<WorkflowRow, OwnerError> {
        if let Some(moved) = store::move_to(&self.client, workflow, to.from(), to.to()).await? {
            return Ok(moved);
        }
        let state = self.workflow(workflow).await?.row.state;
        Err(OwnerError::refused(format!(
            "the workflow is {state}: it can't become {} this way",
            to.to()
        )))
    }

    /// # Errors
    /// When there is no such workflow.
    pub async fn workflow(&self, workflow: WorkflowId) -> Result<WorkflowDetail, OwnerError> {
        let found = store::find(&self.client, workflow).await?;
        found.ok_or_else(|| OwnerError::refused("there is no such workflow"))
    }

    /// The workflows of a workspace, deleted ones included.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn workflows(&self, workspace: WorkspaceId) -> Result<Vec<WorkflowRow>, OwnerError> {
        self.need_workspace(workspace).await?;
        Ok(store::list(&self.client, workspace).await?)
    }

    /// Makes a new form link; the one before is dead from the same moment.
    ///
    /// # Errors
    /// When the workflow is not deployed, or its owner may not run it.
    pub async fn create_form_link(&self, workflow: WorkflowId) -> Result<NewFormLink, OwnerError> {
        let token =
            FormToken::generate().map_err(|error| OwnerError::refused(error.to_string()))?;
        let link = FormLinkId::generate();
        let made = store::create_link(&self.client, workflow, link, token.hash().as_bytes()).await;
        let workspace =
            made.map_err(
                |error| match error.as_db_error().and_then(|error| error.constraint()) {
                    Some("owner_may_run") => {
                        OwnerError::refused("the workflow's owner may not run workflows here")
                    }
                    Some("workflow_is_deployed") => {
                        OwnerError::refused("the workflow is not deployed")
                    }
                    _ => error.into(),
                },
            )?;
        let workspace =
            workspace.ok_or_else(|| OwnerError::refused("there is no such workflow"))?;
        Ok(NewFormLink {
            workspace,
            workflow,
            link,
            token,
        })
    }
}

fn check(definition: &str) -> Result<Definition, OwnerError> {
    Definition::check(definition).map_err(|mistakes| {
        OwnerError::refused(format!(
            "the definition can't be deployed:\n  {}",
            mistakes.join("\n  ")
        ))
    })
}
