//! Deploys: a definition becomes the next release of a workflow and is live, with a form link if
//! one is wanted; all of it in one transaction.

use std::collections::BTreeMap;

use letterbox_common::{
    ids::{ReleaseId, UserId, WorkflowId, WorkspaceId},
    public_address::is_private_host,
};
use letterbox_database::{Client, DatabaseError, Transaction, Work, statements};
use letterbox_workflow::{
    Definition, LANGUAGE, account,
    actions::{self, Action},
};
use serde::Serialize;
use url::Url;

use crate::{
    Closing, NewFormLink, Operator, Reason, Result,
    accounts::in_clear_text,
    form_links::{self, PlannedLink},
    workflows::{GONE, WorkflowRow, workflow_columns},
};

statements! {
    /// Locks the membership of a workflow's owner.
    desk fn lock_owner(workspace: WorkspaceId, workflow: WorkflowId) = "
SELECT lock_owner($1, $2)";

    /// Locks a workflow against other moves. Gives the definition that it would deploy.
    desk fn lock_definition(
        workspace: WorkspaceId, workflow: WorkflowId,
    ) -> Option<(Option<String>,)> = "
SELECT f.definition FROM workflows f
WHERE f.workspace_id = $1 AND f.workflow_id = $2 AND f.state <> 'deleted' FOR NO KEY UPDATE";

    /// Adds the next release of a workflow.
    desk fn create_release(
        workspace: WorkspaceId, workflow: WorkflowId, release: ReleaseId, form: &str, actions: &str,
        first_account: Option<&str>, on_failure: Option<&str>, page: Option<&str>,
        least_seconds: Option<i16>, language: i16,
    ) = "
INSERT INTO releases (workspace_id, workflow_id, release_id, number, form, actions, first_account,
    on_failure, page, least_seconds, language)
SELECT f.workspace_id, f.workflow_id, $3, coalesce(max(r.number), 0) + 1, $4, $5, $6, $7, $8, $9,
    $10
FROM workflows f
LEFT JOIN releases r ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
WHERE f.workspace_id = $1 AND f.workflow_id = $2
GROUP BY f.workspace_id, f.workflow_id";

    /// Deploys a release.
    desk fn deploy_release(
        workspace: WorkspaceId, workflow: WorkflowId, release: ReleaseId, definition: &str,
    ) -> WorkflowRow = concat!("
UPDATE workflows f SET state = 'deployed', live_release_id = $3, definition = $4
WHERE f.workspace_id = $1 AND f.workflow_id = $2
RETURNING ", workflow_columns!());

    /// Which of these accounts a user has, and where they are.
    desk fn owners_accounts(
        workspace: WorkspaceId, owner: UserId, names: &[&str],
    ) -> Vec<(String, String)> = "
SELECT name, base_url FROM connected_accounts
WHERE workspace_id = $1 AND user_id = $2 AND name = ANY ($3) AND disconnected_at IS NULL";
}

/// A deployed workflow, with what its owner may want to fix.
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
    /// Makes a release of `definition`, or of the one that the workflow has, and deploys it.
    pub async fn deploy(
        &self,
        workflow: WorkflowId,
        definition: Option<&str>,
    ) -> Result<DeployedWorkflow> {
        let deploying = self.deploy_with(workflow, definition, None);
        deploying.await.map(|(deployed, _)| deployed)
    }

    /// As [`Self::deploy`], with a form link that closes so, if one is wanted, in one step.
    ///
    /// # Errors
    /// Also when the owner may not run the workflow, or the link would be closed already: then
    /// nothing is deployed.
    pub async fn deploy_with(
        &self,
        workflow: WorkflowId,
        definition: Option<&str>,
        closing: Option<Closing>,
    ) -> Result<(DeployedWorkflow, Option<NewFormLink>)> {
        let workspace = self.home(workflow).await?;
        let planned = closing.map(|closing| PlannedLink::new(workspace, workflow, closing));
        let work = Deploy {
            workspace,
            workflow,
            definition,
            planned: planned.transpose()?,
        };
        let deploying = self.database.transaction("deploy", &work);
        match deploying.await.map_err(form_links::explain)? {
            Some(deployed) => Ok(deployed?),
            None => Err(GONE.into()),
        }
    }
}

struct Deploy<'a> {
    workspace: WorkspaceId,
    workflow: WorkflowId,
    definition: Option<&'a str>,
    /// The link that is wanted with it.
    planned: Option<PlannedLink>,
}

impl Work for Deploy<'_> {
    /// The deployed workflow, and the link if one was wanted with it. A refusal commits nothing but
    /// the lock that it has taken.
    type Output = Result<(DeployedWorkflow, Option<NewFormLink>), Reason>;

    async fn run(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<Option<Self::Output>, DatabaseError> {
        let workspace = self.workspace;
        let workflow = self.workflow;
        // Before the workflow: the order of locks in migrations/README.md.
        if self.planned.is_some() {
            lock_owner(transaction, workspace, workflow).await?;
        }
        let Some((stored,)) = lock_definition(transaction, workspace, workflow).await? else {
            return Ok(None);
        };
        let Some(text) = self.definition.map(str::to_owned).or(stored) else {
            return Ok(Some(Err(Reason::NoDefinition)));
        };
        let definition = match Definition::check(&text) {
            Ok(definition) => definition,
            Err(problems) => return Ok(Some(Err(Reason::InvalidDefinition(problems)))),
        };
        let release = ReleaseId::generate();
        create_release(
            transaction,
            workspace,
            workflow,
            release,
            &definition.form_json(),
            definition.actions_json(),
            definition.actions.first().and_then(Action::account),
            definition.on_failure_json(),
            definition.page_json().as_deref(),
            definition.least_seconds,
            LANGUAGE,
        )
        .await?;
        let workflow = deploy_release(transaction, workspace, workflow, release, &text).await?;
        let warnings = warnings(transaction, workspace, workflow.owner_id, &definition).await?;
        let link = match &self.planned {
            Some(planned) => planned.make(transaction).await?,
            None => None,
        };
        Ok(Some(Ok((DeployedWorkflow { workflow, warnings }, link))))
    }
}

/// What an owner may want to fix in a definition, one sentence each; also for each account of the
/// owner that the actions use and that is missing, private or in clear text.
pub(crate) async fn warnings<C: Client>(
    client: &C,
    workspace: WorkspaceId,
    owner: UserId,
    definition: &Definition,
) -> Result<Vec<String>, C::Error> {
    let all = [&definition.actions[..], &definition.on_failure[..]].concat();
    let called = actions::accounts_called(&all);
    let names: Vec<_> = called.iter().map(|(name, _)| *name).collect();
    let accounts = owners_accounts(client, workspace, owner, &names).await?;
    let base_urls: BTreeMap<_, _> = accounts.into_iter().collect();
    let of_accounts = called.into_iter().filter_map(|(name, is_mail)| {
        let base_url = base_urls.get(name).map(String::as_str);
        account_warning(name, is_mail, base_url)
    });
    Ok(definition
        .warnings()
        .into_iter()
        .chain(of_accounts)
        .collect())
}

/// The problem of an account that actions use, if it has one; `base_url` is `None` if the owner has
/// no account of this name.
fn account_warning(name: &str, is_mail: bool, base_url: Option<&str>) -> Option<String> {
    let Some(base_url) = base_url else {
        return Some(format!(
            "the owner has no connected account {name:?}: actions that use it will fail"
        ));
    };
    let url = Url::parse(base_url).ok()?;
    if account::is_mail(&url) != is_mail {
        return Some(match is_mail {
            true => format!("the account {name:?} is no mail server: email.send will fail"),
            false => format!("the account {name:?} is a mail server: only email.send can use it"),
        });
    }
    let host = url.host_str()?.to_owned();
    if is_private_host(&host) {
        return Some(format!(
            "the account {name:?} is at {host}, which is private: actions that use it will fail, \
             unless LETTERBOX_EGRESS_ALLOW of the workers names it"
        ));
    }
    in_clear_text(name, base_url)
}
