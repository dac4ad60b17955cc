//! What one person has written in the forms of a workspace: found by a whole answer, such as an
//! address, handed over as files, and erased.

use std::time::{Duration, Instant};

use askama::Template;
use letterbox_common::ids::RunId;
use letterbox_operator::{NOT_ERASED, WorkflowRow};
use url::form_urlencoded;

use super::{PageWorkspace, Visit, or_refusal, refused};
use crate::response::{Answered, Trouble, see};

/// The most answers that are found, and erased, at once.
const MOST: u32 = 1_000;
/// Runs that are erased by one statement, within its time limit.
const PIECE: usize = 50;
/// How long one order erases: the next one goes on.
const TIME: Duration = Duration::from_secs(12);

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
    /// Whether there may be more.
    is_cut: bool,
    /// How many were erased just now.
    erased: Option<u32>,
    refused: Option<String>,
}

/// What a person has written.
pub(crate) async fn show(visit: Visit) -> Answered {
    let place = visit.some_place().await?;
    let query = &visit.asked.query;
    let value = query.get("value").unwrap_or_default().trim();
    let searched = match value {
        "" => Ok(Vec::new()),
        value => {
            let searching = visit.operator.runs_of_person(place.workspace, value, MOST);
            or_refusal(searching.await)?
        }
    };
    let refused = searched.as_ref().err().cloned();
    let runs = searched.unwrap_or_default();
    let mut found = Vec::new();
    for workflow in visit.operator.workflows(place.workspace).await? {
        let of_form = runs
            .iter()
            .filter(|(form, _)| *form == workflow.workflow_id);
        let count = of_form.count();
        found.extend((count > 0).then_some((workflow, count)));
    }
    let page = PersonPage {
        visit: &visit,
        place,
        value,
        query: asking_for(value),
        found,
        is_cut: runs.len() == MOST as usize,
        erased: query.get("erased").and_then(|count| count.parse().ok()),
        refused,
    };
    Ok(visit.page("A person's answers", &page))
}

/// Erases what a person has written, where the runs are over.
pub(crate) async fn erase(visit: Visit) -> Answered {
    visit.need_sure()?;
    let workspace = visit.some_place().await?.workspace;
    let value = visit.given("value")?.trim();
    let operator = &visit.operator;
    let began = Instant::now();
    let found = or_refusal(operator.runs_of_person(workspace, value, MOST).await)?;
    let runs = found.map_err(|why| refused(&why))?.into_iter();
    let runs: Vec<RunId> = runs.map(|(_, run)| run).collect();
    let mut erased = 0;
    for piece in runs.chunks(PIECE) {
        match operator.erase_runs(workspace, piece).await {
            Ok(done) => erased += done.len(),
            // What was done is told; what is left is found again.
            Err(error) if erased > 0 => {
                tracing::error!(%error, "not all answers of a person were erased");
                break;
            }
            Err(error) => return Err(Trouble::from(error)),
        }
        if began.elapsed() > TIME {
            break;
        }
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
