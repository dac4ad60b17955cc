//! Answers in templates, and what is asked of them in expressions, for who chooses from lists.

use letterbox_common::form::{Field, FieldType};
use serde_json::Value;

/// How an answer can be compared: a name, in words, and the operator.
pub(super) const COMPARISONS: [(&str, &str, &str); 6] = [
    ("is", "is", "=="),
    ("differs", "is not", "!="),
    ("more", "is more than", ">"),
    ("less", "is less than", "<"),
    ("given", "is given, or ticked", ""),
    ("missing", "is not given, or not ticked", "not "),
];

/// The expression that asks for an answer; otherwise why there is none.
pub(super) fn condition(field: &Field, compare: &str, than: &str) -> Result<String, &'static str> {
    let mut known = COMPARISONS.iter();
    let (.., operator) = known
        .find(|one| one.0 == compare)
        .ok_or("Choose how it is compared.")?;
    let answer = answer_of(&field.key);
    let has_value = !matches!(*operator, "" | "not ");
    if has_value == than.is_empty() {
        return Err(match has_value {
            true => "Say what the answer is compared with.",
            false => "Whether an answer is given is compared with nothing: empty that.",
        });
    }
    let choices = &field.choices;
    if has_value && !choices.is_empty() && !choices.iter().any(|choice| choice == than) {
        return Err("Compare it with one of its list.");
    }
    if !has_value {
        // Zero is an answer, too.
        return Ok(match field.kind {
            FieldType::Number => format!("{operator}({answer} is defined)"),
            _ => format!("{operator}{answer}"),
        });
    }
    let value = match field.kind {
        FieldType::Number => match than.parse::<f64>() {
            Ok(number) if number.is_finite() => number.to_string(),
            _ => return Err("Compare a number with a number, such as 2.5."),
        },
        FieldType::Checkbox => return Err("Of a tick: choose whether it is ticked."),
        _ if matches!(*operator, "==" | "!=") => Value::from(than).to_string(),
        _ => return Err("Only a number is more or less than something."),
    };
    // What was left out can't be compared.
    let compared = match field.required {
        true => answer,
        false => format!("{answer} is defined and {answer}"),
    };
    Ok(match *operator {
        "!=" => format!("not ({compared} == {value})"),
        operator => format!("{compared} {operator} {value}"),
    })
}

/// The template of an answer.
pub(super) fn value_of(key: &str) -> String {
    format!("{{{{ {} }}}}", answer_of(key))
}

/// The name of an answer in templates and expressions.
fn answer_of(key: &str) -> String {
    let is_name = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match is_name {
        true => format!("form.{key}"),
        false => format!("form[{}]", Value::from(key)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn what_an_answer_must_be_is_an_expression() {
        let read = |field| serde_json::from_value::<Field>(field).unwrap();
        let field = |kind: &str, required: bool| {
            read(json!({"key": "a", "label": "", "type": kind, "required": required}))
        };
        for (field, compare, than, expression) in [
            (
                field("text", true),
                "is",
                "x \"y\"",
                r#"form.a == "x \"y\"""#,
            ),
            (
                field("text", false),
                "differs",
                "V",
                r#"not (form.a is defined and form.a == "V")"#,
            ),
            (field("number", true), "more", "10", "form.a > 10"),
            (
                field("number", false),
                "less",
                "-2.50",
                "form.a is defined and form.a < -2.5",
            ),
            (field("checkbox", false), "given", "", "form.a"),
            (field("email", false), "missing", "", "not form.a"),
            (
                field("number", false),
                "missing",
                "",
                "not (form.a is defined)",
            ),
        ] {
            assert_eq!(condition(&field, compare, than).unwrap(), expression);
        }
        for (field, compare, than) in [
            (field("text", true), "more", "1"),
            (field("number", true), "is", "x"),
            (field("number", true), "is", "inf"),
            (field("checkbox", true), "is", "true"),
            (field("checkbox", true), "given", "true"),
            (field("text", true), "differs", ""),
            (
                Field {
                    choices: vec!["A".to_owned(), "B".to_owned()],
                    ..field("text", false)
                },
                "is",
                "a",
            ),
            (field("text", true), "of.tomorrow", "x"),
        ] {
            assert!(
                condition(&field, compare, than).is_err(),
                "{compare} {than}"
            );
        }
    }
}
