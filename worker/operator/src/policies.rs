//! Orders about the policy of a workspace.

use letterbox_common::ids::{WorkflowId, WorkspaceId};
use letterbox_workflow::{
    ActionFacts, Decision, Policy, preview::sending_actions, release::Release,
};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::error::SqlState;
use url::Url;

use crate::{Operator, OperatorError, PolicyRow, PolicyVersion, Reason, error::Explain, store};

/// What a new policy would change.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyChange {
    /// Rules that can match nothing, each with the reason.
    pub warnings: Vec<String>,
    /// Actions of deployed workflows about which it decides otherwise than the policy that holds
    /// now, where untrusted text has as much to do with them as it can.
    pub changes: Vec<RulingChange>,
}

/// An action about which two policies differ.
#[derive(Debug, Clone, Serialize)]
pub struct RulingChange {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The id of the action in its release.
    pub action_id: String,
    /// What the policy that holds now decides.
    pub before: Decision,
    /// What the new one would decide.
    pub after: Decision,
}

impl Operator {
    /// The policy of a workspace that holds now.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn policy(&self, workspace: WorkspaceId) -> Result<PolicyRow, OperatorError> {
        self.need_workspace(workspace).await?;
        let found = store::policy(&self.database, workspace).await?;
        Ok(found.unwrap_or_else(|| PolicyRow {
            workspace_id: workspace,
            version: 0,
            policy: default_policy(),
        }))
    }

    /// A former version of a policy; 0 is the default.
    ///
    /// # Errors
    /// When there is no such workspace, or no such version.
    pub async fn policy_version(
        &self,
        workspace: WorkspaceId,
        version: i32,
    ) -> Result<PolicyRow, OperatorError> {
        self.need_workspace(workspace).await?;
        let found = match version {
            0 => Some(PolicyRow {
                workspace_id: workspace,
                version,
                policy: default_policy(),
            }),
            version => store::policy_version(&self.database, workspace, version).await?,
        };
        found.ok_or(Reason::NotFound("version of the policy").into())
    }

    /// The versions of a policy, the newest first, at most `limit`. The default is none of them.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn policy_history(
        &self,
        workspace: WorkspaceId,
        limit: u32,
    ) -> Result<Vec<PolicyVersion>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::policy_history(&self.database, workspace, limit).await?)
    }

    /// What setting a policy would change for the workflows that are deployed now. Sets nothing.
    ///
    /// # Errors
    /// When the policy is invalid, or there is no such workspace.
    pub async fn preview_policy(
        &self,
        workspace: WorkspaceId,
        policy: &str,
    ) -> Result<PolicyChange, OperatorError> {
        let after = Policy::parse(policy).map_err(Reason::InvalidPolicy)?;
        self.need_workspace(workspace).await?;
        let current = store::policy(&self.database, workspace).await?;
        let mut warnings = Vec::new();
        // One that can't be read denies everything; it must be possible to replace it.
        let before = match current.map(|current| Policy::parse(&current.policy.to_string())) {
            None => Some(Policy::default()),
            Some(Ok(policy)) => Some(policy),
            Some(Err(error)) => {
                warnings.push(format!("the policy that holds now can't be read: {error}"));
                None
            }
        };
        let accounts = store::accounts(&self.database, workspace).await?;
        let accounts = accounts.iter().filter(|one| one.disconnected_at.is_none());
        let accounts: Vec<_> = accounts
            .map(|one| (one.user_id, one.name.clone(), host(&one.base_url)))
            .collect();
        let deployed = store::deployed_actions(&self.database, workspace).await?;
        let mut changes = Vec::new();
        for workflow in &deployed {
            let on_failure = workflow.on_failure.as_deref();
            let Ok(release) = Release::load(&workflow.actions, on_failure) else {
                continue;
            };
            for action in sending_actions(&release) {
                let mut of_owner = accounts.iter().filter(|one| one.0 == workflow.owner);
                let account = of_owner.find(|one| one.1 == action.account);
                let facts = ActionFacts {
                    action: action.kind,
                    account: action.account,
                    method: action.method,
                    host: account.map(|one| one.2.as_str()).unwrap_or_default(),
                    taint: action.taint,
                };
                let before = before.as_ref().map(|before| before.decide(&facts).decision);
                let before = before.unwrap_or(Decision::Deny);
                let after = after.decide(&facts).decision;
                if before != after {
                    changes.push(RulingChange {
                        workflow_id: workflow.workflow,
                        action_id: action.id.to_owned(),
                        before,
                        after,
                    });
                }
            }
        }
        let named: Vec<_> = accounts.into_iter().map(|one| (one.1, one.2)).collect();
        warnings.extend(after.useless_rules(&named));
        Ok(PolicyChange { warnings, changes })
    }

    /// Sets a policy: every action from now on is decided by it. `policy` is JSON text.
    ///
    /// # Errors
    /// When the policy is invalid, or there is no such workspace.
    pub async fn set_policy(
        &self,
        workspace: WorkspaceId,
        policy: &str,
    ) -> Result<PolicyRow, OperatorError> {
        Policy::parse(policy).map_err(Reason::InvalidPolicy)?;
        self.need_workspace(workspace).await?;
        let setting = store::set_policy(&self.database, workspace, policy);
        setting
            .await
            .explain(&SqlState::UNIQUE_VIOLATION, Reason::PolicyConflict)
    }
}

#[expect(
    clippy::expect_used,
    reason = "a policy is words, numbers and lists of them"
)]
fn default_policy() -> Value {
    serde_json::to_value(Policy::default())
        .expect("words, numbers and lists of them always serialize")
}

/// The host of a base URL; nothing where it has none.
fn host(base_url: &str) -> String {
    let url = Url::parse(base_url).ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.unwrap_or_default().to_owned()
}
