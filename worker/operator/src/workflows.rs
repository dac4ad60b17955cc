//! Orders about the life of a workflow. Every move is one transaction; the database ends the live
//! form link in it (migrations/V5).
//!
//! ```text
//! draft ──deploy──> deployed <──activate── paused          delete: from everywhere, for good
//!   ^                │  │ ^─deploy, activate (again)          │
//!   └──────draft─────┘  └──────────pause────────>             └─deploy──> deployed, draft──> draft
//! ```

use letterbox_common::{
    ids::{ReleaseId, UserId, WorkflowId, WorkspaceId},
    public_address::is_private_host,
    states::WorkflowState,
};
use letterbox_database::{DatabaseError, Transaction, Work};
use letterbox_workflow::{Definition, actions};
use serde::Serialize;
use url::Url;

use crate::{
    Closing, NewFormLink, Operator, OperatorError, Reason, WorkflowDetail, WorkflowRow, check_name,
    form_links::{self, Planned},
    store,
};

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

/// A deployed workflow, and what its owner may want to fix.
#[derive(Debug, Clone, Serialize)]
pub struct DeployedWorkflow {
    /// As it is after the deploy.
    #[serde(flatten)]
    pub workflow: WorkflowRow,
    /// One sentence for each account that its actions use and that is missing or private, and for
    /// each condition that compares what a submission may leave out.
    pub warnings: Vec<String>,
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
    ) -> Result<WorkflowRow, OperatorError> {
        check_name(name)?;
        check(definition)?;
        let new = store::NewWorkflow {
            workspace,
            workflow: WorkflowId::generate(),
            owner,
            name,
            draft: definition,
        };
        store::create_workflow(&self.database, &new)
            .await?
            .ok_or(Reason::OwnerMustRun.into())
    }

    /// Makes a release of `definition`, or of the one that the workflow has, and deploys it.
    ///
    /// # Errors
    /// When the definition has mistakes, or there is no such workflow, or it is deleted.
    pub async fn deploy(
        &self,
        workflow: WorkflowId,
        definition: Option<&str>,
    ) -> Result<DeployedWorkflow, OperatorError> {
        let deploying = self.deploy_all(workflow, definition, None);
        deploying.await.map(|(deployed, _)| deployed)
    }

    /// As [`Self::deploy`], with a form link, in one step.
    ///
    /// # Errors
    /// Also when the owner may not run the workflow, or the link would be closed already: then
    /// nothing is deployed.
    pub async fn deploy_with_link(
        &self,
        workflow: WorkflowId,
        definition: Option<&str>,
        closing: Closing,
    ) -> Result<(DeployedWorkflow, NewFormLink), OperatorError> {
        let planned = Planned::new(closing)?;
        let deploying = self.deploy_all(workflow, definition, Some(planned));
        let (deployed, link) = deploying.await?;
        Ok((deployed, link.ok_or(Reason::NotFound("workflow"))?))
    }

    async fn deploy_all(
        &self,
        workflow: WorkflowId,
        definition: Option<&str>,
        planned: Option<Planned>,
    ) -> Result<Deployed, OperatorError> {
        let work = Deploy {
            workflow,
            definition,
            planned,
        };
        let deploying = self.database.transaction("deploy", &work);
        match deploying.await.map_err(form_links::explain)? {
            Some(deployed) => Ok(deployed?),
            None => Err(Reason::NotFound("workflow, or it is deleted").into()),
        }
    }

    /// Moves a workflow. The live link dies with it.
    ///
    /// # Errors
    /// When there is no such workflow, or its state does not allow this move.
    pub async fn move_workflow(
        &self,
        workflow: WorkflowId,
        to: Move,
    ) -> Result<WorkflowRow, OperatorError> {
        let moving = store::move_workflow(&self.database, workflow, to.from(), to.to());
        if let Some(moved) = moving.await? {
            return Ok(moved);
        }
        let from = self.workflow(workflow).await?.row.state;
        Err(Reason::ImpossibleMove { from, to: to.to() }.into())
    }

    /// One workflow with its definition.
    ///
    /// # Errors
    /// When there is no such workflow.
    pub async fn workflow(&self, workflow: WorkflowId) -> Result<WorkflowDetail, OperatorError> {
        let found = store::workflow(&self.database, workflow).await?;
        found.ok_or(Reason::NotFound("workflow").into())
    }

    /// The keys of the fields that the forms of a workflow have had: those of the newest release
    /// first, each once.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn field_keys(&self, workflow: WorkflowId) -> Result<Vec<String>, OperatorError> {
        let forms = store::forms(&self.database, workflow).await?;
        let mut keys: Vec<String> = Vec::new();
        for field in forms.into_iter().flat_map(|form| form.fields) {
            if !keys.contains(&field.key) {
                keys.push(field.key);
            }
        }
        Ok(keys)
    }

    /// The workflows of a workspace, deleted ones included.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn workflows(
        &self,
        workspace: WorkspaceId,
    ) -> Result<Vec<WorkflowRow>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::workflows(&self.database, workspace).await?)
    }
}

fn check(definition: &str) -> Result<Definition, Reason> {
    Definition::check(definition).map_err(Reason::InvalidDefinition)
}

/// What was deployed, and the link that was wanted with it.
type Deployed = (DeployedWorkflow, Option<NewFormLink>);

struct Deploy<'a> {
    workflow: WorkflowId,
    definition: Option<&'a str>,
    /// The link that is wanted with it.
    planned: Option<Planned>,
}

impl Work for Deploy<'_> {
    /// A refusal commits nothing but the lock that it has taken.
    type Output = Result<Deployed, Reason>;

    async fn run(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<Option<Self::Output>, DatabaseError> {
        if self.planned.is_some() {
            store::lock_owner(transaction, self.workflow).await?;
        }
        let Some(draft) = store::lock_draft(transaction, self.workflow).await? else {
            return Ok(None);
        };
        let Some(text) = self.definition.map(str::to_owned).or(draft) else {
            return Ok(Some(Err(Reason::NoDefinition)));
        };
        let definition = match check(&text) {
            Ok(definition) => definition,
            Err(reason) => return Ok(Some(Err(reason))),
        };
        let release = ReleaseId::generate();
        store::create_release(transaction, self.workflow, release, &definition).await?;
        let workflow = store::deploy(transaction, self.workflow, release, &text).await?;
        let all = [&definition.actions[..], &definition.on_failure[..]].concat();
        let names = actions::account_names(&all);
        let accounts = store::owners_accounts(transaction, &workflow, &names).await?;
        let mut warnings = definition.warnings();
        warnings.extend(names.iter().filter_map(|name| {
            let account = accounts.iter().find(|(known, _)| known == name);
            account_warning(name, account.map(|(_, base_url)| base_url.as_str()))
        }));
        let link = match &self.planned {
            Some(planned) => planned.make(transaction, self.workflow).await?,
            None => None,
        };
        Ok(Some(Ok((DeployedWorkflow { workflow, warnings }, link))))
    }
}

/// What may be wrong with an account that actions use; `base_url` is None where the owner has none
/// of this name.
fn account_warning(name: &str, base_url: Option<&str>) -> Option<String> {
    let Some(base_url) = base_url else {
        return Some(format!(
            "the owner has no connected account {name:?}: actions that use it will fail"
        ));
    };
    let host = Url::parse(base_url).ok()?.host_str()?.to_owned();
    is_private_host(&host).then(|| {
        format!(
            "the account {name:?} is at {host}, which is private: actions that use it will fail, \
             unless LETTERBOX_EGRESS_ALLOW of the workers names it"
        )
    })
}
