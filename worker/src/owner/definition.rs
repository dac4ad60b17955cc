//! What an owner deploys: `{"form": {…}, "actions": […]}`, checked whole, so that one try names every mistake.

use std::collections::HashSet;

use letterbox_common::form::{Field, FieldType, Form};
use serde_json::{Map, Value};

const TITLE: usize = 120;
const DESCRIPTION: usize = 500;
/// Most characters of what has no limit of its own, so that a form stays one that can be sent and shown.
const TEXT: usize = 500;
const KEY: usize = 100;
const FIELDS: std::ops::RangeInclusive<usize> = 1..=20;

/// A definition without mistakes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    pub form: Form,
    /// JSON text of a list.
    pub actions: String,
}

impl Definition {
    /// Reads and checks JSON text.
    ///
    /// # Errors
    /// Every mistake, each with its path.
    pub fn check(text: &str) -> Result<Self, Vec<String>> {
        let value = serde_json::from_str(text).map_err(|error| vec![format!("the definition is not JSON: {error}")])?;
        let mut mistakes = Mistakes(Vec::new());
        let definition = mistakes.object(&value, "the definition", &["form", "actions"]).map(|members| {
            let form = mistakes.form(members.get("form"));
            Self { form, actions: mistakes.actions(members.get("actions")) }
        });
        match definition {
            Some(definition) if mistakes.0.is_empty() => Ok(definition),
            _ => Err(mistakes.0),
        }
    }

    /// The form, as the public reads it.
    #[must_use]
    pub fn form_json(&self) -> String {
        // Texts, lists and booleans always serialize.
        serde_json::to_string(&self.form).unwrap_or_default()
    }
}

/// What is wrong so far. Its methods give a stand-in for what they refuse.
struct Mistakes(Vec<String>);

impl Mistakes {
    fn add(&mut self, path: &str, mistake: impl std::fmt::Display) {
        self.0.push(format!("{path}: {mistake}"));
    }

    fn object<'v>(&mut self, value: &'v Value, path: &str, known: &[&str]) -> Option<&'v Map<String, Value>> {
        let Some(members) = value.as_object() else {
            self.add(path, "has to be an object");
            return None;
        };
        for name in members.keys().filter(|name| !known.contains(&name.as_str())) {
            self.add(path, format_args!("has no member {name:?}, only {}", known.join(", ")));
        }
        Some(members)
    }

    fn form(&mut self, value: Option<&Value>) -> Form {
        let known = ["title", "description", "confirmationMessage", "fields"];
        let members = value.map(|value| self.object(value, "form", &known)).unwrap_or_else(|| {
            self.add("form", "is missing");
            None
        });
        let Some(members) = members else {
            return Form { title: String::new(), description: None, confirmation_message: None, fields: Vec::new() };
        };
        Form {
            title: self.text(members, "form", "title", TITLE),
            description: self.optional_text(members, "form", "description", DESCRIPTION),
            confirmation_message: self.optional_text(members, "form", "confirmationMessage", TEXT),
            fields: self.fields(members.get("fields")),
        }
    }

    fn fields(&mut self, value: Option<&Value>) -> Vec<Field> {
        let Some(values) = value.and_then(Value::as_array) else {
            self.add("form.fields", "has to be a list of 1 to 20 fields");
            return Vec::new();
        };
        if !FIELDS.contains(&values.len()) {
            self.add("form.fields", format_args!("has to have 1 to 20 fields, not {}", values.len()));
        }
        let mut keys = HashSet::new();
        let mut fields = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let path = format!("form.fields[{index}]");
            let known = ["key", "label", "type", "required", "placeholder"];
            let Some(members) = self.object(value, &path, &known) else { continue };
            let field = Field {
                key: self.text(members, &path, "key", KEY),
                label: self.text(members, &path, "label", TEXT),
                kind: self.kind(members.get("type"), &path),
                required: self.boolean(members.get("required"), &format!("{path}.required")),
                placeholder: self.optional_text(members, &path, "placeholder", TEXT),
            };
            if !field.key.is_empty() && !keys.insert(field.key.clone()) {
                self.add(&path, format_args!("another field has the key {:?}", field.key));
            }
            fields.push(field);
        }
        fields
    }

    fn kind(&mut self, value: Option<&Value>, path: &str) -> FieldType {
        let found = FieldType::ALL.into_iter().find(|(name, _)| value.and_then(Value::as_str) == Some(name));
        let Some((_, kind)) = found else {
            let names = FieldType::ALL.map(|(name, _)| name).join(", ");
            self.add(&format!("{path}.type"), format_args!("has to be one of {names}"));
            return FieldType::Text;
        };
        kind
    }

    fn boolean(&mut self, value: Option<&Value>, path: &str) -> bool {
        value.and_then(Value::as_bool).unwrap_or_else(|| {
            self.add(path, "has to be true or false");
            false
        })
    }

    fn optional_text(&mut self, members: &Map<String, Value>, path: &str, name: &str, most: usize) -> Option<String> {
        members.contains_key(name).then(|| self.text(members, path, name, most))
    }

    fn text(&mut self, members: &Map<String, Value>, path: &str, name: &str, most: usize) -> String {
        let text = members.get(name).and_then(Value::as_str).unwrap_or_default();
        if text.trim().is_empty() || text.chars().count() > most {
            self.add(
                &format!("{path}.{name}"),
                format_args!("has to be a string of 1 to {most} characters, not blank"),
            );
        }
        text.to_owned()
    }

    fn actions(&mut self, value: Option<&Value>) -> String {
        if !value.is_some_and(Value::is_array) {
            self.add("actions", "has to be a list, which may be empty");
        }
        value.unwrap_or(&Value::Null).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn good() -> Value {
        let field = |key: &str, kind: &str| json!({"key": key, "label": "L", "type": kind, "required": true});
        json!({
            "form": {
                "title": "T", "description": "D", "confirmationMessage": "C",
                "fields": [field("a", "text"), field("b", "textarea"), field("c", "number"), field("d", "email"),
                           {"key": "e", "label": "L", "type": "checkbox", "required": false, "placeholder": "P"}],
            },
            "actions": [],
        })
    }

    fn mistakes(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut value = good();
        change(&mut value);
        Definition::check(&value.to_string()).err().unwrap_or_default()
    }

    #[test]
    fn a_good_one_is_read_as_it_stands() {
        let definition = Definition::check(&good().to_string()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&definition.form_json()).unwrap(), good()["form"]);
        assert_eq!(definition.actions, "[]");
    }

    #[test]
    fn every_bound_has_two_sides() {
        let text = |length: usize| Value::from("\u{1f4ee}".repeat(length));
        let fields = |count: usize| {
            let field = |n| json!({"key": format!("k{n}"), "label": "L", "type": "text", "required": false});
            Value::from_iter((0..count).map(field))
        };
        for (path, good, bad) in [
            ("/form/title", text(120), text(121)),
            ("/form/title", text(1), text(0)),
            ("/form/title", text(1), " ".into()),
            ("/form/description", text(500), text(501)),
            ("/form/confirmationMessage", text(500), text(501)),
            ("/form/confirmationMessage", text(1), Value::Null),
            ("/form/fields", fields(1), fields(0)),
            ("/form/fields", fields(20), fields(21)),
            ("/form/fields/0/key", text(100), text(101)),
            ("/form/fields/0/key", text(1), text(0)),
            ("/form/fields/0/key", "A".into(), "b".into()),
            ("/form/fields/0/label", text(500), text(501)),
            ("/form/fields/0/type", "email".into(), "Email".into()),
            ("/form/fields/0/type", "email".into(), Value::Null),
            ("/form/fields/0/required", false.into(), "true".into()),
            ("/form/fields/4/placeholder", text(500), text(501)),
            ("/actions", json!([{}]), json!({})),
        ] {
            assert_eq!(mistakes(|v| *v.pointer_mut(path).unwrap() = good), [""; 0], "{path}");
            assert_eq!(mistakes(|v| *v.pointer_mut(path).unwrap() = bad).len(), 1, "{path}");
        }
    }

    #[test]
    fn every_mistake_is_named_with_its_path() {
        let found = mistakes(|value| {
            value["form"]["fields"][1]["key"] = "a".into();
            value["form"]["fields"][2]["type"] = "date".into();
            value["form"]["fields"][3]["x"] = 1.into();
            value["form"]["title"] = 1.into();
            value["more"] = 1.into();
            value["actions"] = Value::Null;
        });
        let expected = [
            "the definition: has no member \"more\", only form, actions",
            "form.title: has to be a string of 1 to 120 characters, not blank",
            "form.fields[1]: another field has the key \"a\"",
            "form.fields[2].type: has to be one of text, textarea, number, email, checkbox",
            "form.fields[3]: has no member \"x\", only key, label, type, required, placeholder",
            "actions: has to be a list, which may be empty",
        ];
        assert_eq!(found, expected);
        for text in ["", "{", "[]", "{}", r#"{"form":[],"actions":[]}"#] {
            assert!(!Definition::check(text).unwrap_err().is_empty(), "{text}");
        }
    }
}
