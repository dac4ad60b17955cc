//! Trying a form: an owner gives sample answers to the draft, and sees every request as it would
//! go. One of them is sent, to the owner's own account, only after another press.

use std::time::Duration;

use askama::Template;
use jiff::Timestamp;
use letterbox_common::{
    form::{Field, FieldType, Form},
    ids::{AccountId, WorkflowId},
};
use letterbox_operator::{RehearsedAction, SampledStep, TrialRow, WorkflowDetail, words};
use serde_json::Value;

use super::{
    To, Visit,
    draft::{need_owner, version, written},
    id, or_refusal, refused,
};
use crate::{
    pages::filters,
    response::{Answered, Trouble, see},
};

/// How long an answer is awaited: less than a page may take.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Template)]
#[template(path = "rehearsal.html")]
struct RehearsalPage<'v> {
    visit: &'v Visit,
    workflow: WorkflowDetail,
    fields: Vec<Field>,
    /// What was given; what a person could write, before anything is.
    answers: Vec<String>,
    rehearsed: Option<Vec<RehearsedAction>>,
    /// What was sent before, and what came of it.
    trial: Option<TrialRow>,
    refused: Option<String>,
}

/// An answer that fits a field.
fn sample(field: &Field) -> String {
    match field.kind {
        FieldType::Text | FieldType::Textarea => {
            let first = field.choices.first().or(field.placeholder.as_ref());
            first.cloned().unwrap_or_else(|| "Some words".to_owned())
        }
        FieldType::Number => "3".to_owned(),
        FieldType::Email => "ada@example.com".to_owned(),
        FieldType::Checkbox => "yes".to_owned(),
    }
}

/// The JSON text of an answer, as a submission has it, numbers as they were written; `None` if
/// there is none.
fn json(field: &Field, answer: &str) -> Result<Option<String>, String> {
    if field.required && answer.is_empty() {
        return Err(format!("{}: the form wants an answer.", field.label));
    }
    Ok(match field.kind {
        FieldType::Checkbox => Some(if answer.is_empty() { "false" } else { "true" }.to_owned()),
        _ if answer.is_empty() => None,
        FieldType::Number => match serde_json::from_str(answer) {
            Ok(Value::Number(_)) => Some(answer.to_owned()),
            _ => return Err(format!("{}: write a number, such as 2.5.", field.label)),
        },
        FieldType::Text | FieldType::Textarea | FieldType::Email => {
            Some(Value::from(answer).to_string())
        }
    })
}

async fn found(
    visit: &Visit,
    workflow: WorkflowId,
    answer: impl Fn(usize, &Field) -> String,
) -> Result<RehearsalPage<'_>, Trouble> {
    let workflow = visit.operator.workflow(workflow).await?;
    need_owner(visit, &workflow).await?;
    let form = workflow.definition.as_ref().map(|all| all["form"].clone());
    let form = serde_json::from_value::<Form>(form.unwrap_or_default());
    let fields = form
        .map_err(|_| refused("The draft has no form yet."))?
        .fields;
    let answers = fields.iter().enumerate();
    Ok(RehearsalPage {
        visit,
        answers: answers.map(|(at, field)| answer(at, field)).collect(),
        fields,
        workflow,
        rehearsed: None,
        trial: None,
        refused: None,
    })
}

/// Asks for sample answers; tells what an account has answered to what was sent by some.
pub(crate) async fn ask(To(visit, workflow): To<WorkflowId>) -> Answered {
    let mut page = found(&visit, workflow, |_, field| sample(field)).await?;
    if let Some(tried) = visit.asked.query.get("tried") {
        let account: AccountId = id(tried)?;
        let trials = visit.operator.trials(page.workflow.row.workspace_id);
        let mut trials = trials.await?.into_iter();
        page.trial = trials.find(|one| one.account_id == account && one.step.is_some());
    }
    Ok(visit.page("Try it", &page))
}

/// Shows what these answers would lead to, or sends one of the requests.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let given = |at: usize, _: &Field| written(visit.filled(&format!("answer-{at}")));
    let mut page = found(&visit, workflow, given).await?;
    let mut answers = Vec::new();
    for (field, answer) in page.fields.iter().zip(&page.answers) {
        match json(field, answer) {
            Ok(json) => {
                let json = json.map(|json| format!("{}:{json}", Value::from(&*field.key)));
                answers.extend(json);
            }
            Err(why) => page.refused = Some(why),
        }
    }
    if visit.filled("of") != version(page.workflow.text.as_deref()) {
        page.refused =
            Some("The draft was changed meanwhile: look at the answers again.".to_owned());
    }
    if page.refused.is_none() {
        let answers = format!("{{{}}}", answers.join(","));
        let rehearsals = &visit.asked.desk.rehearsals;
        let _share = rehearsals.take(visit.user).ok_or(Trouble::Busy)?;
        let operator = &visit.operator;
        let received_at = Timestamp::now().to_string();
        let rehearsing = operator.rehearse(&page.workflow, &answers, &received_at);
        match or_refusal(rehearsing.await)? {
            Ok(rehearsed) => page.rehearsed = Some(rehearsed),
            Err(why) => page.refused = Some(why),
        }
        let wanted = visit.asked.form.get("send");
        let rehearsed = page.rehearsed.iter().flatten();
        let sent = rehearsed
            .clone()
            .find(|one| Some(&*one.action_id) == wanted);
        if let Some((action, account)) = sent.and_then(RehearsedAction::sendable) {
            let step = SampledStep {
                definition: page.workflow.text.clone().unwrap_or_default(),
                answers,
                received_at,
                action: action.to_owned(),
            };
            let workspace = page.workflow.row.workspace_id;
            let trying = operator.try_step(workspace, visit.user, account, &step, PATIENCE);
            match or_refusal(trying.await)? {
                Ok(tried) => {
                    let account = tried.account_id;
                    return Ok(see(&format!("/forms/{workflow}/rehearsal?tried={account}")));
                }
                Err(why) => page.refused = Some(why),
            }
        }
    }
    Ok(match page.refused {
        None => visit.page("Try it", &page),
        Some(_) => visit.refusal("Try it", &page),
    })
}
