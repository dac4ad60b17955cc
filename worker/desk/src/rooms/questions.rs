//! The questions of a form, as rows: an owner writes a form without JSON. What is saved is the
//! draft that the next deploy takes; everything else in the definition stays as it is.

use std::collections::BTreeMap;

use askama::Template;
use letterbox_common::{
    form::{Field, FieldType, Form, Locale},
    ids::WorkflowId,
};
use letterbox_operator::{Problem, WorkflowDetail};
use serde_json::{Map, Value};

use super::{
    To, Visit,
    draft::{self, Members, NotSaved, arrange, free, item, member, owned, version, written},
};
use crate::response::{Answered, Trouble, see};

/// Settings of the page that are one line of text each, with what they are called.
const LOOK: [(&str, &str); 5] = [
    ("organization", "Your organization, above the form"),
    ("button", "What the button says, instead of Submit"),
    ("color", "Color of the button, such as #00aa77"),
    ("privacy_url", "Address of your privacy policy"),
    ("continue_url", "Address to which people go on afterwards"),
];

#[derive(Template)]
#[template(path = "questions.html")]
struct QuestionsPage<'v> {
    visit: &'v Visit,
    workflow: WorkflowDetail,
    edited: Edited,
    /// Of the draft that is there.
    version: String,
    is_saved: bool,
    not_saved: NotSaved,
}

impl<'v> QuestionsPage<'v> {
    fn of(visit: &'v Visit, workflow: WorkflowDetail, edited: Edited, not_saved: NotSaved) -> Self {
        Self {
            visit,
            edited,
            version: version(workflow.text.as_deref()),
            is_saved: visit.asked.query.get("saved").is_some(),
            workflow,
            not_saved,
        }
    }

    /// The place of a mistake, as the page calls it.
    #[expect(
        clippy::unused_self,
        reason = "a template that other pages share calls it"
    )]
    fn place(&self, path: &str) -> String {
        match item(path, "form.fields") {
            Some((at, rest)) => format!("Question {}{rest}", at + 1),
            None => path.to_owned(),
        }
    }
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
    /// The sites that may show the page in a frame.
    sites: Vec<String>,
    /// A field with a list whose type is another one.
    unmeant: Option<usize>,
}

/// The setting of the page that names sites.
const SITES: &str = "frame_ancestors";
/// What the page calls the type of a text that has choices.
const CHOICE: &str = "choice";

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
        let sites = definition["page"][SITES].as_array().into_iter().flatten();
        let sites = sites.filter_map(|site| site.as_str().map(str::to_owned));
        let sites = sites.collect();
        let Ok(form) = form else {
            return Self {
                look,
                sites,
                ..Self::default()
            };
        };
        Self {
            title: form.title,
            description: form.description.unwrap_or_default(),
            thanks: form.confirmation_message.unwrap_or_default(),
            fields: form.fields,
            look,
            sites,
            unmeant: None,
        }
    }

    /// What was filled in, changed as the pressed button says.
    fn posted(visit: &Visit) -> Result<Self, Trouble> {
        let form = &visit.asked.form;
        let column = |name| form.all(name).collect::<Vec<_>>();
        let names = ["key", "label", "type", "hint", "choices"];
        let [keys, labels, types, hints, lists] = names.map(column);
        let required = column("required");
        if [&labels, &types, &hints, &lists]
            .iter()
            .any(|one| one.len() != keys.len())
        {
            return Err(Trouble::Unreadable);
        }
        let mut fields = Vec::new();
        let mut unmeant = None;
        for (at, key) in keys.iter().enumerate() {
            let label = written(labels[at]);
            // The last row is for a question that is not there yet.
            if key.is_empty() && label.is_empty() {
                continue;
            }
            let hint = Some(written(hints[at])).filter(|hint| !hint.is_empty());
            let (kind, choices) = match types[at] {
                CHOICE => (FieldType::Text, listed(lists[at])),
                kind => (
                    kind.parse().map_err(|_| Trouble::Unreadable)?,
                    lines(lists[at]),
                ),
            };
            // Whoever has typed a list may have meant it.
            if types[at] != CHOICE && !choices.is_empty() {
                unmeant = Some(fields.len());
            }
            fields.push(Field {
                key: match key.is_empty() {
                    true => free_key(&label, &fields),
                    false => key.replace("\r\n", "\n"),
                },
                label,
                kind,
                required: required.contains(&&*at.to_string()),
                placeholder: hint,
                choices,
            });
        }
        arrange(&mut fields, form.get("do").unwrap_or_default());
        let text = |name: &str| written(visit.filled(name));
        let names = LOOK.iter().map(|(name, _)| *name).chain(["locale"]);
        let look = names.map(|name| (name.to_owned(), text(name)));
        Ok(Self {
            title: text("title"),
            description: text("description"),
            thanks: text("thanks"),
            fields,
            look: look.filter(|(_, value)| !value.is_empty()).collect(),
            sites: lines(visit.filled(SITES)),
            unmeant,
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
        let mut members = Members::of(draft);
        let page = members.get("page");
        let page = page.and_then(|json| serde_json::from_str(json).ok());
        let mut page: Map<String, Value> = page.unwrap_or_default();
        for name in LOOK.iter().map(|(name, _)| *name).chain(["locale"]) {
            match self.look.get(name) {
                Some(value) => drop(page.insert(name.to_owned(), value.clone().into())),
                None => drop(page.remove(name)),
            }
        }
        match self.sites.is_empty() {
            true => drop(page.remove(SITES)),
            false => drop(page.insert(SITES.to_owned(), self.sites.clone().into())),
        }
        if let Some(Value::Object(names)) = page.get_mut("autocomplete") {
            names.retain(|key, _| self.fields.iter().any(|field| field.key == *key));
        }
        let page = (!page.is_empty()).then_some(Value::Object(page));
        members.set("form", Some(member(&form)));
        members.set("page", page.as_ref().map(member));
        members.text()
    }
}

/// The lines of a text that say something.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// The lines of a list that is not empty: one without any is refused as it is.
fn listed(text: &str) -> Vec<String> {
    let mut lines = lines(text);
    if lines.is_empty() {
        lines.push(String::new());
    }
    lines
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
    free(&key, '_', |key| others.iter().all(|field| field.key != key))
}

/// The questions of the draft, for who may change them.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = owned(&visit, workflow).await?;
    let edited = Edited::of(workflow.definition.as_ref().unwrap_or(&Value::Null));
    let page = QuestionsPage::of(&visit, workflow, edited, NotSaved::default());
    Ok(visit.page("Questions", &page))
}

/// Saves the draft with what was filled in.
pub(crate) async fn save(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = owned(&visit, workflow).await?;
    let edited = Edited::posted(&visit)?;
    let text = edited.within(workflow.text.as_deref().unwrap_or_default());
    let unmeant = edited.unmeant.map(|at| Problem {
        path: format!("form.fields[{at}].choices"),
        message: "choose that the answer is one of a list, or empty the list".to_owned(),
    });
    let saved = match unmeant {
        Some(problem) => Err(NotSaved {
            problems: vec![problem],
            refused: None,
        }),
        None => draft::save(&visit, &workflow, &text).await?,
    };
    let Err(not_saved) = saved else {
        let at = visit.filled("do").split_once(':').map(|(_, at)| at);
        let at = at.and_then(|at| at.parse::<usize>().ok());
        let at = at.map(|at| format!("#question-{at}")).unwrap_or_default();
        let id = workflow.row.workflow_id;
        return Ok(see(&format!("/forms/{id}/questions?saved=yes{at}")));
    };
    // Whoever saves once more has been told.
    let page = QuestionsPage::of(&visit, workflow, edited, not_saved);
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
            choices: Vec::new(),
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
        let actions = "[\n    {\"id\": \"a\", \"n\": 1.50}\n  ]";
        let draft = format!(
            r#"{{"form": 1, "actions": {actions}, "form": {{"title": "old"}}, "page": {{
                "color": "red", "frame_ancestors": ["https://a.example"],
                "autocomplete": {{"a": "name", "gone": "email"}}}}}}"#
        );
        let mut edited = Edited {
            title: "New \"one\"".to_owned(),
            fields: vec![field("a"), field("b")],
            ..Edited::default()
        };
        arrange(&mut edited.fields, "down:0");
        edited.look.insert("button".to_owned(), "Go".to_owned());
        edited.sites.push("https://a.example".to_owned());
        let text = edited.within(&draft);
        assert!(text.starts_with(&format!("{{\n  \"actions\": {actions},\n  \"form\"")));
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["form"]["title"], "New \"one\"");
        assert_eq!(read["form"]["fields"][0]["key"], "b");
        let page = serde_json::json!({"button": "Go", "autocomplete": {"a": "name"},
            "frame_ancestors": ["https://a.example"]});
        assert_eq!(read["page"], page);
        let again = Edited::of(&read);
        assert_eq!(again.fields, edited.fields);
        assert_eq!(again.look("button"), "Go");
        assert_eq!(again.within(&text), text, "another save changes nothing");
    }
}
