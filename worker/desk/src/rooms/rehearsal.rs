//! Trying a form: an owner gives sample answers to the draft, and sees every request as it would
//! go. One of them is sent, to the owner's own account, only after another press.

use std::time::{Duration, Instant};

use askama::Template;
use jiff::Timestamp;
use letterbox_common::{
    form::{Field, FieldType},
    ids::{AccountId, WorkflowId},
};
use letterbox_operator::{RehearsedAction, SampledStep, TrialRow, WorkflowDetail, words};
use serde_json::Value;

use super::{
    To, Visit,
    draft::{form_of, owned, version, written},
    id, or_refusal, refused,
};
use crate::{
    pages::filters,
    response::{Answered, Trouble, see},
};

/// How long a page takes at most that awaits an answer: less than it may.
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
    /// When they would have been received: what is sent tells the same time as what was shown.
    received_at: String,
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

/// The JSON text of a submission of the answers of a page.
fn all_json(page: &RehearsalPage<'_>) -> Result<String, String> {
    let given = page.fields.iter().zip(&page.answers);
    let members = given.filter_map(|(field, answer)| {
        let json = json(field, answer).transpose()?;
        Some(json.map(|json| format!("{}:{json}", Value::from(&*field.key))))
    });
    let members = members.collect::<Result<Vec<_>, _>>()?;
    Ok(format!("{{{}}}", members.join(",")))
}

async fn found(
    visit: &Visit,
    workflow: WorkflowId,
    answer: impl Fn(usize, &Field) -> String,
) -> Result<RehearsalPage<'_>, Trouble> {
    let workflow = owned(visit, workflow).await?;
    let form = form_of(&workflow).ok_or_else(|| refused("The draft has no form yet."))?;
    let fields = form.fields;
    let answers = fields.iter().enumerate();
    Ok(RehearsalPage {
        visit,
        answers: answers.map(|(at, field)| answer(at, field)).collect(),
        fields,
        workflow,
        rehearsed: None,
        received_at: String::new(),
        trial: None,
        refused: None,
    })
}

/// Asks for sample answers; tells what an account has answered to what was sent by some.
pub(crate) async fn ask(To(visit, workflow): To<WorkflowId>) -> Answered {
    let mut page = found(&visit, workflow, |_, field| sample(field)).await?;
    if let Some(tried) = visit.asked.query.get("tried") {
        let account: AccountId = id(tried)?;
        page.trial = last_step(&page, |one| one.account_id == account).await?;
    }
    Ok(visit.page("Try it", &page))
}

/// The step that was sent last, of those that are meant.
async fn last_step(
    page: &RehearsalPage<'_>,
    is_meant: impl Fn(&TrialRow) -> bool,
) -> Result<Option<TrialRow>, Trouble> {
    let trials = page.visit.operator.trials(page.workflow.row.workspace_id);
    let trials = trials.await?.into_iter();
    let mut trials: Vec<_> = trials.filter(|one| one.step.is_some()).collect();
    trials.sort_by_key(|one| one.asked_at);
    Ok(trials.into_iter().rfind(is_meant))
}

/// Shows what these answers would lead to, or sends one of the requests.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let began = Instant::now();
    let given = |at: usize, _: &Field| written(visit.filled(&format!("answer-{at}")));
    let mut page = found(&visit, workflow, given).await?;
    let given = all_json(&page);
    page.refused = given.as_ref().err().cloned();
    if visit.filled("of") != version(page.workflow.text.as_deref()) {
        page.refused =
            Some("The draft was changed meanwhile: look at the answers again.".to_owned());
    }
    if page.refused.is_none() {
        let answers = given.unwrap_or_default();
        let rehearsals = &visit.asked.desk.rehearsals;
        let _share = rehearsals.take(visit.user).ok_or(Trouble::Busy)?;
        let operator = &visit.operator;
        let received_at = visit.filled("received_at").parse::<Timestamp>();
        let received_at = received_at.unwrap_or_else(|_| Timestamp::now());
        page.received_at = received_at.to_string();
        let rehearsing = operator.rehearse(&page.workflow, &answers, &page.received_at);
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
                received_at: page.received_at.clone(),
                action: action.to_owned(),
            };
            let workspace = page.workflow.row.workspace_id;
            let patience = PATIENCE.saturating_sub(began.elapsed());
            let trying = operator.try_step(workspace, visit.user, account, &step, patience);
            match or_refusal(trying.await)? {
                Ok(tried) => {
                    let account = tried.account_id;
                    return Ok(see(&format!("/forms/{workflow}/rehearsal?tried={account}")));
                }
                Err(why) => {
                    // Pressed twice, perhaps: what came of the first press is told.
                    let is_it = |one: &TrialRow| one.step.as_ref() == Some(&step);
                    page.trial = last_step(&page, is_it).await?;
                    page.refused = Some(why);
                }
            }
        }
    }
    Ok(match page.refused {
        None => visit.page("Try it", &page),
        Some(_) => visit.refusal("Try it", &page),
    })
}
