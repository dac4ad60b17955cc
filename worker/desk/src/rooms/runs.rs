//! What became of submissions: runs, newest first, and one run as a story.

use askama::Template;
use letterbox_common::{
    ids::{RunId, WorkflowId, WorkspaceId},
    states::{ApprovalState, RunState},
};
use letterbox_operator::{RunDetail, RunFilter, RunRow, Submission, WorkflowRow, Workspace, words};

use super::{Nowhere, To, Visit, id};
use crate::{
    pages::filters,
    response::{Answered, see},
};

/// Runs on one page.
const EACH: u32 = 50;

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage<'v> {
    visit: &'v Visit,
    workspaces: Vec<Workspace>,
    workspace: WorkspaceId,
    workflows: Vec<WorkflowRow>,
    filter: RunFilter,
    runs: Vec<RunRow>,
    /// The query for those before.
    older: Option<String>,
}

/// The newest runs of a workspace.
pub(crate) async fn list(visit: Visit) -> Answered {
    let operator = &visit.operator;
    let query = &visit.asked.query;
    let workspaces = operator.workspaces().await?;
    let chosen: Option<WorkspaceId> = query.get("workspace").map(id).transpose()?;
    let chosen = chosen.or_else(|| Some(workspaces.first()?.workspace_id));
    let Some(workspace) = chosen else {
        return Ok(visit.page("Runs", &Nowhere { title: "Runs" }));
    };
    let workflow: Option<WorkflowId> = query.get("workflow").map(id).transpose()?;
    let mut filter = RunFilter {
        workflow,
        ..RunFilter::default()
    };
    let state: Option<RunState> = query.get("state").map(id).transpose()?;
    filter.states.extend(state);
    if let (Some(key), Some(value)) = (query.get("field"), query.get("value")) {
        filter.field = Some((key.to_owned(), value.to_owned()));
    }
    let before: Option<RunId> = query.get("before").map(id).transpose()?;
    let runs = operator.runs(workspace, &filter, before, EACH).await?;
    let older = (runs.len() == EACH as usize).then(|| runs.last()).flatten();
    let older = older.map(|last| format!("{}&before={}", query.without("before"), last.run_id));
    let page = RunsPage {
        visit: &visit,
        workspaces,
        workspace,
        workflows: operator.workflows(workspace).await?,
        filter,
        runs,
        older,
    };
    Ok(visit.page("Runs", &page))
}

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage<'v> {
    visit: &'v Visit,
    run: RunDetail,
}

impl RunPage<'_> {
    fn is_over(&self) -> bool {
        !matches!(
            self.run.row.state,
            RunState::Queued | RunState::Running | RunState::WaitingApproval
        )
    }

    fn can_go_on(&self) -> bool {
        let ended = [RunState::Failed, RunState::Denied, RunState::Cancelled];
        ended.contains(&self.run.row.state) && self.run.input.is_some()
    }
}

/// One run.
pub(crate) async fn show(To(visit, run): To<RunId>) -> Answered {
    let run = visit.operator.run(run).await?;
    Ok(visit.page("Run", &RunPage { visit: &visit, run }))
}

/// Cancels a run.
pub(crate) async fn cancel(To(visit, run): To<RunId>) -> Answered {
    visit.operator.cancel_run(run).await?;
    Ok(see(&format!("/runs/{run}")))
}

/// Lets a run go on at the action that ended it.
pub(crate) async fn retry(To(visit, run): To<RunId>) -> Answered {
    visit.operator.retry_run(run).await?;
    Ok(see(&format!("/runs/{run}")))
}
