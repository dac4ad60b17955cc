//! A look at runs, and the orders about them: to cancel one, to retry it, and to forget what it was
//! given.

use jiff::Timestamp;
use letterbox_common::{
    form::MAX_LOOKUP_TEXT,
    ids::{RunId, WorkspaceId},
    sealing::{KeyRing, Place},
};
use serde::Serialize;

use crate::{
    CancelOutcome, FormAnswer, Operator, OperatorError, Reason, RetryOutcome, RunDetail, RunFilter,
    RunRow, WorkflowRow, store,
};

/// What an order to cancel came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cancelled {
    /// The run.
    pub run_id: RunId,
    /// None where it was over already.
    pub outcome: Option<CancelOutcome>,
}

/// What an order to retry came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Retried {
    /// The run.
    pub run_id: RunId,
    /// Whether it goes on, or why not.
    pub outcome: Option<RetryOutcome>,
}

impl Operator {
    /// The newest runs that a filter lets through, at most `limit`; those before one of them.
    ///
    /// # Errors
    /// When there is no such workspace; when a value is wanted that is too long to be found, or
    /// runs of the workspace are not found by values.
    pub async fn runs(
        &self,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<RunRow>, OperatorError> {
        self.need_workspace(filter.workspace).await?;
        if let Some((_, value)) = &filter.field {
            if value.chars().count() > MAX_LOOKUP_TEXT {
                return Err(Reason::ValueTooLong.into());
            }
            if !store::is_searchable(&self.database, filter.workspace).await? {
                return Err(Reason::NotSearchable.into());
            }
        }
        Ok(store::runs(&self.database, filter, before, limit).await?)
    }

    /// What was submitted to a workflow, oldest first, at most `limit`; those after a run, and
    /// between two times where they are given. What was forgotten or refused is not there.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn form_answers(
        &self,
        workflow: &WorkflowRow,
        between: (Option<Timestamp>, Option<Timestamp>),
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<FormAnswer>, OperatorError> {
        let of = (workflow.workspace_id, workflow.workflow_id);
        Ok(store::form_answers(&self.database, of, between, after, limit).await?)
    }

    /// Cancels runs of one workspace. What was sent stays sent. A run that a worker has in hand is
    /// cancelled after the action that was begun.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn cancel_runs(
        &self,
        workspace: WorkspaceId,
        runs: &[RunId],
    ) -> Result<Vec<Cancelled>, OperatorError> {
        let why = match &self.orderer.reason {
            Some(reason) => format!("cancelled: {reason}"),
            None => "cancelled".to_owned(),
        };
        let outcomes = store::cancel_runs(&self.database, workspace, runs, &why).await?;
        let outcomes = outcomes.into_iter();
        Ok(outcomes
            .map(|(run_id, outcome)| Cancelled { run_id, outcome })
            .collect())
    }

    /// Cancels one run, wherever it is.
    ///
    /// # Errors
    /// When there is no such run, or it is over.
    pub async fn cancel_run(&self, run: RunId) -> Result<CancelOutcome, OperatorError> {
        let workspace = self.workspace_of_run(run).await?;
        let cancelled = self.cancel_runs(workspace, &[run]).await?;
        let outcome = cancelled.first().and_then(|one| one.outcome);
        outcome.ok_or(Reason::RunOver.into())
    }

    /// Lets runs of one workspace go on that failed, were denied or cancelled, at the action that
    /// ended them. `pace` is how many of them each second, and how many have gone before these; all
    /// at once where it is None.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn retry_runs(
        &self,
        workspace: WorkspaceId,
        runs: &[RunId],
        pace: Option<(f64, u32)>,
    ) -> Result<Vec<Retried>, OperatorError> {
        let (per_second, before) = pace.unwrap_or((f64::INFINITY, 0));
        let places = (before..).take(runs.len());
        let due_in: Vec<_> = places.map(|place| f64::from(place) / per_second).collect();
        let outcomes = store::retry_runs(&self.database, workspace, runs, &due_in).await?;
        let outcomes = outcomes.into_iter();
        Ok(outcomes
            .map(|(run_id, outcome)| Retried { run_id, outcome })
            .collect())
    }

    /// Lets one run go on.
    ///
    /// # Errors
    /// When there is no such run, it has not ended so that it could go on, or what was submitted
    /// to it was forgotten.
    pub async fn retry_run(&self, run: RunId) -> Result<RunDetail, OperatorError> {
        let workspace = self.workspace_of_run(run).await?;
        let retried = self.retry_runs(workspace, &[run], None).await?;
        match retried.first().and_then(|one| one.outcome) {
            Some(RetryOutcome::Queued) => self.run(run).await,
            Some(RetryOutcome::Forgotten) => Err(Reason::InputForgotten.into()),
            Some(RetryOutcome::NotEnded) | None => Err(Reason::NotRetryable.into()),
        }
    }

    async fn workspace_of_run(&self, run: RunId) -> Result<WorkspaceId, OperatorError> {
        let found = store::run_workspace(&self.database, run).await?;
        found.ok_or(Reason::NotFound("run").into())
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

    /// As [`Self::run`], with what its actions were answered, as far as it is kept and opens.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn run_with_answers(
        &self,
        id: RunId,
        keys: &KeyRing,
    ) -> Result<RunDetail, OperatorError> {
        let mut run = self.run(id).await?;
        for action in &mut run.actions {
            let place = Place::ActionAnswer {
                workspace: run.row.workspace_id,
                run: id,
                action: &action.action_id,
            };
            let sealed = action.answer_sealed.as_deref();
            let opened = sealed.and_then(|sealed| keys.open(place, sealed).ok());
            action.answer =
                opened.map(|answer| String::from_utf8_lossy(answer.expose()).into_owned());
        }
        Ok(run)
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
