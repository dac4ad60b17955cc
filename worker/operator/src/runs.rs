//! A look at runs, and the order to forget what one was given.

use letterbox_common::ids::{RunId, WorkflowId, WorkspaceId};

use crate::{Operator, OperatorError, Reason, RunDetail, RunRow, store};

impl Operator {
    /// The newest runs of a workspace, or of one of its workflows, at most `limit`.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn runs(
        &self,
        workspace: WorkspaceId,
        workflow: Option<WorkflowId>,
        limit: u32,
    ) -> Result<Vec<RunRow>, OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::runs(&self.database, workspace, workflow, limit).await?)
    }

    /// One run with its input and what it has done.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn run(&self, id: RunId) -> Result<RunDetail, OperatorError> {
        store::run(&self.database, id)
            .await?
            .ok_or(Reason::NotFound("run").into())
    }

    /// Forgets what a person has submitted to a run that is over, and what was sent of it. That the
    /// run was there stays known.
    ///
    /// # Errors
    /// When there is no such run, or it is not over.
    pub async fn erase_run(&self, id: RunId) -> Result<RunDetail, OperatorError> {
        match store::erase_run(&self.database, id).await? {
            None => Err(Reason::NotFound("run").into()),
            Some(false) => Err(Reason::RunNotOver.into()),
            Some(true) => self.run(id).await,
        }
    }
}
