//! Workflows and their forms: what is deployed and by which link people reach it; their owner says
//! what they do, and editors can stop them.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use letterbox_common::{
    ids::WorkflowId,
    states::{MemberRole, WorkflowState},
};
use letterbox_operator::{Closing, Losing, Move, OperatorError, Problem, Reason, WorkflowDetail};
use serde::Serialize;
use serde_json::{Value, json};

use super::{To, Visit, or_refusal, refused, see_list};
use crate::response::{Answered, Trouble, see};

/// Releases that are shown.
const RELEASES: u32 = 20;
/// The template of a new definition.
const EXAMPLE: &str = include_str!("../../static/definition.json");

/// What a definition would do, or why it can't be deployed.
#[derive(Default, Serialize)]
struct Draft {
    /// As it was filled in.
    text: String,
    /// Its form, to look at.
    form: Value,
    problems: Vec<Problem>,
    /// What a deploy would change.
    plan: Value,
    refused: Option<String>,
}

impl Draft {
    fn of(text: String) -> Self {
        let definition = serde_json::from_str(&text).unwrap_or(Value::Null);
        Self {
            form: definition["form"].clone(),
            text,
            ..Self::default()
        }
    }

    /// Why it was not taken.
    fn refused(mut self, error: OperatorError) -> Result<Self, Trouble> {
        match error {
            OperatorError::Refused(Reason::InvalidDefinition(problems)) => {
                self.problems = problems;
            }
            error => self.refused = or_refusal(Err::<(), _>(error))?.err(),
        }
        Ok(self)
    }
}

/// The workflows of a workspace.
pub(crate) async fn list(visit: Visit) -> Answered {
    let Some(place) = visit.place().await? else {
        return Ok(visit.page("forms", "Forms", ()));
    };
    let workflows = visit.operator.workflows(place.workspace).await?;
    let living = workflows
        .iter()
        .filter(|one| one.state != WorkflowState::Deleted);
    let links = visit
        .operator
        .live_links(Losing::Workspace(place.workspace))
        .await?;
    let members = visit.operator.members(place.workspace).await?;
    let living = living.map(|workflow| {
        let link = links
            .iter()
            .find(|link| link.workflow_id == workflow.workflow_id);
        let owner = members.iter().find(|one| one.user_id == workflow.owner_id);
        json!({
            "workflow": workflow,
            "owner": owner.map(|owner| &owner.name),
            "link_since": link.map(|link| link.created_at),
        })
    });
    let found = json!({
        "place": place,
        "may_create": place.may_run(),
        "workflows": living.collect::<Vec<_>>(),
    });
    Ok(visit.page("forms", "Forms", found))
}

/// Where a workflow begins.
pub(crate) async fn new(visit: Visit) -> Answered {
    let found = json!({
        "place": visit.some_place().await?,
        "draft": Draft::of(EXAMPLE.to_owned()),
    });
    Ok(visit.page("form_new", "New form", found))
}

/// Creates a workflow of the person.
pub(crate) async fn create(visit: Visit) -> Answered {
    let place = visit.some_place().await?;
    let name = visit.given("name")?;
    let text = visit.given("definition")?;
    let operator = &visit.operator;
    let creating = operator.create_workflow(place.workspace, visit.user, name, text);
    match creating.await {
        Ok(created) => Ok(see(&format!("/forms/{}", created.workflow_id))),
        Err(error) => {
            let draft = Draft::of(text.to_owned()).refused(error)?;
            let found = json!({ "place": place, "draft": draft });
            Ok(visit.refusal("form_new", "New form", found))
        }
    }
}

/// One workflow.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = visit.operator.workflow(workflow).await?;
    let draft = workflow.definition.as_ref().map(pretty).unwrap_or_default();
    let found = shown(&visit, &workflow, Draft::of(draft)).await?;
    Ok(visit.page("form", "Form", found))
}

async fn shown(visit: &Visit, workflow: &WorkflowDetail, draft: Draft) -> Result<Value, Trouble> {
    let row = &workflow.row;
    let role = visit.operator.role_of(row.workspace_id, visit.user).await?;
    let role = role.ok_or(Trouble::NotFound)?;
    let members = visit.operator.members(row.workspace_id).await?;
    let owner = members.into_iter().find(|one| one.user_id == row.owner_id);
    let is_mine = row.owner_id == visit.user && role != MemberRole::Viewer;
    Ok(json!({
        "workflow": workflow,
        "owner": owner.map(|owner| owner.name),
        "is_mine": is_mine,
        "may_stop": is_mine || matches!(role, MemberRole::Owner | MemberRole::Editor),
        "draft": draft,
        "releases": visit.operator.releases(row.workflow_id, RELEASES).await?,
    }))
}

fn pretty(definition: &Value) -> String {
    format!("{definition:#}")
}

/// Deploys a definition, or only says what that would do.
pub(crate) async fn deploy(To(visit, workflow): To<WorkflowId>) -> Answered {
    let operator = &visit.operator;
    let text = visit.given("definition")?;
    let mut draft = Draft::of(text.to_owned());
    let failed = match visit.given("how")? {
        "check" => match operator.plan_deploy(workflow, Some(text)).await {
            Ok(plan) => {
                draft.plan = json!(plan);
                let workflow = operator.workflow(workflow).await?;
                let found = shown(&visit, &workflow, draft).await?;
                return Ok(visit.page("form", "Form", found));
            }
            Err(error) => error,
        },
        "deploy" => match operator.deploy(workflow, Some(text)).await {
            Ok(_) => return Ok(see(&format!("/forms/{workflow}"))),
            Err(error) => error,
        },
        _ => return Err(Trouble::Unreadable),
    };
    let draft = draft.refused(failed)?;
    let found = shown(&visit, &operator.workflow(workflow).await?, draft).await?;
    Ok(visit.refusal("form", "Form", found))
}

/// Makes a form link, which is shown once.
pub(crate) async fn link(To(visit, workflow): To<WorkflowId>) -> Answered {
    let form = &visit.asked.form;
    let answers = form.get("max_answers").map(str::parse::<i32>).transpose();
    let answers = answers.map_err(|_| refused("The number of submissions must be a number."))?;
    if answers.is_some_and(|answers| answers < 1) {
        return Err(refused("The number of submissions must be at least 1."));
    }
    let closing = Closing {
        at: form.get("closes_at").map(moment).transpose()?,
        after_answers: answers,
    };
    let made = visit.operator.create_form_link(workflow, closing).await?;
    let place = format!("/forms/{}/link", made.workflow);
    Ok(visit.show_once(&place, &made.workflow, made.token.expose()))
}

/// The link that was made just now; only the workflow, if it was shown already.
pub(crate) async fn new_link(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = visit.operator.workflow(workflow).await?;
    let id = workflow.row.workflow_id;
    let Some(token) = visit.asked.made(&id) else {
        return Ok(see(&format!("/forms/{id}")));
    };
    let url = visit.asked.desk.addresses.form_url(token);
    let found = json!({ "workflow": workflow, "url": url });
    Ok(visit.once("form_link", "Form link", found))
}

/// A time as browsers write one, which is meant in UTC.
fn moment(text: &str) -> Result<Timestamp, Trouble> {
    let time = text.parse::<DateTime>().ok();
    let time = time.and_then(|time| time.to_zoned(TimeZone::UTC).ok());
    let time = time.ok_or_else(|| refused("That is not a time: write 2026-01-31T08:00, in UTC."));
    Ok(time?.timestamp())
}

/// Ends the link of a workflow.
pub(crate) async fn end_link(To(visit, workflow): To<WorkflowId>) -> Answered {
    let ended = visit.operator.end_form_link(workflow).await?;
    Ok(see(&format!("/forms/{}", ended.workflow_id)))
}

/// Moves a workflow.
pub(crate) async fn move_to(To(visit, workflow): To<WorkflowId>, to: Move) -> Answered {
    let moved = visit.operator.move_workflow(workflow, to).await?;
    Ok(see(&format!("/forms/{}", moved.workflow_id)))
}

/// Deletes a workflow.
pub(crate) async fn delete(To(visit, workflow): To<WorkflowId>) -> Answered {
    visit.need_sure()?;
    let gone = visit.operator.move_workflow(workflow, Move::Delete).await?;
    Ok(see_list("forms", gone.workspace_id))
}
