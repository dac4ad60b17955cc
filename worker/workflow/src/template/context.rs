//! The names that templates can use: the variables of a definition when it is checked, and their
//! values when a run renders it.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use letterbox_common::{
    form::{FieldType, Form},
    json_object::text_of,
};
use minijinja::Value;
use serde_json::value::RawValue;

use super::{
    insertions::AS_TYPED,
    references::{AnswerName, FAILURE},
    table::{LABELS, Labels},
};
use crate::json;

/// The members of `run`.
const RUN_MEMBERS: [&str; 2] = ["id", "received_at"];

/// The variables that a template may use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables {
    /// Keys of the form's fields.
    form: Vec<(String, FieldType)>,
    /// Ids of earlier actions, whose answers are known.
    answers: Vec<String>,
    /// Arguments of a tool, by name; `None` outside of tools.
    args: Option<Vec<(String, FieldType)>>,
    /// Whether the run has failed.
    failure: bool,
}

impl Variables {
    pub(crate) fn of(form: &Form) -> Self {
        let fields = form.fields.iter();
        Self {
            form: fields
                .map(|field| (field.key.clone(), field.kind))
                .collect(),
            ..Self::default()
        }
    }

    /// Those of a form with these fields.
    #[cfg(test)]
    pub(crate) fn of_fields(fields: &[(&str, FieldType)]) -> Self {
        let fields = fields.iter();
        Self {
            form: fields.map(|(key, kind)| ((*key).into(), *kind)).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn add_answer(&mut self, id: &str) {
        self.answers.push(id.to_owned());
    }

    /// Adds the answers that only `other` has.
    pub(crate) fn add_answers_of(&mut self, other: Self) {
        let known: HashSet<_> = self.answers.iter().cloned().collect();
        let new = other.answers.into_iter();
        self.answers.extend(new.filter(|id| !known.contains(id)));
    }

    /// The variables with the arguments of a tool.
    pub(crate) fn with_args(&self, args: Vec<(String, FieldType)>) -> Self {
        Self {
            args: Some(args),
            ..self.clone()
        }
    }

    /// The variables after the run has failed.
    pub(crate) fn after_failure(mut self) -> Self {
        self.failure = true;
        self
    }

    /// Whether a template may use this name, such as `form.seats`.
    pub(super) fn contains(&self, name: &str) -> bool {
        let has = |known: &[(String, FieldType)], key| known.iter().any(|(known, _)| known == key);
        match name.split_once('.') {
            Some(("form", key)) => has(&self.form, key),
            Some(("run", FAILURE)) => self.failure,
            Some(("run", member)) => RUN_MEMBERS.contains(&member),
            Some(("args", key)) => self.args.as_ref().is_some_and(|args| has(args, key)),
            // Checked separately, because an id need not be a name.
            Some(("actions", _)) => true,
            None => name == "form" || name == "actions",
            Some(_) => false,
        }
    }

    /// Whether a template may use this member of an answer.
    pub(super) fn has_answer(&self, name: &AnswerName) -> bool {
        let is_known = |id: &String| self.answers.contains(id);
        let members = ["status", "body"];
        name.id.as_ref().is_some_and(is_known)
            && name
                .member
                .as_deref()
                .is_some_and(|member| members.contains(&member))
    }

    /// The names that a template may use, for messages.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<_> = RUN_MEMBERS.map(|member| dotted("run", member)).to_vec();
        names.extend(self.failure.then(|| dotted("run", FAILURE)));
        names.extend(self.form.iter().map(|(key, _)| dotted("form", key)));
        let args = self.args.iter().flatten();
        names.extend(args.map(|(key, _)| dotted("args", key)));
        for id in &self.answers {
            let action = dotted("actions", id);
            names.extend([format!("{action}.status"), format!("{action}.body")]);
        }
        names.join(", ")
    }

    pub(super) fn kind_of(&self, key: &str) -> Option<FieldType> {
        let field = self.form.iter().find(|(known, _)| known == key);
        field.map(|(_, kind)| *kind)
    }

    /// A context with a sample value for every field and argument.
    pub(crate) fn sample(&self) -> TemplateContext {
        let value = |kind: FieldType| match kind {
            FieldType::Text | FieldType::Textarea => Value::from("text"),
            FieldType::Email => Value::from("name@example.com"),
            FieldType::Number => Value::from(1),
            FieldType::Checkbox => Value::from(true),
        };
        let object = |known: &[(String, FieldType)]| {
            let values = known.iter();
            Value::from_iter(values.map(|(key, kind)| (key.clone(), value(*kind))))
        };
        let form = object(&self.form);
        let mut values = BTreeMap::from([("form", form.clone()), (AS_TYPED, form)]);
        let labels = Labels::new(self.form.iter().map(|(key, _)| (&**key, &**key)));
        values.insert(LABELS, labels.0);
        values.extend(self.args.as_deref().map(|args| ("args", object(args))));
        let id = "00000000-0000-7000-8000-000000000000";
        let sample = TemplateContext::new(values, id, "2026-01-01T00:00:00Z");
        sample.after_failure("send: answered with status 400")
    }
}

/// The name of an object's member in an expression.
pub(crate) fn dotted(object: &str, key: &str) -> String {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    match key.chars().all(is_name) {
        true => format!("{object}.{key}"),
        false => format!("{object}['{key}']"),
    }
}

/// The values that a run's templates see: `form`, the submitted values; `run`, its id and the time
/// of receipt; `actions`, the answers of earlier actions; and in tools `args`.
#[derive(Debug, Clone)]
pub struct TemplateContext {
    /// All but `run` and the answers, by name; `form` also with numbers as text.
    values: BTreeMap<&'static str, Value>,
    run: BTreeMap<&'static str, Value>,
    /// The bytes of all of these.
    pub(super) length: usize,
    /// The answers of earlier actions, as they came: a template parses those that it names.
    pub(super) answers: BTreeMap<String, NamedAnswer>,
}

/// What an action was answered.
#[derive(Debug, Clone)]
pub(super) struct NamedAnswer {
    status: Option<u16>,
    pub(super) body: Arc<[u8]>,
}

impl NamedAnswer {
    /// The value that templates see. A body that isn't JSON is undefined.
    pub(super) fn parse(&self) -> Value {
        let body = json::parse(&self.body).map_or(Value::UNDEFINED, Value::from_serialize);
        let status = self.status.map_or(Value::UNDEFINED, Value::from);
        Value::from_iter([("status", status), ("body", body)])
    }

    /// Why the body is undefined; `None` if it is JSON that can be used.
    pub(super) fn problem(&self) -> Option<String> {
        if json::parse(&self.body).is_some() {
            return None;
        }
        Some(if let Some(reason) = json::reason(&self.body) {
            reason
        } else if json::values(&self.body) > json::MAX_VALUES {
            format!("has more than {} values", json::MAX_VALUES)
        } else {
            "is not JSON".to_owned()
        })
    }
}

impl TemplateContext {
    fn new(values: BTreeMap<&'static str, Value>, id: &str, received_at: &str) -> Self {
        Self {
            values,
            run: BTreeMap::from([("id", id.into()), ("received_at", received_at.into())]),
            length: id.len() + received_at.len(),
            answers: BTreeMap::new(),
        }
    }

    /// The object of all values, with these answers. Their contents are shared, not copied.
    pub(super) fn with_parsed(&self, answers: Value) -> Value {
        let run = Value::from_iter(self.run.clone());
        let more = BTreeMap::from([("run", run), ("actions", answers)]);
        Value::from_iter(self.values.clone().into_iter().chain(more))
    }

    /// The object of all values but the answers.
    pub(super) fn value(&self) -> Value {
        self.with_parsed(Value::from_iter([("", ""); 0]))
    }

    /// The context of a run. `form` is the JSON text of an object. Expressions compute with its
    /// numbers as 128-bit integers where they are integers, otherwise as the nearest doubles.
    pub fn of_run(form: &str, run: &str, received_at: &str) -> serde_json::Result<Self> {
        let length = form.len();
        let form: BTreeMap<String, Box<RawValue>> = serde_json::from_str(form)?;
        let mut values = Vec::new();
        let mut typed = Vec::new();
        for (key, value) in form {
            let number = number(value.get());
            let value = match &number {
                Some(_) => Value::from(value.get()),
                None => {
                    Value::from_serialize(serde_json::from_str::<serde_json::Value>(value.get())?)
                }
            };
            values.push((key.clone(), number.unwrap_or_else(|| value.clone())));
            typed.push((key, value));
        }
        let values = [
            ("form", Value::from_iter(values)),
            (AS_TYPED, Value::from_iter(typed)),
        ];
        let mut context = Self::new(BTreeMap::from(values), run, received_at);
        context.length += length;
        Ok(context)
    }

    /// Adds the labels of the form.
    #[must_use]
    pub fn with_labels(mut self, labels: &Labels) -> Self {
        self.values.insert(LABELS, labels.0.clone());
        self
    }

    /// Adds the answer of an action. It is parsed when a template that names it is rendered, and
    /// dropped after that: a `body` that isn't JSON, or has more than 10,000 values, is undefined.
    #[must_use]
    pub fn with_answer(mut self, id: &str, status: Option<u16>, body: Arc<[u8]>) -> Self {
        self.answers
            .insert(id.to_owned(), NamedAnswer { status, body });
        self
    }

    /// Adds the arguments of a tool.
    #[must_use]
    pub(crate) fn with_args(mut self, args: &serde_json::Map<String, serde_json::Value>) -> Self {
        self.length += text_of(args).len();
        self.values.insert("args", Value::from_serialize(args));
        self
    }

    /// The context after the run has failed, for this reason.
    #[must_use]
    pub fn after_failure(mut self, reason: &str) -> Self {
        self.length += reason.len();
        self.run.insert(FAILURE, reason.into());
        self
    }
}

/// The value with which expressions compute for a JSON number; `None` if the text isn't a number.
fn number(text: &str) -> Option<Value> {
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let whole = text.parse::<i64>().map(Value::from);
    let long = || text.parse::<i128>().map(Value::from);
    let double = || text.parse::<f64>().map(Value::from);
    whole.or_else(|_| long()).or_else(|_| double()).ok()
}
