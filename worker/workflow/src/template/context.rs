//! What templates can refer to: the variables of a form when a definition is checked, and their
//! values when a run renders it.

use std::collections::BTreeMap;

use letterbox_common::form::{FieldType, Form};
use minijinja::Value;
use serde_json::value::RawValue;

use super::{Renderer, insertions::AS_TYPED};

/// The members of `run`.
const RUN_MEMBERS: [&str; 2] = ["id", "received_at"];

/// The variables that the templates of a definition may use: `form.<key>` and the members of `run`.
#[derive(Debug, Clone)]
pub(crate) struct Variables(Vec<(String, FieldType)>);

impl Variables {
    pub(crate) fn of(form: &Form) -> Self {
        Self(
            form.fields
                .iter()
                .map(|field| (field.key.clone(), field.kind))
                .collect(),
        )
    }

    /// Whether a template may use this name, such as `form.seats`.
    pub(super) fn contains(&self, name: &str) -> bool {
        match name.split_once('.') {
            Some(("form", key)) => self.0.iter().any(|(known, _)| known == key),
            Some(("run", member)) => RUN_MEMBERS.contains(&member),
            None => name == "form",
            Some(_) => false,
        }
    }

    /// The type of a field.
    pub(super) fn kind_of(&self, key: &str) -> Option<FieldType> {
        let field = self.0.iter().find(|(known, _)| known == key);
        field.map(|(_, kind)| *kind)
    }

    /// A context with a value in every field, for trying templates.
    pub(crate) fn sample(&self) -> TemplateContext {
        let value = |kind: FieldType| match kind {
            FieldType::Text | FieldType::Textarea => Value::from("text"),
            FieldType::Email => Value::from("name@example.com"),
            FieldType::Number => Value::from(1),
            FieldType::Checkbox => Value::from(true),
        };
        let fields = self.0.iter().map(|(key, kind)| (key.clone(), value(*kind)));
        let id = "00000000-0000-7000-8000-000000000000";
        let form = Value::from_iter(fields);
        TemplateContext::new(form.clone(), form, id, "2026-01-01T00:00:00Z")
    }
}

/// The values that a run's templates see: `form`, what was submitted, and `run`, its id and when it
/// was received.
#[derive(Debug, Clone)]
pub struct TemplateContext(pub(super) Value);

impl TemplateContext {
    /// `typed` holds what `form` holds, numbers as text.
    fn new(form: Value, typed: Value, run: &str, received_at: &str) -> Self {
        let run = Value::from_iter([("id", run), ("received_at", received_at)]);
        Self(Value::from_iter([
            ("form", form),
            (AS_TYPED, typed),
            ("run", run),
        ]))
    }

    /// Renders the templates of one request.
    #[must_use]
    pub fn renderer(&self) -> Renderer<'_> {
        Renderer::new(self)
    }

    /// The context of a run. `form` is the JSON text of an object. A number in it is computed with
    /// as an integer of 128 bits where it is one, else as the nearest double.
    ///
    /// # Errors
    /// When `form` is not a JSON object.
    pub fn of_run(form: &str, run: &str, received_at: &str) -> serde_json::Result<Self> {
        let form: BTreeMap<String, Box<RawValue>> = serde_json::from_str(form)?;
        let (mut values, mut typed) = (Vec::new(), Vec::new());
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
        Ok(Self::new(
            Value::from_iter(values),
            Value::from_iter(typed),
            run,
            received_at,
        ))
    }
}

/// What a JSON number is computed as; none where the text is no number.
fn number(text: &str) -> Option<Value> {
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let whole = text.parse::<i64>().map(Value::from);
    let long = || text.parse::<i128>().map(Value::from);
    let double = || text.parse::<f64>().map(Value::from);
    whole.or_else(|_| long()).or_else(|_| double()).ok()
}
