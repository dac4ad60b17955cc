//! Policies: the rules of a workspace by which each action is allowed, denied or asked about.

use jiff::Timestamp;
use letterbox_common::ids::{UserId, WorkflowId, WorkspaceId};
use letterbox_database::{FromRow, statements};
use letterbox_workflow::{
    ActionFacts, Decision, Definition, Policy, preview::sending_actions, release::Release,
};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::error::SqlState;
use url::Url;

use crate::{AccountRow, Operator, Reason, Result, error::Explain, json};

statements! {
    /// One version of a policy, or the one that holds now.
    desk fn policy(workspace: WorkspaceId, version: Option<i32>) -> Option<PolicyRow> = "
SELECT workspace_id, version, policy FROM policies
WHERE workspace_id = $1 AND ($2::integer IS NULL OR version = $2) ORDER BY version DESC LIMIT 1";

    /// The versions of a policy, newest first, with who has set them.
    desk fn policy_history(workspace: WorkspaceId, limit: i64) -> Vec<PolicyVersion> = "
SELECT p.version, p.created_at AS set_at, a.ordered_by AS set_by, u.name AS set_by_name, a.reason,
       p.policy
FROM policies p
LEFT JOIN audit_log a ON a.workspace_id = p.workspace_id AND a.subject = 'policies'
    AND a.subject_id = p.version::text
LEFT JOIN users u ON u.user_id = a.ordered_by
WHERE p.workspace_id = $1 ORDER BY p.version DESC LIMIT $2";

    /// The actions of every deployed workflow of a workspace.
    desk fn deployed_actions(workspace: WorkspaceId) -> Vec<DeployedActions> = "
SELECT f.workflow_id, f.name, f.owner_id, r.actions, r.on_failure
FROM workflows f JOIN releases r
    ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
    AND r.release_id = f.live_release_id
WHERE f.workspace_id = $1 AND f.state = 'deployed' ORDER BY f.name, f.workflow_id";

    /// Adds the next version of a policy; if a version is given, only behind that one.
    desk fn set_policy(
        workspace: WorkspaceId, policy: &str, version: Option<i32>,
    ) -> Option<PolicyRow> = "
INSERT INTO policies (workspace_id, version, policy)
SELECT $1, coalesce(max(version), 0) + 1, $2 FROM policies WHERE workspace_id = $1
HAVING coalesce($3 = coalesce(max(version), 0), true)
RETURNING workspace_id, version, policy";
}

/// A workspace's policy.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct PolicyRow {
    /// The workspace whose actions it decides about.
    pub workspace_id: WorkspaceId,
    /// Counts from 1; 0 is the default policy.
    pub version: i32,
    /// Its rules and its default, as set.
    #[row(with = json)]
    pub policy: Value,
}

impl PolicyRow {
    fn default_of(workspace_id: WorkspaceId) -> Self {
        Self {
            workspace_id,
            version: 0,
            policy: default_policy(),
        }
    }
}

/// A version of a policy, with its author.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct PolicyVersion {
    /// Counts from 1.
    pub version: i32,
    /// By the database's clock.
    pub set_at: Timestamp,
    /// The user who answers for it; `None` if no user was named.
    pub set_by: Option<UserId>,
    /// The name of that user.
    pub set_by_name: Option<String>,
    /// The author's reason, if one was given.
    pub reason: Option<String>,
    /// Its rules and its default.
    #[row(with = json)]
    pub policy: Value,
}

/// The actions of a deployed workflow, as JSON text.
#[derive(FromRow)]
pub(crate) struct DeployedActions {
    pub(crate) workflow_id: WorkflowId,
    pub(crate) name: String,
    pub(crate) owner_id: UserId,
    actions: String,
    on_failure: Option<String>,
}

impl DeployedActions {
    /// Those of a workflow that is not deployed yet.
    pub(crate) fn of(name: &str, owner: UserId, definition: &Definition) -> Self {
        Self {
            workflow_id: WorkflowId::generate(),
            name: name.to_owned(),
            owner_id: owner,
            actions: definition.actions_json().to_owned(),
            on_failure: definition.on_failure_json().map(str::to_owned),
        }
    }

    /// `None` if a newer version has written them.
    pub(crate) fn release(&self) -> Option<Release> {
        Release::parse(&self.actions, self.on_failure.as_deref()).ok()
    }
}

/// The effect that a new policy would have.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyChange {
    /// Rules without effect, each with the reason.
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
    /// Its name: what it is called also before it is made.
    pub workflow_name: String,
    /// The id of the action in its release.
    pub action_id: String,
    /// The decision of the current policy.
    pub before: Decision,
    /// The decision of the new one.
    pub after: Decision,
}

impl Operator {
    /// Gives the current policy of a workspace.
    pub async fn policy(&self, workspace: WorkspaceId) -> Result<PolicyRow> {
        self.need_workspace(workspace).await?;
        let found = policy(self, workspace, None).await?;
        Ok(found.unwrap_or_else(|| PolicyRow::default_of(workspace)))
    }

    /// Gives a former version of a policy; 0 is the default.
    pub async fn policy_version(&self, workspace: WorkspaceId, version: i32) -> Result<PolicyRow> {
        self.need_workspace(workspace).await?;
        let found = match version {
            0 => Some(PolicyRow::default_of(workspace)),
            version => policy(self, workspace, Some(version)).await?,
        };
        found.ok_or(Reason::NotFound("version of the policy").into())
    }

    /// Lists the versions of a policy, newest first, at most `limit`, without the default.
    pub async fn policy_history(
        &self,
        workspace: WorkspaceId,
        limit: u32,
    ) -> Result<Vec<PolicyVersion>> {
        self.need_workspace(workspace).await?;
        policy_history(self, workspace, limit.into()).await
    }

    /// Tells what setting a policy would change for the workflows that are deployed now. Sets
    /// nothing.
    pub async fn preview_policy(
        &self,
        workspace: WorkspaceId,
        policy: &str,
    ) -> Result<PolicyChange> {
        let current = self.policy(workspace).await?.policy.to_string();
        let accounts = self.accounts(workspace).await?;
        let deployed = self.deployed_actions(workspace).await?;
        compare_policies(&current, policy, &accounts, &deployed)
    }

    /// Sets a policy: every action from now on is decided by it. `policy` is JSON text.
    pub async fn set_policy(&self, workspace: WorkspaceId, policy: &str) -> Result<PolicyRow> {
        self.replace_policy(workspace, policy, None).await
    }

    /// Sets a policy in place of this version, and of no other; `None` is whichever holds.
    pub async fn replace_policy(
        &self,
        workspace: WorkspaceId,
        policy: &str,
        version: Option<i32>,
    ) -> Result<PolicyRow> {
        Policy::parse(policy).map_err(Reason::InvalidPolicy)?;
        self.need_workspace(workspace).await?;
        let set = set_policy(&self.database, workspace, policy, version).await;
        // Of two that are set at once, both draw the same number.
        set.explain(&SqlState::UNIQUE_VIOLATION, Reason::PolicyConflict)?
            .ok_or(Reason::PolicyConflict.into())
    }

    /// The actions of the workflows that are deployed now.
    pub(crate) async fn deployed_actions(
        &self,
        workspace: WorkspaceId,
    ) -> Result<Vec<DeployedActions>> {
        deployed_actions(self, workspace).await
    }
}

/// Tells what another policy than `current` changes for these workflows. Both are JSON text.
pub(crate) fn compare_policies(
    current: &str,
    policy: &str,
    accounts: &[AccountRow],
    deployed: &[DeployedActions],
) -> Result<PolicyChange> {
    let after = Policy::parse(policy).map_err(Reason::InvalidPolicy)?;
    let mut warnings = Vec::new();
    // One that can't be read denies everything; it must be possible to replace it.
    let before = match Policy::parse(current) {
        Ok(policy) => Some(policy),
        Err(error) => {
            warnings.push(format!("the policy that holds now can't be read: {error}"));
            None
        }
    };
    let accounts = accounts.iter().filter(|one| one.disconnected_at.is_none());
    let accounts: Vec<_> = accounts
        .map(|one| (one.user_id, one.name.clone(), host(&one.base_url)))
        .collect();
    let mut changes = Vec::new();
    for workflow in deployed {
        // A newer version has written it: what it sends is not known here.
        let Some(release) = workflow.release() else {
            continue;
        };
        for action in sending_actions(&release) {
            let mut of_owner = accounts.iter().filter(|one| one.0 == workflow.owner_id);
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
                    workflow_id: workflow.workflow_id,
                    workflow_name: workflow.name.clone(),
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

pub(crate) fn default_policy() -> Value {
    serde_json::json!(Policy::default())
}

/// The host of a base URL; empty if it has none.
fn host(base_url: &str) -> String {
    let url = Url::parse(base_url).ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.unwrap_or_default().to_owned()
}
