//! The form of a definition.

use std::{collections::HashSet, ops::RangeInclusive};

use letterbox_common::form::{Field, FieldType, Form};
use serde_json::Value;

use crate::diagnostics::{Diagnostics, Fields};

const MAX_TITLE: usize = 120;
const MAX_DESCRIPTION: usize = 500;
/// Maximum characters of texts without their own limit.
const MAX_TEXT: usize = 500;
const MAX_KEY: usize = 100;
const FIELDS: RangeInclusive<usize> = 1..=20;
const CHOICES: RangeInclusive<usize> = 2..=50;

pub(crate) fn check(diagnostics: &mut Diagnostics, value: Option<&Value>) -> Form {
    if value.is_none() {
        diagnostics.add("form", "is missing");
    }
    let Some(mut form) = value.and_then(|value| diagnostics.fields(value, "form")) else {
        return Form::default();
    };
    let parsed = Form {
        title: form.text("title", MAX_TITLE),
        description: form.optional_text("description", MAX_DESCRIPTION),
        confirmation_message: form.optional_text("confirmationMessage", MAX_TEXT),
        fields: fields(&mut form),
    };
    form.refuse_others();
    parsed
}

fn fields(form: &mut Fields<'_, '_>) -> Vec<Field> {
    let Some(values) = form.get("fields").and_then(Value::as_array) else {
        form.add("fields", "must be a list of 1 to 20 fields");
        return Vec::new();
    };
    if !FIELDS.contains(&values.len()) {
        let problem = format_args!("must have 1 to 20 fields, not {}", values.len());
        form.add("fields", problem);
    }
    let mut keys = HashSet::new();
    let values = values.iter().enumerate();
    let fields = values.filter_map(|(index, value)| {
        let path = form.place(&format!("fields[{index}]"));
        let mut members = form.diagnostics.fields(value, path)?;
        let field = field(&mut members);
        if !field.key.is_empty() && !keys.insert(field.key.clone()) {
            let problem = format_args!("another field has the key {:?}", field.key);
            members.diagnostics.add(&members.path, problem);
        }
        Some(field)
    });
    fields.collect()
}

fn field(members: &mut Fields<'_, '_>) -> Field {
    let key = members.text("key", MAX_KEY);
    let label = members.text("label", MAX_TEXT);
    let kind = members.one_of("type", FieldType::ALL, |kind| kind.as_str());
    let field = Field {
        key,
        label,
        kind: kind.copied().unwrap_or(FieldType::Text),
        required: members.boolean("required"),
        placeholder: members.optional_text("placeholder", MAX_TEXT),
        choices: choices(members, kind),
    };
    members.refuse_others();
    field
}

fn choices(members: &mut Fields<'_, '_>, kind: Option<&FieldType>) -> Vec<String> {
    let Some(value) = members.get("choices") else {
        return Vec::new();
    };
    let texts = value.as_array().map(|all| all.iter().map(Value::as_str));
    let choices: Option<Vec<&str>> = texts.and_then(Iterator::collect);
    let choices = choices.unwrap_or_default();
    // One line, as a list shows it: other spaces would look like one, or like none.
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '\u{feff}';
    let is_choice = |text: &&str| {
        let mut words = text.split(' ');
        words.all(|word| !word.is_empty() && word.chars().all(is_plain))
            && text.chars().count() <= MAX_TEXT
    };
    let distinct = choices.iter().collect::<HashSet<_>>().len();
    if !CHOICES.contains(&choices.len())
        || distinct != choices.len()
        || !choices.iter().all(is_choice)
    {
        let rule = "must be a list of 2 to 50 different strings of 1 to 500 characters, whose \
                    words are parted by single spaces";
        members.add("choices", rule);
    } else if kind.is_some_and(|kind| *kind != FieldType::Text) {
        members.add("choices", "only a field of type text has some");
    }
    choices.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Definition;
    use crate::diagnostics::texts;

    fn good() -> Value {
        let field = |key: &str, kind: &str| {
            json!({"key": key, "label": "L", "type": kind,
            "required": true})
        };
        let mut choice = field("a", "text");
        choice["choices"] = json!(["x", "y"]);
        json!({
            "$schema": "S",
            "form": {
                "title": "T", "description": "D", "confirmationMessage": "C",
                "fields": [choice, field("b", "textarea"), field("c", "number"),
                    field("d", "email"),
                           {"key": "e", "label": "L", "type": "checkbox", "required": false,
                               "placeholder": "P"}],
            },
            "actions": [],
        })
    }

    fn problems(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut value = good();
        change(&mut value);
        Definition::check(&value.to_string())
            .err()
            .map(texts)
            .unwrap_or_default()
    }

    #[test]
    fn a_good_definition_keeps_its_form_and_actions() {
        let definition = Definition::check(&good().to_string()).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&definition.form_json()).unwrap(),
            good()["form"]
        );
        assert_eq!(definition.actions_json(), "[]");
    }

    #[test]
    fn every_bound_holds_on_both_sides() {
        let text = |length: usize| Value::from("\u{1f4ee}".repeat(length));
        let fields = |count: usize| {
            let field = |n| {
                json!({"key": format!("k{n}"), "label": "L", "type": "text",
                "required": false})
            };
            Value::from_iter((0..count).map(field))
        };
        let list = |count: usize| Value::from_iter((0..count).map(|n| n.to_string()));
        let choices = "/form/fields/0/choices";
        let good_choices = || json!(["a", "b"]);
        for (path, good, bad) in [
            ("/form/title", text(120), text(121)),
            ("/form/title", text(1), text(0)),
            ("/form/title", text(1), " ".into()),
            ("/form/title", text(1), "\u{feff} ".into()),
            ("/form/description", text(500), text(501)),
            ("/form/confirmationMessage", text(500), text(501)),
            ("/form/confirmationMessage", text(1), Value::Null),
            ("/form/fields", fields(1), fields(0)),
            ("/form/fields", fields(20), fields(21)),
            ("/form/fields/0/key", text(100), text(101)),
            ("/form/fields/0/key", text(1), text(0)),
            ("/form/fields/0/key", "A".into(), "b".into()),
            ("/form/fields/0/label", text(500), text(501)),
            ("/form/fields/1/type", "email".into(), "Email".into()),
            ("/form/fields/1/type", "email".into(), Value::Null),
            ("/form/fields/0/required", false.into(), "true".into()),
            ("/form/fields/4/placeholder", text(500), text(501)),
            (choices, list(2), list(1)),
            (choices, list(50), list(51)),
            (choices, json!(["a", "A"]), json!(["a", "a"])),
            (choices, json!(["a", "b c"]), json!(["a", "b "])),
            (choices, good_choices(), json!(["a", ""])),
            (choices, good_choices(), json!(["a", 1])),
            (choices, good_choices(), json!("a")),
            (choices, good_choices(), Value::Null),
            (choices, good_choices(), json!(["a", "b\nc"])),
            (choices, json!(["a", "b c"]), json!(["a", "b  c"])),
            (choices, good_choices(), json!(["a", "b\u{a0}c"])),
            ("/form/fields/0/type", "text".into(), "textarea".into()),
            ("/actions", json!([]), json!({})),
            ("/$schema", "x".into(), 5.into()),
            ("/$schema", "x".into(), Value::Null),
        ] {
            assert_eq!(
                problems(|v| *v.pointer_mut(path).unwrap() = good),
                [""; 0],
                "{path}"
            );
            assert_eq!(
                problems(|v| *v.pointer_mut(path).unwrap() = bad).len(),
                1,
                "{path}"
            );
        }
    }

    #[test]
    fn every_problem_is_named_with_its_path() {
        let found = problems(|value| {
            value["form"]["fields"][1]["key"] = "a".into();
            value["form"]["fields"][2]["type"] = "date".into();
            value["form"]["fields"][3]["x"] = 1.into();
            value["form"]["title"] = 1.into();
            value["more"] = 1.into();
            value["actions"] = Value::Null;
        });
        let expected = [
            "the definition: unknown member \"more\", expected form, actions, on_failure, \
                page, spam_defence",
            "form.title: must be a string of 1 to 120 characters, not blank",
            "form.fields[1]: another field has the key \"a\"",
            "form.fields[2].type: must be one of text, textarea, number, email, checkbox",
            "form.fields[3]: unknown member \"x\", expected key, label, type, required, \
                placeholder, choices",
            "actions: must be a list",
        ];
        assert_eq!(found, expected);
        for text in ["", "{", "[]", "{}", r#"{"form":[],"actions":[]}"#] {
            assert!(!Definition::check(text).unwrap_err().is_empty(), "{text}");
        }
    }

    /// Problems of a later action name its place in the list, whatever is wrong with an earlier
    /// one.
    #[test]
    fn a_malformed_action_moves_no_other() {
        let send = |path: &str| {
            json!({"id": path, "type": "http.request", "account": "a",
                "method": "GET", "path": path})
        };
        let mut bad = send("/0");
        bad["type"] = "nothing".into();
        let found = problems(|value| {
            value["actions"] = json!([bad, send("/{{ form.nobody }}")]);
        });
        assert!(found[0].starts_with("actions[0].type: "), "{found:?}");
        assert!(found[1].starts_with("actions[1].path: "), "{found:?}");
    }

    /// A definition whose runs could store more than a run may is warned of.
    #[test]
    fn runs_that_could_store_too_much_are_warned_of() {
        let warnings = |requests: usize, insertions: usize, max_answer: usize| {
            let body = "{{ form.a }}".repeat(insertions);
            let send = |n: usize| {
                json!({"id": n.to_string(), "type": "http.request", "account": "a",
                    "method": "POST", "path": "/", "body": {"text": body},
                    "max_answer": max_answer})
            };
            let mut value = good();
            value["actions"] = (0..requests).map(send).collect();
            let definition = Definition::check(&value.to_string()).unwrap();
            definition.warnings()
        };
        assert_eq!(warnings(20, 5, 65_536), [""; 0]);
        assert!(warnings(60, 5, 65_536)[0].contains("more than 16 MiB"));
        assert_eq!(warnings(12, 0, 1 << 20), [""; 0]);
        assert!(warnings(17, 0, 1 << 20)[0].contains("more than 16 MiB"));
    }
}
