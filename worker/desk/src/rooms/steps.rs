//! What happens with a submission, as cards: an owner has each answer mailed or sent to an account
//! without JSON. Steps of other kinds stay as they were written.

use askama::Template;
use letterbox_common::{form::FieldType, ids::WorkflowId};
use letterbox_operator::{AccountRow, WorkflowDetail};
use serde_json::{Value, json, value::RawValue};

use super::{
    To, Visit,
    draft::{self, Members, NotSaved, arrange, free, need_owner, version, written},
};
use crate::response::{Answered, Trouble, see};

#[derive(Template)]
#[template(path = "steps.html")]
struct StepsPage<'v> {
    visit: &'v Visit,
    workflow: WorkflowDetail,
    steps: Vec<Value>,
    /// The fields of the form: keys, labels and whether they are addresses.
    fields: Vec<(String, String, bool)>,
    /// The accounts of the person that send e-mail, and the others.
    mail: Vec<AccountRow>,
    accounts: Vec<AccountRow>,
    version: String,
    is_saved: bool,
    not_saved: NotSaved,
}

/// The steps of a draft, as they are written.
fn steps(draft: &str) -> Vec<Box<RawValue>> {
    let members = Members::of(draft);
    let steps = members.get("actions");
    steps
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// A step in words.
fn in_words(step: &Value) -> String {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    match text("type") {
        "email.send" => {
            let to = step["to"].as_array().into_iter().flatten();
            let to: Vec<_> = to.filter_map(Value::as_str).collect();
            format!("E-mail to {}: {}", to.join(", "), text("subject"))
        }
        "http.request" => format!("{} {} of {}", text("method"), text("path"), text("account")),
        "delay" => format!("Wait {}", text("for")),
        "condition" => format!("Only if {}", text("if")),
        "ai.condition" => format!("Ask a model: {}", text("question")),
        "ai.agent" => format!("Let a model work: {}", text("goal")),
        "fail" => format!("Fail: {}", text("reason")),
        other => other.to_owned(),
    }
}

/// The place of a mistake, as the page calls it.
fn place(path: &str) -> String {
    let step = path.strip_prefix("actions[");
    let step = step.and_then(|rest| rest.split_once(']'));
    match step.and_then(|(at, rest)| Some((at.parse::<usize>().ok()?, rest))) {
        Some((at, rest)) => format!("Step {}{}", at + 1, rest.replace('.', ", ")),
        None => path.to_owned(),
    }
}

/// The step that was filled in; `None` if a button only moves or removes one.
fn posted(visit: &Visit, ids: &[String]) -> Result<Option<Value>, Trouble> {
    let text = |name: &str| written(visit.filled(name));
    let free = |name: &str| free(name, '-', |name| ids.iter().all(|id| id != name));
    // What is typed is text: a brace of it is no template, but for the names of answers.
    Ok(Some(match visit.given("do")? {
        "mail" => {
            let to = match text("to_answer") {
                key if key.is_empty() => text("to"),
                key => value_of(&key),
            };
            let mut step = json!({"id": free("mail"), "type": "email.send",
                "account": text("account"), "to": [to], "subject": text("subject")});
            let reply_to = text("reply_to");
            if !reply_to.is_empty() {
                step["reply_to"] = value_of(&reply_to).into();
            }
            let words = text("words");
            if !words.is_empty() {
                step["text"] = words.into();
            }
            step
        }
        "send" => {
            let answers = visit.asked.form.all("answer");
            let body: serde_json::Map<_, Value> = answers
                .map(|key| (key.to_owned(), value_of(key).into()))
                .collect();
            json!({"id": free("send"), "type": "http.request", "account": text("account"),
                "method": text("method"), "path": text("path"), "body": body})
        }
        _ => return Ok(None),
    }))
}

/// The template of an answer.
fn value_of(key: &str) -> String {
    let is_name = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match is_name {
        true => format!("{{{{ form.{key} }}}}"),
        false => format!("{{{{ form[{}] }}}}", Value::from(key)),
    }
}

async fn found(
    visit: &Visit,
    workflow: WorkflowDetail,
    not_saved: NotSaved,
) -> Result<StepsPage<'_>, Trouble> {
    let text = workflow.text.as_deref().unwrap_or_default();
    let definition = workflow.definition.as_ref().unwrap_or(&Value::Null);
    let fields = definition["form"]["fields"]
        .as_array()
        .into_iter()
        .flatten();
    let fields = fields.map(|field| {
        let text = |name: &str| field[name].as_str().unwrap_or_default().to_owned();
        let is_address = field["type"] == FieldType::Email.as_str();
        (text("key"), text("label"), is_address)
    });
    let accounts = visit.operator.accounts(workflow.row.workspace_id).await?;
    let own = |one: &AccountRow| one.user_id == visit.user && one.disconnected_at.is_none();
    let own = accounts.into_iter().filter(own);
    let (mail, accounts) = own.partition(|one| one.sender.is_some());
    let steps = steps(text);
    let steps = steps.iter().map(|step| serde_json::from_str(step.get()));
    Ok(StepsPage {
        visit,
        steps: steps.map(Result::unwrap_or_default).collect(),
        fields: fields.collect(),
        mail,
        accounts,
        version: version(workflow.text.as_deref()),
        is_saved: visit.asked.query.get("saved").is_some(),
        workflow,
        not_saved,
    })
}

/// What happens by the draft, for who may change it.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = visit.operator.workflow(workflow).await?;
    need_owner(&visit, &workflow).await?;
    let page = found(&visit, workflow, NotSaved::default()).await?;
    Ok(visit.page("Steps", &page))
}

/// Adds, moves or removes a step.
pub(crate) async fn save(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = visit.operator.workflow(workflow).await?;
    need_owner(&visit, &workflow).await?;
    let text = workflow.text.as_deref().unwrap_or_default();
    let mut steps: Vec<String> = steps(text)
        .iter()
        .map(|step| step.get().to_owned())
        .collect();
    let id = |step: &String| {
        Some(
            serde_json::from_str::<Value>(step).ok()?["id"]
                .as_str()?
                .to_owned(),
        )
    };
    let ids: Vec<String> = steps.iter().filter_map(id).collect();
    match posted(&visit, &ids)? {
        Some(step) => steps.push(step.to_string()),
        None => arrange(&mut steps, visit.given("do")?),
    }
    let mut members = Members::of(text);
    let listed = steps.iter().map(|step| format!("\n    {step}"));
    let listed = listed.collect::<Vec<_>>().join(",");
    members.set("actions", Some(format!("[{listed}\n  ]")));
    match draft::save(&visit, &workflow, &members.text()).await? {
        Ok(()) => {
            let id = workflow.row.workflow_id;
            Ok(see(&format!("/forms/{id}/steps?saved=yes")))
        }
        Err(not_saved) => {
            let page = found(&visit, workflow, not_saved).await?;
            Ok(visit.refusal("Steps", &page))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_named_whatever_its_key() {
        for (key, template) in [
            ("email", "{{ form.email }}"),
            ("e-mail", "{{ form[\"e-mail\"] }}"),
            ("a\"b", "{{ form[\"a\\\"b\"] }}"),
        ] {
            assert_eq!(value_of(key), template);
        }
    }

    #[test]
    fn steps_are_told_in_words() {
        for (step, told) in [
            (
                json!({"type": "email.send", "to": ["a@x.example"], "subject": "New"}),
                "E-mail to a@x.example: New",
            ),
            (
                json!({"type": "http.request", "method": "POST", "path": "/p", "account": "crm"}),
                "POST /p of crm",
            ),
            (json!({"type": "of.tomorrow"}), "of.tomorrow"),
        ] {
            assert_eq!(in_words(&step), told);
        }
        assert_eq!(place("actions[0].path"), "Step 1, path");
    }
}
