//! Orders about workspaces: how many runs they may start, and their end.

use letterbox_common::ids::{RunId, WorkspaceId};

use crate::{
    Allowance, Operator, OperatorError, Reason, Retries, Usage, Workspace, check_name, store,
};

/// Rows that one statement deletes or changes.
const PIECE: i32 = 1_000;

impl Operator {
    /// Creates a workspace that may start `run_allowance` runs in a calendar month; `None` is
    /// unlimited.
    ///
    /// # Errors
    /// When the name is empty or too long.
    pub async fn create_workspace(
        &self,
        name: &str,
        run_allowance: Option<u32>,
    ) -> Result<Workspace, OperatorError> {
        check_name(name)?;
        if name == "all" {
            return Err(Reason::ReservedName.into());
        }
        let (id, allowance) = (WorkspaceId::generate(), stored_allowance(run_allowance)?);
        Ok(store::create_workspace(&self.database, id, name, allowance).await?)
    }

    /// All workspaces.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn workspaces(&self) -> Result<Vec<Workspace>, OperatorError> {
        Ok(store::workspaces(&self.database).await?)
    }

    /// What a workspace may start in a month and has started in this one.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn allowance(&self, workspace: WorkspaceId) -> Result<Allowance, OperatorError> {
        let found = store::allowance(&self.database, workspace).await?;
        found.ok_or(Reason::NotFound("workspace").into())
    }

    /// What a workspace uses.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn usage(&self, workspace: WorkspaceId) -> Result<Usage, OperatorError> {
        let found = store::usage(&self.database, workspace).await?;
        found.ok_or(Reason::NotFound("workspace").into())
    }

    /// Sets how many runs a workspace may start in a calendar month (UTC); `None` is unlimited.
    /// What has started this month counts.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn set_allowance(
        &self,
        workspace: WorkspaceId,
        runs: Option<u32>,
    ) -> Result<Allowance, OperatorError> {
        store::set_allowance(&self.database, workspace, stored_allowance(runs)?).await?;
        self.allowance(workspace).await
    }
}

impl Operator {
    /// How often a workspace has its actions tried.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn retries(&self, workspace: WorkspaceId) -> Result<Retries, OperatorError> {
        let found = store::retries(&self.database, workspace).await?;
        found.ok_or(Reason::NotFound("workspace").into())
    }

    /// Sets how often a workspace has its actions tried: 1 to 30 attempts, and 1 ms to an hour
    /// before the second one.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn set_retries(&self, retries: &Retries) -> Result<Retries, OperatorError> {
        store::set_retries(&self.database, retries).await?;
        self.retries(retries.workspace_id).await
    }

    /// Sets whether what accounts have answered is kept, sealed, when their run has succeeded.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn keep_answers(
        &self,
        workspace: WorkspaceId,
        keep: bool,
    ) -> Result<(), OperatorError> {
        self.need_workspace(workspace).await?;
        Ok(store::keep_answers(&self.database, workspace, keep).await?)
    }

    /// Sets whether runs can be found by what was submitted to them. On, that holds for new runs;
    /// off, for all: what stands for their values is deleted in small pieces.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn set_search(
        &self,
        workspace: WorkspaceId,
        is_searchable: bool,
    ) -> Result<(), OperatorError> {
        self.need_workspace(workspace).await?;
        store::set_search(&self.database, workspace, is_searchable).await?;
        let mut beyond = (!is_searchable).then(|| RunId::earliest_at(0));
        while let Some(run) = beyond {
            beyond = store::stop_search(&self.database, workspace, run, PIECE).await?;
        }
        Ok(())
    }

    /// Holds a workspace, or all: its runs begin no action until it is released. Forms and webhooks
    /// go on. False where it was held already.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn hold(&self, workspace: Option<WorkspaceId>) -> Result<bool, OperatorError> {
        if let Some(workspace) = workspace {
            self.need_workspace(workspace).await?;
        }
        Ok(store::hold(&self.database, workspace).await?)
    }

    /// Lets the runs of a workspace, or of all, begin actions again. Questions that waited for an
    /// answer meanwhile wait for so much longer. False where it was not held.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn release(&self, workspace: Option<WorkspaceId>) -> Result<bool, OperatorError> {
        if let Some(workspace) = workspace {
            self.need_workspace(workspace).await?;
        }
        Ok(store::release(&self.database, workspace).await?)
    }

    /// Deletes a workspace with everything in it, and the users who belong to no other. Its forms,
    /// webhooks and accounts end first; the rest goes in small pieces. To repeat the order after a
    /// failure is safe.
    ///
    /// # Errors
    /// When there is no such workspace of this name.
    pub async fn delete_workspace(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<u64, OperatorError> {
        if !store::close_workspace(&self.database, workspace, name).await? {
            return Err(Reason::NotFound("workspace of this name").into());
        }
        let mut deleted = 0;
        loop {
            match store::empty_workspace(&self.database, workspace, PIECE).await? {
                0 => return Ok(deleted),
                rows => deleted += rows.unsigned_abs(),
            }
        }
    }
}

/// An allowance as the database stores it.
fn stored_allowance(runs: Option<u32>) -> Result<Option<i32>, Reason> {
    runs.map(i32::try_from)
        .transpose()
        .map_err(|_| Reason::AllowanceTooLarge)
}
