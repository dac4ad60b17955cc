//! What became of submissions: runs, newest first, and one run as a story.

use letterbox_common::{
    ids::{RunId, WorkflowId, WorkspaceId},
    states::RunState,
};
use letterbox_operator::{RunAction, RunDetail, RunFilter, words};
use serde_json::{Value, json};

use super::{To, Visit, id};
use crate::response::{Answered, see};

/// Runs on one page.
const EACH: u32 = 50;

/// The newest runs of a workspace.
pub(crate) async fn list(visit: Visit) -> Answered {
    let operator = &visit.operator;
    let query = &visit.asked.query;
    let workspaces = operator.workspaces().await?;
    let chosen: Option<WorkspaceId> = query.get("workspace").map(id).transpose()?;
    let chosen = chosen.or_else(|| Some(workspaces.first()?.workspace_id));
    let Some(workspace) = chosen else {
        return Ok(visit.page("runs", "Runs", json!({ "workspaces": [] })));
    };
    let workflow: Option<WorkflowId> = query.get("workflow").map(id).transpose()?;
    let mut filter = RunFilter::of(workspace).with_workflow(workflow);
    let state: Option<RunState> = query.get("state").map(id).transpose()?;
    filter.states.extend(state);
    if let (Some(key), Some(value)) = (query.get("field"), query.get("value")) {
        filter.field = Some((key.to_owned(), value.to_owned()));
    }
    let before: Option<RunId> = query.get("before").map(id).transpose()?;
    let runs = operator.runs(&filter, before, EACH).await?;
    let workflows = operator.workflows(workspace).await?;
    let older = (runs.len() == EACH as usize).then(|| runs.last()).flatten();
    let older = older.map(|last| format!("{}&before={}", query.without("before"), last.run_id));
    let found = json!({
        "workspaces": workspaces,
        "workspace": workspace,
        "workflows": workflows,
        "workflow": workflow,
        "states": RunState::ALL,
        "state": state,
        "field": query.get("field"),
        "value": query.get("value"),
        "runs": runs,
        "older": older,
    });
    Ok(visit.page("runs", "Runs", found))
}

/// One run.
pub(crate) async fn show(To(visit, run): To<RunId>) -> Answered {
    let run = visit.operator.run(run).await?;
    let actions: Vec<_> = run.actions.iter().map(told).collect();
    let found = json!({
        "run": &run,
        "submitted": run.input.as_ref().and_then(|input| input.members()),
        "actions": actions,
        "is_over": is_over(&run),
        "can_go_on": can_go_on(&run),
    });
    Ok(visit.page("run", "Run", found))
}

fn told(action: &RunAction) -> Value {
    json!({
        "action": action,
        "request": words::request(action.request.as_ref()),
        "members": words::members_of_request(action.request.as_ref()),
        "permission": words::permission(action, ""),
    })
}

fn is_over(run: &RunDetail) -> bool {
    !matches!(
        run.row.state,
        RunState::Queued | RunState::Running | RunState::WaitingApproval
    )
}

fn can_go_on(run: &RunDetail) -> bool {
    let ended = [RunState::Failed, RunState::Denied, RunState::Cancelled];
    ended.contains(&run.row.state) && run.input.is_some()
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
