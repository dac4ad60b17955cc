//! What one person has written in the forms of a workspace: found by a whole answer, such as an
//! address, handed over as files, and erased.

use askama::Template;
use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_operator::{NOT_ERASED, WorkflowRow};
use url::form_urlencoded;

use super::{PageWorkspace, Visit, or_refusal, refused};
use crate::response::{Answered, Trouble, see};

/// The most answers to one form that are found, and erased, at once.
const MOST: u32 = 1_000;

#[derive(Template)]
#[template(path = "person.html")]
struct PersonPage<'v> {
    visit: &'v Visit,
    place: PageWorkspace,
    /// What the person has written somewhere.
    value: &'v str,
    /// The query that asks for it.
    query: String,
    /// Each form that they have answered, and how often.
    found: Vec<(WorkflowRow, usize)>,
    refused: Option<String>,
}

/// The runs of answers with this value, by form; or why it can't be searched for.
async fn search(
    visit: &Visit,
    workspace: WorkspaceId,
    value: &str,
) -> Result<Result<Vec<(WorkflowRow, Vec<RunId>)>, String>, Trouble> {
    let operator = &visit.operator;
    let mut found = Vec::new();
    for workflow in operator.workflows(workspace).await? {
        let columns = operator.answer_columns(workflow.workflow_id).await?;
        let reading = operator.newest_answers(&workflow, &columns, Some(value), None, MOST);
        match or_refusal(reading.await)? {
            Ok(answers) if answers.is_empty() => {}
            Ok(answers) => {
                let runs = answers.into_iter().map(|answer| answer.run_id);
                found.push((workflow, runs.collect()));
            }
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(found))
}

/// What a person has written.
pub(crate) async fn show(visit: Visit) -> Answered {
    let place = visit.some_place().await?;
    let value = visit.asked.query.get("value").unwrap_or_default().trim();
    let searched = match value {
        "" => Ok(Vec::new()),
        value => search(&visit, place.workspace, value).await?,
    };
    let refused = searched.as_ref().err().cloned();
    let found = searched.unwrap_or_default().into_iter();
    let page = PersonPage {
        visit: &visit,
        place,
        query: asking_for(value),
        value,
        found: found.map(|(form, runs)| (form, runs.len())).collect(),
        refused,
    };
    Ok(visit.page("A person's answers", &page))
}

/// Erases what a person has written, where the runs are over.
pub(crate) async fn erase(visit: Visit) -> Answered {
    visit.need_sure()?;
    let workspace = visit.some_place().await?.workspace;
    let value = visit.given("value")?.trim();
    let found = search(&visit, workspace, value).await?;
    let mut erased = 0;
    for (_, runs) in found.map_err(|why| refused(&why))? {
        erased += visit.operator.erase_runs(workspace, &runs).await?.len();
    }
    let query = asking_for(value);
    Ok(see(&format!(
        "/person?workspace={workspace}&erased={erased}&{query}"
    )))
}

fn asking_for(value: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("value", value).finish()
}
