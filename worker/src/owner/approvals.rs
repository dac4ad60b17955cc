//! Orders about approvals and the policy that asks for them.

use letterbox_common::ids::{ApprovalId, UserId, WorkspaceId};
use tokio_postgres::error::SqlState;

use super::{ApprovalRow, Owner, OwnerError, PolicyRow, store};
use crate::policy::Policy;

impl Owner {
    /// The questions of a workspace that wait for an answer, oldest first.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn approvals(&self, workspace: WorkspaceId) -> Result<Vec<ApprovalRow>, OwnerError> {
        self.need_workspace(workspace).await?;
        Ok(store::approvals(&self.client, workspace).await?)
    }

    /// Answers a question, and wakes the run that waits.
    ///
    /// # Errors
    /// When it is answered or has expired already, or the user may not answer it.
    pub async fn decide(
        &self,
        approval: ApprovalId,
        by: UserId,
        approve: bool,
    ) -> Result<ApprovalRow, OwnerError> {
        let state = if approve { "approved" } else { "denied" };
        if let Some(decided) = store::decide(&self.client, approval, by, state).await? {
            return Ok(decided);
        }
        let found = store::approval(&self.client, approval).await?;
        let found = found.ok_or_else(|| OwnerError::refused("there is no such approval"))?;
        Err(OwnerError::refused(match found.state.as_str() {
            "pending" if found.expires_at > jiff::Timestamp::now() => {
                "only an active owner or editor of the workspace may answer".to_owned()
            }
            "pending" => "it has expired".to_owned(),
            state => format!("it is {state} already"),
        }))
    }

    /// The policy of a workspace that holds now.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn policy(&self, workspace: WorkspaceId) -> Result<PolicyRow, OwnerError> {
        self.need_workspace(workspace).await?;
        let found = store::policy(&self.client, workspace).await?;
        Ok(found.unwrap_or_else(|| PolicyRow {
            workspace_id: workspace,
            version: 0,
            policy: serde_json::to_value(Policy::default()).unwrap_or_default(),
        }))
    }

    /// Sets a policy: every action from now on is asked of it. `policy` is JSON text.
    ///
    /// # Errors
    /// When it is no policy, or there is no such workspace.
    pub async fn set_policy(
        &self,
        workspace: WorkspaceId,
        policy: &str,
    ) -> Result<PolicyRow, OwnerError> {
        Policy::read(policy)
            .map_err(|error| OwnerError::refused(format!("that is no policy: {error}")))?;
        self.need_workspace(workspace).await?;
        store::set_policy(&self.client, workspace, policy)
            .await
            .map_err(|error| {
                OwnerError::explain(
                    error,
                    &SqlState::UNIQUE_VIOLATION,
                    "somebody has set another policy at the same time",
                )
            })
    }
}
