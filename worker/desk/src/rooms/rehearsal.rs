//! Trying a form: an owner gives sample answers to the draft, and sees every request as it would
//! go. Nothing is sent.

use askama::Template;
use letterbox_common::{
    form::{Field, FieldType, Form},
    ids::WorkflowId,
};
use letterbox_operator::{RehearsedAction, WorkflowDetail, words};
use serde_json::{Map, Value};

use super::{
    To, Visit,
    draft::{need_owner, written},
    or_refusal, refused,
};
use crate::response::{Answered, Trouble};

#[derive(Template)]
#[template(path = "rehearsal.html")]
struct RehearsalPage<'v> {
    visit: &'v Visit,
    workflow: WorkflowDetail,
    fields: Vec<Field>,
    /// What was given; what a person could write, before anything is.
    answers: Vec<String>,
    rehearsed: Option<Vec<RehearsedAction>>,
    refused: Option<String>,
}

impl RehearsalPage<'_> {
    #[expect(clippy::unused_self, reason = "a template compares by it")]
    fn is(&self, answer: &str, choice: &str) -> bool {
        answer == choice
    }
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

/// The value of an answer, as a submission has it; `None` if there is none.
fn value(field: &Field, answer: &str) -> Result<Option<Value>, String> {
    Ok(match field.kind {
        FieldType::Checkbox => Some((!answer.is_empty()).into()),
        _ if answer.is_empty() => None,
        FieldType::Number => match serde_json::from_str(answer) {
            Ok(Value::Number(number)) => Some(number.into()),
            _ => return Err(format!("{}: write a number, such as 2.5.", field.label)),
        },
        FieldType::Text | FieldType::Textarea | FieldType::Email => Some(answer.into()),
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
        refused: None,
    })
}

/// Asks for sample answers.
pub(crate) async fn ask(To(visit, workflow): To<WorkflowId>) -> Answered {
    let page = found(&visit, workflow, |_, field| sample(field)).await?;
    Ok(visit.page("Try it", &page))
}

/// Shows what these answers would lead to.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let given = |at: usize, _: &Field| written(visit.filled(&format!("answer-{at}")));
    let mut page = found(&visit, workflow, given).await?;
    let mut answers = Map::new();
    for (field, answer) in page.fields.iter().zip(&page.answers) {
        match value(field, answer) {
            Ok(value) => answers.extend(value.map(|value| (field.key.clone(), value))),
            Err(why) => page.refused = Some(why),
        }
    }
    if page.refused.is_none() {
        let answers = Value::from(answers).to_string();
        let rehearsing = visit.operator.rehearse(&page.workflow, answers);
        match or_refusal(rehearsing.await)? {
            Ok(rehearsed) => page.rehearsed = Some(rehearsed),
            Err(why) => page.refused = Some(why),
        }
    }
    Ok(match page.refused {
        None => visit.page("Try it", &page),
        Some(_) => visit.refusal("Try it", &page),
    })
}
