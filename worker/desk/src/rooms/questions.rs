//! The questions of a form, as rows: an owner writes a form without JSON. What is saved is the
//! draft that the next deploy takes; everything else in the definition stays as it is.

use std::collections::BTreeMap;

use askama::Template;
use letterbox_common::{
    form::{Field, FieldType, Form, Locale},
    ids::WorkflowId,
    json_object,
};
use letterbox_operator::{OperatorError, Problem, Reason, WorkflowDetail};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{To, Visit, or_refusal};
use crate::response::{Answered, Trouble, see};

/// Settings of the page that are one line of text each, with what they are called.
const LOOK: [(&str, &str); 5] = [
    ("organization", "Your organization, above the form"),
    ("button", "What the button says, instead of Submit"),
    ("color", "Color of the button, such as #0a7"),
    ("privacyUrl", "Address of your privacy policy"),
    ("continueUrl", "Address to which people go on afterwards"),
];

#[derive(Template)]
#[template(path = "questions.html")]
struct QuestionsPage<'v> {
    visit: &'v Visit,
    workflow: WorkflowDetail,
    edited: Edited,
    /// Of the draft that is edited.
    version: String,
    problems: Vec<Problem>,
    refused: Option<String>,
}

/// What rows can say of a definition.
#[derive(Default)]
struct Edited {
    title: String,
    description: String,
    thanks: String,
    fields: Vec<Field>,
    /// Settings of [`LOOK`], and the language, by name.
    look: BTreeMap<String, String>,
}

/// A type, as people call it.
fn in_words(kind: &FieldType) -> &'static str {
    match kind {
        FieldType::Text => "one line",
        FieldType::Textarea => "several lines",
        FieldType::Number => "a number",
        FieldType::Email => "an e-mail address",
        FieldType::Checkbox => "a tick",
    }
}

impl Edited {
    /// What a draft says.
    fn of(definition: &Value) -> Self {
        let form = serde_json::from_value::<Form>(definition["form"].clone());
        let page = definition["page"].as_object();
        let look = page.into_iter().flatten();
        let look =
            look.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        let look = look.collect();
        let Ok(form) = form else {
            return Self {
                look,
                ..Self::default()
            };
        };
        Self {
            title: form.title,
            description: form.description.unwrap_or_default(),
            thanks: form.confirmation_message.unwrap_or_default(),
            fields: form.fields,
            look,
        }
    }

    /// What was filled in, changed as the pressed button says.
    fn posted(visit: &Visit) -> Result<Self, Trouble> {
        let form = &visit.asked.form;
        let column = |name| form.all(name).collect::<Vec<_>>();
        let [keys, labels, types, hints] = ["key", "label", "type", "hint"].map(column);
        let required = column("required");
        if [&labels, &types, &hints]
            .iter()
            .any(|one| one.len() != keys.len())
        {
            return Err(Trouble::Unreadable);
        }
        let mut fields = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let hint = Some(hints[at].trim()).filter(|hint| !hint.is_empty());
            // The last row is for a question that is not there yet.
            if key.is_empty() && labels[at].trim().is_empty() {
                continue;
            }
            let mut field = Field {
                key: (*key).to_owned(),
                label: labels[at].trim().to_owned(),
                kind: types[at].parse().map_err(|_| Trouble::Unreadable)?,
                required: required.contains(key),
                placeholder: hint.map(str::to_owned),
            };
            if key.is_empty() {
                field.key = free_key(&field.label, &fields);
                field.required = required.contains(&"new");
            }
            fields.push(field);
        }
        arrange(&mut fields, form.get("do").unwrap_or_default());
        let text = |name: &str| visit.filled(name).trim().to_owned();
        let names = LOOK.iter().map(|(name, _)| *name).chain(["locale"]);
        let look = names.map(|name| (name.to_owned(), text(name)));
        Ok(Self {
            title: text("title"),
            description: text("description"),
            thanks: text("thanks"),
            fields,
            look: look.filter(|(_, value)| !value.is_empty()).collect(),
        })
    }

    fn look(&self, name: &str) -> &str {
        self.look.get(name).map_or("", String::as_str)
    }

    /// A draft with this in it, and otherwise as it was: the same members in the same order.
    fn within(&self, draft: &str) -> String {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let form = Form {
            title: self.title.clone(),
            description: given(&self.description),
            confirmation_message: given(&self.thanks),
            fields: self.fields.clone(),
        };
        let form = serde_json::to_value(form).unwrap_or_default();
        let members = json_object::all(draft).unwrap_or_default();
        let members = members
            .into_iter()
            .filter_map(|(name, json)| Some((name?, json.get())));
        let mut members: Vec<_> = members.collect();
        let page = members.iter().rev().find(|(name, _)| name == "page");
        let page = page.and_then(|(_, json)| serde_json::from_str(json).ok());
        let mut page: Map<String, Value> = page.unwrap_or_default();
        for name in LOOK.iter().map(|(name, _)| *name).chain(["locale"]) {
            match self.look.get(name) {
                Some(value) => drop(page.insert(name.to_owned(), value.clone().into())),
                None => drop(page.remove(name)),
            }
        }
        let has_page = !page.is_empty();
        let (form, page) = (format!("{form:#}"), format!("{:#}", Value::Object(page)));
        let mut set = |name: &str, json| match members.iter_mut().find(|one| one.0 == name) {
            Some(member) => member.1 = json,
            None => members.push((name.to_owned(), json)),
        };
        set("form", &form);
        if has_page {
            set("page", &page);
        } else {
            members.retain(|(name, _)| name != "page");
        }
        let members = members.iter().map(|(name, json)| {
            format!(
                "  {}: {}",
                Value::from(name.as_str()),
                json.replace('\n', "\n  ")
            )
        });
        format!("{{\n{}\n}}", members.collect::<Vec<_>>().join(",\n"))
    }
}

/// Moves or removes the field that a button names, such as `up:email`.
fn arrange(fields: &mut Vec<Field>, order: &str) {
    let Some((what, key)) = order.split_once(':') else {
        return;
    };
    let Some(at) = fields.iter().position(|field| field.key == key) else {
        return;
    };
    match what {
        "up" if at > 0 => fields.swap(at, at - 1),
        "down" if at + 1 < fields.len() => fields.swap(at, at + 1),
        "remove" => drop(fields.remove(at)),
        _ => {}
    }
}

/// A key for a new field, of its label, that no other one has.
fn free_key(label: &str, others: &[Field]) -> String {
    let words = label.to_lowercase();
    let words = words.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let mut key: String = words.join("_").chars().take(40).collect();
    if key.is_empty() {
        key = "question".to_owned();
    }
    let is_free = |key: &str| others.iter().all(|field| field.key != key);
    let numbered = (2..).map(|number: u32| format!("{key}_{number}"));
    let mut keys = [key.clone()].into_iter().chain(numbered);
    keys.find(|key| is_free(key)).unwrap_or(key)
}

fn version(draft: &str) -> String {
    hex::encode(Sha256::digest(draft))
}

/// The questions of the draft.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = visit.operator.workflow(workflow).await?;
    let draft = workflow.text.clone().unwrap_or_default();
    let page = QuestionsPage {
        visit: &visit,
        edited: Edited::of(workflow.definition.as_ref().unwrap_or(&Value::Null)),
        version: version(&draft),
        workflow,
        problems: Vec::new(),
        refused: None,
    };
    Ok(visit.page("Questions", &page))
}

/// Saves the draft with what was filled in.
pub(crate) async fn save(To(visit, workflow): To<WorkflowId>) -> Answered {
    let operator = &visit.operator;
    let workflow = operator.workflow(workflow).await?;
    let id = workflow.row.workflow_id;
    let draft = workflow.text.clone().unwrap_or_default();
    let edited = Edited::posted(&visit)?;
    let of = visit.given("of")?;
    let saving = async {
        // Somebody else's draft, or that of another window, is not lost unseen.
        match version(&draft) == of {
            true => {
                operator
                    .save_draft(id, &draft, &edited.within(&draft))
                    .await
            }
            false => Err(Reason::DraftConflict.into()),
        }
    };
    let mut page = QuestionsPage {
        visit: &visit,
        version: of.to_owned(),
        workflow,
        edited: Edited::default(),
        problems: Vec::new(),
        refused: None,
    };
    match saving.await {
        Ok(()) => return Ok(see(&format!("/forms/{id}/questions"))),
        Err(OperatorError::Refused(Reason::InvalidDefinition(problems))) => {
            page.problems = problems;
        }
        Err(error) => page.refused = or_refusal(Err::<(), _>(error))?.err(),
    }
    page.edited = edited;
    Ok(visit.refusal("Questions", &page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(key: &str) -> Field {
        Field {
            key: key.to_owned(),
            label: key.to_owned(),
            kind: FieldType::Text,
            required: false,
            placeholder: None,
        }
    }

    #[test]
    fn a_key_is_made_of_its_label_and_free() {
        let others = [field("your_name"), field("your_name_2"), field("question")];
        for (label, key) in [
            ("Your e-mail address?", "your_e_mail_address"),
            ("Your name", "your_name_3"),
            ("\u{540d}\u{524d}", "question_2"),
        ] {
            assert_eq!(free_key(label, &others), key);
        }
    }

    #[test]
    fn all_else_stays_in_a_draft_as_it_was() {
        let draft = r#"{"actions": [{"id": "a", "n": 1.50}], "form": {"title": "old"},
            "page": {"color": "red", "frameAncestors": ["https://a.example"]}}"#;
        let mut edited = Edited {
            title: "New \"one\"".to_owned(),
            fields: vec![field("a"), field("b")],
            ..Edited::default()
        };
        arrange(&mut edited.fields, "down:a");
        edited.look.insert("button".to_owned(), "Go".to_owned());
        let text = edited.within(draft);
        assert!(text.starts_with("{\n  \"actions\": [{\"id\": \"a\", \"n\": 1.50}],\n  \"form\""));
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["form"]["title"], "New \"one\"");
        assert_eq!(read["form"]["fields"][0]["key"], "b");
        let page = serde_json::json!({"button": "Go", "frameAncestors": ["https://a.example"]});
        assert_eq!(read["page"], page);
        let again = Edited::of(&read);
        assert_eq!(again.fields, edited.fields);
        assert_eq!(again.look("button"), "Go");
    }
}
