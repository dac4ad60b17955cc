//! What templates can refer to: the variables of a form when a definition is checked, and their
//! values when a run renders it.

use letterbox_common::form::{FieldType, Form};
use minijinja::Value;

use super::Renderer;

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
        TemplateContext::new(Value::from_iter(fields), id, "2026-01-01T00:00:00Z")
    }
}

/// The values that a run's templates see: `form`, what was submitted, and `run`, its id and when it
/// was received.
#[derive(Debug, Clone)]
pub struct TemplateContext(pub(super) Value);

impl TemplateContext {
    fn new(form: Value, run: &str, received_at: &str) -> Self {
        let run = Value::from_iter([("id", run), ("received_at", received_at)]);
        Self(Value::from_iter([("form", form), ("run", run)]))
    }

    /// Renders the templates of one request.
    #[must_use]
    pub fn renderer(&self) -> Renderer<'_> {
        Renderer::new(self)
    }

    /// The context of a run. `form` is the JSON text of an object.
    ///
    /// # Errors
    /// When `form` is not JSON.
    pub fn of_run(form: &str, run: &str, received_at: &str) -> serde_json::Result<Self> {
        let form: serde_json::Value = serde_json::from_str(form)?;
        Ok(Self::new(Value::from_serialize(form), run, received_at))
    }
}
