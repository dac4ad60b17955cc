//! The form of a definition.

use std::collections::HashSet;

use letterbox_common::form::{Field, FieldType, Form};
use serde_json::Value;

use super::Mistakes;

const TITLE: usize = 120;
const DESCRIPTION: usize = 500;
/// Most characters of what has no limit of its own, so that a form stays one that can be sent and
/// shown.
const TEXT: usize = 500;
const KEY: usize = 100;
const FIELDS: std::ops::RangeInclusive<usize> = 1..=20;

/// Checks `form`.
pub fn check(mistakes: &mut Mistakes, value: Option<&Value>) -> Form {
    let known = ["title", "description", "confirmationMessage", "fields"];
    let members = value
        .map(|value| mistakes.object(value, "form", &known))
        .unwrap_or_else(|| {
            mistakes.add("form", "is missing");
            None
        });
    let Some(members) = members else {
        return Form {
            title: String::new(),
            description: None,
            confirmation_message: None,
            fields: Vec::new(),
        };
    };
    Form {
        title: mistakes.text(members, "form", "title", TITLE),
        description: mistakes.optional_text(members, "form", "description", DESCRIPTION),
        confirmation_message: mistakes.optional_text(members, "form", "confirmationMessage", TEXT),
        fields: fields(mistakes, members.get("fields")),
    }
}

fn fields(mistakes: &mut Mistakes, value: Option<&Value>) -> Vec<Field> {
    let Some(values) = value.and_then(Value::as_array) else {
        mistakes.add("form.fields", "has to be a list of 1 to 20 fields");
        return Vec::new();
    };
    if !FIELDS.contains(&values.len()) {
        mistakes.add(
            "form.fields",
            format_args!("has to have 1 to 20 fields, not {}", values.len()),
        );
    }
    let mut keys = HashSet::new();
    let mut fields = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let path = format!("form.fields[{index}]");
        let known = ["key", "label", "type", "required", "placeholder"];
        let Some(members) = mistakes.object(value, &path, &known) else {
            continue;
        };
        let field = Field {
            key: mistakes.text(members, &path, "key", KEY),
            label: mistakes.text(members, &path, "label", TEXT),
            kind: mistakes
                .one_of(
                    members.get("type"),
                    &format!("{path}.type"),
                    &FieldType::ALL,
                )
                .unwrap_or(FieldType::Text),
            required: mistakes.boolean(members.get("required"), &format!("{path}.required")),
            placeholder: mistakes.optional_text(members, &path, "placeholder", TEXT),
        };
        if !field.key.is_empty() && !keys.insert(field.key.clone()) {
            mistakes.add(
                &path,
                format_args!("another field has the key {:?}", field.key),
            );
        }
        fields.push(field);
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Definition;

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
        Definition::check(&value.to_string())
            .err()
            .unwrap_or_default()
    }

    #[test]
    fn a_good_one_is_read_as_it_stands() {
        let definition = Definition::check(&good().to_string()).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&definition.form_json()).unwrap(),
            good()["form"]
        );
        assert_eq!(definition.actions_json(), "[]");
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
            ("/actions", json!([]), json!({})),
        ] {
            assert_eq!(
                mistakes(|v| *v.pointer_mut(path).unwrap() = good),
                [""; 0],
                "{path}"
            );
            assert_eq!(
                mistakes(|v| *v.pointer_mut(path).unwrap() = bad).len(),
                1,
                "{path}"
            );
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
            "actions: has to be a list",
        ];
        assert_eq!(found, expected);
        for text in ["", "{", "[]", "{}", r#"{"form":[],"actions":[]}"#] {
            assert!(!Definition::check(text).unwrap_err().is_empty(), "{text}");
        }
    }
}
