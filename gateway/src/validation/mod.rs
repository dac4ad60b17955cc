//! Validates payloads against forms. Pure: the result depends on these two alone.
//!
//! Fields are checked in the order of the form, then undeclared members. The accepted values are
//! serialized anew, so that nothing passes unchecked; numbers keep their digits.

mod email;

use bytes::Bytes;
use letterbox_common::{
    form::{Field, FieldType, Form, ascii_address},
    json_object,
};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Maximum characters of a name in a refusal.
const MAX_SHOWN: usize = 100;

/// An invalid field and its problem. Quotes no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Field {}: {problem}", shown(.key))]
pub struct Invalid {
    key: String,
    problem: FieldProblem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum FieldProblem {
    #[error("this field is required")]
    Missing,
    #[error("this field must not be blank")]
    Blank,
    #[error("this box must be ticked")]
    NotTicked,
    #[error("the value must be a string")]
    NotText,
    #[error("the value must be a finite number")]
    NotNumber,
    #[error("the value must be true or false")]
    NotBoolean,
    #[error("the value must have at most {0} characters")]
    TooLong(usize),
    #[error("the value must be one of the field's choices")]
    NotChoice,
    #[error("the value must be a valid e-mail address: {0}")]
    NotEmail(&'static str),
    #[error("the form has no such field")]
    Undeclared,
}

/// A name in a message: truncated, and with control characters escaped.
fn shown(name: &str) -> String {
    let cut: String = name.chars().take(MAX_SHOWN).collect();
    format!("{cut:?}")
}

#[derive(Serialize)]
#[serde(untagged)]
enum FieldValue<'a> {
    Text(String),
    /// A number, or a boolean.
    Given(&'a RawValue),
}

/// Checks the members of `payload`, an object, against `form`. Returns the accepted members as JSON
/// text. Of duplicate names the last wins.
///
/// # Errors
/// Names the first invalid field.
pub fn validate(form: &Form, payload: &RawValue) -> Result<Bytes, Invalid> {
    let members = json_object::all(payload.get()).unwrap_or_default();
    let mut valid = Vec::with_capacity(form.fields.len());
    for field in &form.fields {
        let mut last_first = members.iter().rev();
        let given = last_first.find(|(name, _)| name.as_ref() == Some(&field.key));
        let given = given.map(|(_, value)| *value);
        let checked = check(field, given).map_err(|problem| Invalid {
            key: field.key.clone(),
            problem,
        })?;
        valid.extend(checked.map(|value| (field.key.as_str(), value)));
    }
    for (name, _) in members {
        let mut fields = form.fields.iter();
        if !fields.any(|field| name.as_ref() == Some(&field.key)) {
            // A name that is not Unicode text is shown as a replacement character.
            return Err(Invalid {
                key: name.unwrap_or_else(|| "\u{fffd}".into()),
                problem: FieldProblem::Undeclared,
            });
        }
    }
    Ok(write(&valid))
}

/// Checks the value of one field; `None` if an optional field has none.
fn check<'a>(
    field: &Field,
    given: Option<&'a RawValue>,
) -> Result<Option<FieldValue<'a>>, FieldProblem> {
    let Some(given) = given else {
        return if field.required {
            Err(FieldProblem::Missing)
        } else {
            Ok(None)
        };
    };
    let value = match field.kind {
        FieldType::Text => {
            let text = text(given, field.kind)?;
            if field.required && text.chars().all(char::is_whitespace) {
                return Err(FieldProblem::Blank);
            }
            // An empty one is none.
            if !field.choices.is_empty() && !text.is_empty() && !field.choices.contains(&text) {
                return Err(FieldProblem::NotChoice);
            }
            FieldValue::Text(text)
        }
        FieldType::Textarea => FieldValue::Text(text(given, field.kind)?),
        FieldType::Email => {
            let text = text(given, field.kind)?;
            match email::problem(&text) {
                Some(problem) => return Err(FieldProblem::NotEmail(problem)),
                None => FieldValue::Text(text),
            }
        }
        FieldType::Number => FieldValue::Given(number(given)?),
        FieldType::Checkbox => match given.get() {
            "false" if field.required => return Err(FieldProblem::NotTicked),
            "true" | "false" => FieldValue::Given(given),
            _ => return Err(FieldProblem::NotBoolean),
        },
    };
    Ok(Some(value))
}

/// Reads a string of Unicode text, which excludes lone surrogates, within the maximum length of its
/// type.
fn text(given: &RawValue, kind: FieldType) -> Result<String, FieldProblem> {
    let text: String = serde_json::from_str(given.get()).map_err(|_| FieldProblem::NotText)?;
    // As a browser sends it, so that it is the same one wherever it comes from.
    let text = match kind {
        FieldType::Email => ascii_address(&text).into_owned(),
        _ => text,
    };
    match kind.max_length() {
        Some(max) if text.chars().count() > max => Err(FieldProblem::TooLong(max)),
        _ => Ok(text),
    }
}

/// Checks that a value is a number that is finite as a double.
fn number(given: &RawValue) -> Result<&RawValue, FieldProblem> {
    let text = given.get();
    let starts_like_one = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    let is_finite = text.parse().is_ok_and(f64::is_finite);
    let is_number = starts_like_one && is_finite;
    is_number.then_some(given).ok_or(FieldProblem::NotNumber)
}

fn write(members: &[(&str, FieldValue<'_>)]) -> Bytes {
    let mut json = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut json);
    // Texts, numbers and booleans under text names always serialize.
    let written = serializer.collect_map(members.iter().map(|(name, value)| (name, value)));
    debug_assert!(written.is_ok());
    json.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, FieldType, bool)]) -> Form {
        let field = |(key, kind, required): &(&str, FieldType, bool)| Field {
            key: (*key).to_owned(),
            label: "Label".into(),
            kind: *kind,
            required: *required,
            placeholder: None,
            choices: Vec::new(),
        };
        Form {
            title: "Title".into(),
            description: None,
            confirmation_message: None,
            fields: fields.iter().map(field).collect(),
        }
    }

    fn with(form: &Form, payload: &str) -> Result<String, Invalid> {
        let payload = RawValue::from_string(payload.to_owned()).unwrap();
        validate(form, &payload).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// Validates one value in a form with one field.
    fn one(kind: FieldType, required: bool, value: &str) -> Result<(), FieldProblem> {
        let payload = format!(r#"{{"k":{value}}}"#);
        match with(&form(&[("k", kind, required)]), &payload) {
            Ok(written) => {
                let members = json_object::all(&written).unwrap();
                assert_eq!(members.len(), 1, "{written}");
                Ok(())
            }
            Err(invalid) => {
                assert_eq!(invalid.key, "k");
                Err(invalid.problem)
            }
        }
    }

    fn string(characters: usize, character: char) -> String {
        serde_json::to_string(&character.to_string().repeat(characters)).unwrap()
    }

    #[test]
    fn every_rule_on_both_sides_of_its_bound() {
        use FieldProblem::*;
        use FieldType::*;
        let mail = |length: usize| {
            let labels = ["d".repeat(63), "d".repeat(63), "d".repeat(length - 2 - 128)].join(".");
            format!("\"a@{labels}\"")
        };
        let above = "1.7976931348623159e308";
        let surrogates = format!("\"{}\"", r"\ud83d\udcee".repeat(500));
        let cases: Vec<(FieldType, bool, String, Result<(), FieldProblem>)> = vec![
            // Text: blank only where it is not required, 500 characters whatever their size.
            (Text, true, r#""a""#.into(), Ok(())),
            (Text, true, r#""""#.into(), Err(Blank)),
            (Text, true, r#"" \t\n\u00a0\u2003""#.into(), Err(Blank)),
            (Text, true, r#"" a ""#.into(), Ok(())),
            (Text, true, r#""\u0000""#.into(), Ok(())),
            (Text, false, r#""""#.into(), Ok(())),
            (Text, false, r#""  ""#.into(), Ok(())),
            (Text, true, string(500, 'a'), Ok(())),
            (Text, true, string(501, 'a'), Err(TooLong(500))),
            (Text, true, string(500, '\u{1f4ee}'), Ok(())),
            (Text, true, string(501, '\u{1f4ee}'), Err(TooLong(500))),
            (Text, true, surrogates, Ok(())),
            (Text, true, r#""\ud83d""#.into(), Err(NotText)),
            (Text, true, "1".into(), Err(NotText)),
            (Text, true, "true".into(), Err(NotText)),
            (Text, false, "null".into(), Err(NotText)),
            (Text, false, r#"["a"]"#.into(), Err(NotText)),
            (Text, false, r#"{"a":"a"}"#.into(), Err(NotText)),
            // Textarea
            (Textarea, true, r#""""#.into(), Ok(())),
            (Textarea, true, string(5_000, 'ä'), Ok(())),
            (Textarea, true, string(5_001, 'ä'), Err(TooLong(5_000))),
            (Textarea, false, "null".into(), Err(NotText)),
            (Textarea, false, "0".into(), Err(NotText)),
            // E-mail
            (Email, true, r#""a@b""#.into(), Ok(())),
            (Email, true, r#""a""#.into(), Err(NotEmail("it has no @"))),
            (Email, true, r#"" a@b\n""#.into(), Ok(())),
            (Email, false, r#""""#.into(), Err(NotEmail("it has no @"))),
            (
                Email,
                true,
                mail(200).replace('d', "e"),
                Err(NotEmail("behind the @ there is no domain")),
            ),
            (Email, false, "null".into(), Err(NotText)),
            (Email, false, "[]".into(), Err(NotText)),
            // Number: whatever a double can hold.
            (Number, true, "0".into(), Ok(())),
            (Number, true, "-0.5e-3".into(), Ok(())),
            (Number, true, "1.7976931348623157e308".into(), Ok(())),
            (Number, true, above.into(), Err(NotNumber)),
            (Number, true, "1e400".into(), Err(NotNumber)),
            (Number, true, "-1e400".into(), Err(NotNumber)),
            (Number, true, "1e-400".into(), Ok(())),
            (Number, true, r#""1""#.into(), Err(NotNumber)),
            (Number, true, "true".into(), Err(NotNumber)),
            (Number, false, "null".into(), Err(NotNumber)),
            (Number, false, "[1]".into(), Err(NotNumber)),
            (Number, false, "{}".into(), Err(NotNumber)),
            // Checkbox
            (Checkbox, true, "true".into(), Ok(())),
            (Checkbox, true, "false".into(), Err(NotTicked)),
            (Checkbox, false, "false".into(), Ok(())),
            (Checkbox, false, "true".into(), Ok(())),
            (Checkbox, true, r#""true""#.into(), Err(NotBoolean)),
            (Checkbox, true, "1".into(), Err(NotBoolean)),
            (Checkbox, false, "null".into(), Err(NotBoolean)),
            (Checkbox, false, "[true]".into(), Err(NotBoolean)),
        ];
        for (kind, required, value, expected) in cases {
            let shown: String = value.chars().take(60).collect();
            let found = one(kind, required, &value);
            assert_eq!(found, expected, "{kind:?} required={required} {shown}");
        }
    }

    #[test]
    fn an_email_address_is_as_browsers_send_it() {
        let email = form(&[("k", FieldType::Email, true)]);
        let sent = with(&email, r#"{"k":" max@m\u00fcller.de "}"#).unwrap();
        assert_eq!(sent, r#"{"k":"max@xn--mller-kva.de"}"#);
        let refused = with(&email, r#"{"k":"jos\u00e9@example.com"}"#).unwrap_err();
        assert!(
            refused.to_string().contains("before the @ only a-z"),
            "{refused}"
        );
    }

    #[test]
    fn an_email_address_has_at_most_200_characters() {
        let of_length = |length: usize| {
            let address = format!("{}@b.example", "a".repeat(length - "@b.example".len()));
            one(FieldType::Email, true, &format!("\"{address}\""))
        };
        assert_eq!(of_length(200), Ok(()));
        assert_eq!(of_length(201), Err(FieldProblem::TooLong(200)));
    }

    #[test]
    fn required_and_undeclared_fields() {
        for kind in FieldType::ALL.iter().copied() {
            let missing = with(&form(&[("k", kind, true)]), "{}").unwrap_err();
            assert_eq!(missing.problem, FieldProblem::Missing);
            assert_eq!(with(&form(&[("k", kind, false)]), "{}").unwrap(), "{}");
        }
        let form = form(&[
            ("a", FieldType::Text, false),
            ("b", FieldType::Number, true),
        ]);
        let message = |payload: &str| with(&form, payload).unwrap_err().to_string();
        // The form's fields come first.
        let required = r#"Field "b": this field is required"#;
        assert_eq!(message(r#"{"x":1}"#), required);
        for (payload, shown) in [
            (r#"{"b":1,"x":1}"#, "x"),
            (r#"{"b":1,"\ud800":1}"#, "\u{fffd}"),
            (r#"{"b":1,"B":1}"#, "B"),
            (r#"{"b":1,"\u001b[2J":1}"#, r"\u{1b}[2J"),
        ] {
            let expected = format!("Field \"{shown}\": the form has no such field");
            assert_eq!(message(payload), expected);
        }
        assert!(message(&format!(r#"{{"b":1,"{}":1}}"#, "x".repeat(60_000))).len() < 200);
    }

    #[test]
    fn only_what_was_checked_is_passed_on() {
        let form = form(&[
            ("b", FieldType::Number, true),
            ("a", FieldType::Text, true),
            ("c", FieldType::Checkbox, false),
        ]);
        let written = with(&form, r#"{"a":"x\u0000\n\u00e4","b":-1.50e+2,"c":false}"#).unwrap();
        assert_eq!(written, r#"{"b":-1.50e+2,"a":"x\u0000\nä","c":false}"#);
        let twice = r#"{"a":1,"b":"x","\u0061":"last","b":2}"#;
        let written = with(&form, twice).unwrap();
        assert_eq!(written, r#"{"b":2,"a":"last"}"#, "the last one counts");
    }
}
