//! Orders about runs: how many a workspace may start, and a look at them.

use letterbox_common::ids::{RunId, WorkflowId, WorkspaceId};

use super::{Allowance, Owner, OwnerError, RunDetail, RunRow, store};

impl Owner {
    /// What a workspace may start in a month and has started in this one.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn allowance(&self, workspace: WorkspaceId) -> Result<Allowance, OwnerError> {
        let found = store::allowance(&self.client, workspace).await?;
        found.ok_or_else(|| OwnerError::refused("there is no such workspace"))
    }

    /// Sets how many runs a workspace may start in a calendar month (UTC); `None` is without limit.
    /// What has started this month counts.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn set_allowance(
        &self,
        workspace: WorkspaceId,
        runs: Option<u32>,
    ) -> Result<Allowance, OwnerError> {
        store::set_allowance(&self.client, workspace, allowance(runs)?).await?;
        self.allowance(workspace).await
    }

    /// The newest runs of a workspace, or of one workflow, at most `limit`.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn runs(
        &self,
        workspace: WorkspaceId,
        workflow: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<RunRow>, OwnerError> {
        self.need_workspace(workspace).await?;
        Ok(store::runs(&self.client, workspace, workflow, limit).await?)
    }

    /// One run with its input.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn run(&self, id: RunId) -> Result<RunDetail, OwnerError> {
        store::run(&self.client, id)
            .await?
            .ok_or_else(|| OwnerError::refused("there is no such run"))
    }
}

/// An allowance as the database holds it.
pub(super) fn allowance(runs: Option<u32>) -> Result<Option<i32>, OwnerError> {
    runs.map(i32::try_from)
        .transpose()
        .map_err(|_| OwnerError::refused("an allowance is at most 2,147,483,647 runs"))
}
