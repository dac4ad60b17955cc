//! Workflows and their forms: what is deployed and by which link people reach it; their owner says
//! what they do, and editors can stop them.

use askama::Template;
use jiff::Timestamp;
use letterbox_common::{ids::WorkflowId, states::WorkflowState};
use letterbox_operator::{
    Changes, Closing, DeployPlan, LiveLink, Losing, Member, Move, OperatorError, Problem, Reason,
    ReleaseChanges, ReleaseRow, WorkflowDetail, WorkflowRow,
};

use super::{
    Nowhere, PageWorkspace, To, Visit,
    draft::version,
    form_link::{need_sure_of_link, show_link},
    name_of, or_refusal, refused, see_list,
};
use crate::{
    pages::filters,
    response::{Answered, Trouble, see},
};

/// Releases that are shown.
const RELEASES: u32 = 20;
/// Why no link takes the place of one that is closed.
const CLOSED: &str = "Nothing was deployed: its link has closed. Deploy, then create a form link \
    that closes later.";
/// The template of a new definition.
const EXAMPLE: &str = include_str!("../../static/definition.json");

/// What a definition would do, or why it can't be deployed.
#[derive(Default)]
struct Draft {
    /// As it was filled in.
    text: String,
    /// Whether it is not what is stored.
    is_given: bool,
    /// Whether nothing was to be deployed.
    is_checked_only: bool,
    problems: Vec<Problem>,
    /// What a deploy would change.
    plan: Option<DeployPlan>,
    refused: Option<String>,
}

impl Draft {
    fn of(text: String) -> Self {
        Self {
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

#[derive(Template)]
#[template(path = "forms.html")]
struct FormsPage {
    place: PageWorkspace,
    workflows: Vec<WorkflowRow>,
    links: Vec<LiveLink>,
    members: Vec<Member>,
}

impl FormsPage {
    fn link(&self, workflow: &WorkflowRow) -> Option<&LiveLink> {
        let mut links = self.links.iter();
        links.find(|link| link.row.workflow_id == workflow.workflow_id)
    }
}

/// The workflows of a workspace.
pub(crate) async fn list(visit: Visit) -> Answered {
    let Some(place) = visit.place().await? else {
        return Ok(visit.page("Forms", &Nowhere { title: "Forms" }));
    };
    let operator = &visit.operator;
    let workspace = place.workspace;
    let mut workflows = operator.workflows(workspace).await?;
    workflows.retain(|one| one.state != WorkflowState::Deleted);
    let page = FormsPage {
        place,
        workflows,
        links: operator.live_links(Losing::Workspace(workspace)).await?,
        members: operator.members(workspace).await?,
    };
    Ok(visit.page("Forms", &page))
}

#[derive(Template)]
#[template(path = "form_new.html")]
struct NewFormPage<'v> {
    visit: &'v Visit,
    place: PageWorkspace,
    draft: Draft,
}

/// Where a workflow begins.
pub(crate) async fn new(visit: Visit) -> Answered {
    let page = NewFormPage {
        visit: &visit,
        place: visit.some_place().await?,
        draft: Draft::default(),
    };
    Ok(visit.page("New form", &page))
}

/// Creates a workflow of the person.
pub(crate) async fn create(visit: Visit) -> Answered {
    let place = visit.some_place().await?;
    let name = visit.given("name")?;
    let given = given_definition(&visit)?;
    let operator = &visit.operator;
    let text = given.unwrap_or(EXAMPLE);
    let creating = operator.create_workflow(place.workspace, visit.user, name, text);
    match creating.await {
        Ok(created) => {
            let next = if given.is_none() { "/questions" } else { "" };
            Ok(see(&format!("/forms/{}{next}", created.workflow_id)))
        }
        Err(error) => {
            let draft = Draft::of(given.unwrap_or_default().to_owned()).refused(error)?;
            let visit = &visit;
            let page = NewFormPage {
                visit,
                place,
                draft,
            };
            Ok(visit.refusal("New form", &page))
        }
    }
}

/// One workflow.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = visit.operator.workflow(workflow).await?;
    let draft = Draft::of(workflow.text.clone().unwrap_or_default());
    let page = shown(&visit, workflow, draft).await?;
    Ok(visit.page("Form", &page))
}

#[derive(Template)]
#[template(path = "form.html")]
struct FormPage<'v> {
    visit: &'v Visit,
    workflow: WorkflowDetail,
    owner: Option<String>,
    is_mine: bool,
    may_stop: bool,
    may_copy: bool,
    /// The live one, if there is one.
    link: Option<LiveLink>,
    draft: Draft,
    releases: Vec<ReleaseRow>,
}

impl FormPage<'_> {
    /// Whether the page of the stored draft is shown.
    fn is_previewed(&self) -> bool {
        let definition = self.workflow.definition.as_ref();
        !self.draft.is_given && definition.is_some_and(|all| all["form"].is_object())
    }

    /// The changes of a release, each in words.
    fn told(&self, changes: &ReleaseChanges) -> Vec<String> {
        let told = |what, changes: &Changes| {
            let kinds = [
                ("New", &changes.added),
                ("Changed", &changes.changed),
                ("Gone", &changes.removed),
            ];
            let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
            let kinds = kinds.map(|(verb, names)| {
                let plural = if names.len() > 1 { "s" } else { "" };
                format!("{verb} {what}{plural}: {}", names.join(", "))
            });
            kinds.collect::<Vec<_>>()
        };
        [
            told("text", &changes.texts),
            told("field", &changes.fields),
            told("action", &changes.actions),
        ]
        .concat()
    }
}

async fn shown(
    visit: &Visit,
    workflow: WorkflowDetail,
    draft: Draft,
) -> Result<FormPage<'_>, Trouble> {
    let row = &workflow.row;
    let rights = visit.rights(row.workspace_id).await?;
    let members = visit.operator.members(row.workspace_id).await?;
    let is_mine = row.owner_id == visit.user && rights.may_run();
    let links = visit.operator.live_links(Losing::Workflow(row.workflow_id));
    Ok(FormPage {
        visit,
        owner: name_of(&row.owner_id, &members).map(str::to_owned),
        is_mine,
        may_stop: is_mine || rights.is_editor(),
        may_copy: rights.may_run(),
        link: links.await?.pop(),
        draft,
        releases: visit.operator.releases(row.workflow_id, RELEASES).await?,
        workflow,
    })
}

/// Deploys the draft, or a definition that is given; or only says what that would do.
pub(crate) async fn deploy(To(visit, workflow): To<WorkflowId>) -> Answered {
    let operator = &visit.operator;
    let form = &visit.asked.form;
    let found = operator.workflow(workflow).await?;
    let text = given_definition(&visit)?;
    let mut draft = Draft::of(
        text.or(found.text.as_deref())
            .unwrap_or_default()
            .to_owned(),
    );
    draft.is_given = text.is_some();
    let how = visit.given("how")?;
    let failed = match how {
        "check" => {
            draft.is_checked_only = true;
            match operator.plan_deploy(workflow, text).await {
                Ok(plan) => {
                    draft.plan = Some(plan);
                    let page = shown(&visit, found, draft).await?;
                    return Ok(visit.page("Form", &page));
                }
                Err(error) => error,
            }
        }
        "deploy" | "deploy_and_link" => {
            let closing = closing_as_before(&found).filter(|_| how == "deploy_and_link");
            let is_other = form
                .get("of")
                .is_some_and(|of| of != version(found.text.as_deref()));
            let mut refused = match need_sure_of_link(&visit, &found) {
                Err(Trouble::Refused(words)) => Some(words),
                _ => None,
            };
            if how == "deploy_and_link" && closing.is_none() {
                refused = Some(CLOSED.to_owned());
            }
            if refused.is_some() {
                draft.refused = refused;
                let page = shown(&visit, found, draft).await?;
                return Ok(visit.refusal("Form", &page));
            }
            let deploying = async {
                match is_other {
                    // Another window's draft is not lost unseen.
                    true => Err(Reason::DraftConflict.into()),
                    false => operator.deploy_with(workflow, text, closing).await,
                }
            };
            match deploying.await {
                Ok((_, Some(made))) => return Ok(show_link(&visit, &made)),
                Ok((_, None)) => return Ok(see(&format!("/forms/{workflow}"))),
                Err(error) => error,
            }
        }
        _ => return Err(Trouble::Unreadable),
    };
    let page = shown(&visit, found, draft.refused(failed)?).await?;
    Ok(visit.refusal("Form", &page))
}

/// A definition that is given as text; one that is empty is a mistake.
fn given_definition(visit: &Visit) -> Result<Option<&str>, Trouble> {
    let form = &visit.asked.form;
    match (form.all("definition").next(), form.get("definition")) {
        (Some(_), None) => Err(refused("Nothing was done: the definition is empty.")),
        (_, given) => Ok(given),
    }
}

/// When a new link closes that takes the place of one: at the same time, and after as many
/// submissions as that one has left; `None` if that one is closed.
fn closing_as_before(workflow: &WorkflowDetail) -> Option<Closing> {
    let taken = workflow.answers.unwrap_or_default();
    let left = workflow.max_answers.map(|most| most - taken);
    let is_closed = workflow.closes_at.is_some_and(|at| at <= Timestamp::now());
    let is_closed = is_closed || left.is_some_and(|left| left <= 0);
    (!is_closed).then_some(Closing {
        at: workflow.closes_at,
        after_answers: left,
    })
}

/// Creates a workflow of the person with the same draft: what is somebody else's stays theirs.
pub(crate) async fn copy(To(visit, workflow): To<WorkflowId>) -> Answered {
    let found = visit.operator.workflow(workflow).await?;
    let text = found.text.as_deref().unwrap_or_default();
    let workspace = found.row.workspace_id;
    let name = format!("{} (copy)", found.row.name);
    let creating = visit
        .operator
        .create_workflow(workspace, visit.user, &name, text);
    Ok(see(&format!("/forms/{}", creating.await?.workflow_id)))
}

/// Moves a workflow.
pub(crate) async fn move_to(To(visit, workflow): To<WorkflowId>, to: Move) -> Answered {
    need_sure_of_link(&visit, &visit.operator.workflow(workflow).await?)?;
    let moved = visit.operator.move_workflow(workflow, to).await?;
    Ok(see(&format!("/forms/{}", moved.workflow_id)))
}

/// Deletes a workflow.
pub(crate) async fn delete(To(visit, workflow): To<WorkflowId>) -> Answered {
    visit.need_sure()?;
    let gone = visit.operator.move_workflow(workflow, Move::Delete).await?;
    Ok(see_list("forms", gone.workspace_id))
}
