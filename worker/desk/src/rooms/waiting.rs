//! What waits for a person: questions by workflow, oldest first, and new answers; and one question
//! with all that is needed to answer it.

use askama::Template;
use letterbox_common::{ids::ApprovalId, states::ApprovalState};
use letterbox_operator::{
    AccountRow, ApprovalDetail, Day, NewAnswers, Submission, WaitingApproval, words,
};

use super::{To, Visit, id};
use crate::{
    pages::filters,
    response::{Answered, Trouble, see},
};

/// Questions that are shown of each workflow.
const EACH: u32 = 20;
/// A longer request is shown on a page of its own, and not answered among others.
const MAX_SHOWN: usize = 1_500;

#[derive(Template)]
#[template(path = "waiting.html")]
struct WaitingPage<'v> {
    visit: &'v Visit,
    /// By workflow.
    questions: Vec<WaitingApproval>,
    accounts: Vec<AccountRow>,
    /// The forms with answers that the person hasn't seen.
    new_answers: Vec<NewAnswers>,
    /// What has come into each workspace lately.
    days: Vec<Day>,
    /// What was done just now.
    done: Option<String>,
}

impl WaitingPage<'_> {
    fn groups(&self) -> impl Iterator<Item = &[WaitingApproval]> {
        let same =
            |one: &WaitingApproval, other: &WaitingApproval| one.workflow_id == other.workflow_id;
        self.questions.chunk_by(same)
    }

    /// Whether a request is answered among others.
    fn is_short(&self, members: &[(String, String)]) -> bool {
        let lengths = members.iter().map(|(name, text)| name.len() + text.len());
        lengths.sum::<usize>() <= MAX_SHOWN
    }
}

/// Everything that waits in the workspaces of the person: accounts to connect, and questions.
pub(crate) async fn waiting(visit: Visit) -> Answered {
    let mut accounts = visit.operator.waiting_accounts().await?;
    accounts.retain(|account| account.user_id == visit.user);
    let query = &visit.asked.query;
    let answers = [ApprovalState::Approved, ApprovalState::Denied].into_iter();
    let mut done = answers.filter_map(|answer| {
        let count: u32 = query.get(answer.as_str())?.parse().ok()?;
        Some(format!("{count} {answer}."))
    });
    let page = WaitingPage {
        visit: &visit,
        done: done.next(),
        questions: visit.operator.waiting_approvals(None, EACH).await?,
        accounts,
        new_answers: visit.operator.new_answers(visit.user).await?,
        days: visit.operator.days().await?,
    };
    Ok(visit.page("Waiting", &page))
}

#[derive(Template)]
#[template(path = "question.html")]
struct QuestionPage<'v> {
    visit: &'v Visit,
    question: ApprovalDetail,
}

impl QuestionPage<'_> {
    fn may_answer(&self) -> bool {
        let mut answerers = self.question.may_answer.iter();
        self.question.is_open && answerers.any(|member| member.user_id == self.visit.user)
    }
}

/// One question.
pub(crate) async fn question(To(visit, approval): To<ApprovalId>) -> Answered {
    let question = visit.operator.approval(approval).await?;
    let visit = &visit;
    Ok(visit.page("Question", &QuestionPage { visit, question }))
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
        return match answered {
            0 => Err(Trouble::Refused("Nothing was chosen.".to_owned())),
            _ => Ok(see(&format!("/?{answer}={answered}"))),
        };
    }
    refused.dedup();
    let refused = refused.join(" ");
    Err(Trouble::Refused(match answered {
        0 => refused,
        _ => format!("{answered} {answer}. {refused}"),
    }))
}
