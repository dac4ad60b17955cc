//! Orders about the policy of a workspace.

use letterbox_common::ids::WorkspaceId;
use letterbox_workflow::Policy;
use tokio_postgres::error::SqlState;

use crate::{Operator, OperatorError, PolicyRow, Reason, error::Explain, store};

impl Operator {
    /// The policy of a workspace that holds now.
    ///
    /// # Errors
    /// When there is no such workspace.
    #[expect(
        clippy::expect_used,
        reason = "a policy is words, numbers and lists of them"
    )]
    pub async fn policy(&self, workspace: WorkspaceId) -> Result<PolicyRow, OperatorError> {
        self.need_workspace(workspace).await?;
        let found = store::policy(&self.database, workspace).await?;
        Ok(found.unwrap_or_else(|| PolicyRow {
            workspace_id: workspace,
            version: 0,
            policy: serde_json::to_value(Policy::default())
                .expect("words, numbers and lists of them always serialize"),
        }))
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
