//! What waits for the answer of a person: by workflow, oldest first; and one question with all that
//! is needed to answer it.

use letterbox_common::{ids::ApprovalId, states::ApprovalState};
use letterbox_operator::{WaitingApproval, words};
use serde::Serialize;
use serde_json::{Value, json};

use super::{To, Visit, id};
use crate::response::{Answered, Trouble, see};

/// Questions that are shown of each workflow.
const EACH: u32 = 20;
/// A longer request is shown on a page of its own, and not answered among others.
const MAX_SHOWN: usize = 1_500;

/// A workflow with its questions.
#[derive(Serialize)]
struct QuestionGroup<'a> {
    workflow_name: &'a str,
    workspace_name: &'a str,
    waiting: i64,
    is_counted: bool,
    questions: Vec<Value>,
}

/// Everything that waits in the workspaces of the person: accounts to connect, and questions.
pub(crate) async fn waiting(visit: Visit) -> Answered {
    let all = visit.operator.waiting_approvals(None, EACH).await?;
    let groups = all.chunk_by(|one, other| one.workflow_id == other.workflow_id);
    let groups: Vec<_> = groups.filter_map(group).collect();
    let mut accounts = visit.operator.waiting_accounts().await?;
    accounts.retain(|account| account.user_id == visit.user);
    let found = json!({ "groups": groups, "accounts": accounts });
    Ok(visit.page("waiting", "Waiting", found))
}

fn group(questions: &[WaitingApproval]) -> Option<QuestionGroup<'_>> {
    let first = questions.first()?;
    let shown = questions.iter().map(|question| {
        let row = &question.row;
        let members = words::members_of_request(row.request.as_ref());
        let length: usize = members
            .iter()
            .map(|(name, text)| name.len() + text.len())
            .sum();
        json!({
            "approval_id": row.approval_id,
            "action_id": row.action_id,
            "created_at": row.created_at,
            "expires_at": row.expires_at,
            "request": words::request(row.request.as_ref()),
            "members": (length <= MAX_SHOWN).then_some(members),
        })
    });
    Some(QuestionGroup {
        workflow_name: &first.workflow_name,
        workspace_name: &first.workspace_name,
        waiting: first.waiting,
        is_counted: first.is_counted,
        questions: shown.collect(),
    })
}

/// One question.
pub(crate) async fn question(To(visit, approval): To<ApprovalId>) -> Answered {
    let question = visit.operator.approval(approval).await?;
    let mut answerers = question.may_answer.iter();
    let may_answer = question.is_open && answerers.any(|member| member.user_id == visit.user);
    let row = &question.row;
    let found = json!({
        "question": &question,
        "may_answer": may_answer,
        "request": words::request(row.request.as_ref()),
        "members": words::members_of_request(row.request.as_ref()),
        "submitted": question.input.as_ref().and_then(|input| input.members()),
        "because": words::taint(&row.untrusted, &row.steered_by),
    });
    Ok(visit.page("question", "Question", found))
}

/// Answers one question or several, in the person's name.
pub(crate) async fn answer(visit: Visit) -> Answered {
    let form = &visit.asked.form;
    let answer = match form.get("answer") {
        Some("approve") => ApprovalState::Approved,
        Some("deny") => ApprovalState::Denied,
        _ => return Err(Trouble::Unreadable),
    };
    let questions: Result<Vec<ApprovalId>, _> = form.all("question").map(id).collect();
    let mut answered = 0;
    let mut refused = Vec::new();
    for question in questions? {
        let given = match answer {
            ApprovalState::Approved => visit.operator.approve(question, visit.user).await,
            _ => visit.operator.deny(question, visit.user).await,
        };
        match given.map_err(Trouble::from) {
            Ok(_) => answered += 1,
            Err(Trouble::Refused(words)) => refused.push(words),
            Err(Trouble::NotFound) => {
                refused.push("A question is not there, or not for you.".to_owned());
            }
            Err(trouble) => return Err(trouble),
        }
    }
    if refused.is_empty() {
        return Ok(see("/"));
    }
    refused.dedup();
    let verb = if answer == ApprovalState::Approved {
        "approved"
    } else {
        "denied"
    };
    let told = format!("{answered} {verb}. {}", refused.join(" "));
    Err(Trouble::Refused(told))
}
