//! The parameters of a tool: an object of strings, numbers and booleans, described by a JSON
//! Schema. Arguments from a model are checked like submitted values of a form.

use std::collections::HashSet;

use letterbox_common::form::FieldType;
use serde_json::{Map, Value, json};

use crate::{
    diagnostics::{Diagnostics, Fields},
    template::TemplateContext,
};

const MAX_PARAMETERS: usize = 50;
const MAX_DESCRIPTION: usize = 1_000;
const MAX_CHOICES: usize = 100;
/// Maximum characters of an argument.
const MAX_TEXT: usize = 5_000;
const TYPES: [&str; 4] = ["string", "number", "integer", "boolean"];

#[derive(Debug, Clone, Default)]
pub(super) struct ToolParameters {
    parameters: Vec<Parameter>,
    /// The schema that is passed to a model.
    pub(super) schema: Value,
}

#[derive(Debug, Clone)]
struct Parameter {
    name: String,
    /// One of [`TYPES`].
    kind: &'static str,
    choices: Vec<Value>,
    is_required: bool,
}

/// The checked arguments of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments(pub(super) Map<String, Value>);

impl Arguments {
    /// The context of a run with these arguments.
    pub fn with(&self, context: &TemplateContext) -> TemplateContext {
        context.clone().with_args(&self.0)
    }
}

impl ToolParameters {
    pub(super) fn parse(diagnostics: &mut Diagnostics, value: Option<&Value>, path: &str) -> Self {
        let Some(mut schema) = diagnostics.fields(value.unwrap_or(&Value::Null), path) else {
            return Self::default();
        };
        if schema.get("type") != Some(&json!("object")) {
            schema.add("type", "must be \"object\"");
        }
        let given = schema.get("properties");
        let none = Map::new();
        if given.is_some_and(|given| !given.is_object()) {
            schema.add("properties", "must be an object");
        }
        let properties = given.and_then(Value::as_object).unwrap_or(&none);
        if properties.len() > MAX_PARAMETERS {
            let problem = format_args!("must have at most {MAX_PARAMETERS} members");
            schema.add("properties", problem);
        }
        let required = required(&mut schema, properties);
        let more = schema.get("additionalProperties");
        if more.is_some_and(|given| given != &json!(false)) {
            let problem = "must be false, because a model may pass only the named properties";
            schema.add("additionalProperties", problem);
        }
        schema.refuse_others();
        let parameters = properties.iter().filter_map(|(name, value)| {
            let place = schema.place(&format!("properties.{name}"));
            let fields = schema.diagnostics.fields(value, place)?;
            Parameter::parse(fields, name, required.contains(name.as_str()))
        });
        let parameters = parameters.collect();
        let mut schema = schema.members.clone();
        // Some models want all of them.
        schema.insert("additionalProperties".to_owned(), false.into());
        schema.entry("properties").or_insert_with(|| json!({}));
        let required = properties
            .keys()
            .filter(|name| required.contains(name.as_str()));
        schema.insert("required".to_owned(), required.cloned().collect());
        Self {
            parameters,
            schema: schema.into(),
        }
    }

    /// The names and types for templates.
    pub(super) fn variables(&self) -> Vec<(String, FieldType)> {
        let kind = |parameter: &Parameter| match parameter.kind {
            "string" => FieldType::Text,
            "boolean" => FieldType::Checkbox,
            _ => FieldType::Number,
        };
        let parameters = self.parameters.iter();
        parameters
            .map(|parameter| (parameter.name.clone(), kind(parameter)))
            .collect()
    }

    /// Checks the JSON text of the arguments from a model. An error is worded for the model.
    pub(super) fn check(&self, text: &str) -> Result<Arguments, String> {
        // As some models say that there are none.
        let text = Some(text.trim()).filter(|text| !["", "null"].contains(text));
        let given: Value = serde_json::from_str(text.unwrap_or("{}"))
            .map_err(|error| format!("the arguments are not JSON: {error}"))?;
        let Value::Object(mut given) = given else {
            return Err("the arguments must be an object".to_owned());
        };
        for name in given.keys() {
            if !self
                .parameters
                .iter()
                .any(|parameter| parameter.name == *name)
            {
                let name: String = name.chars().take(100).collect();
                return Err(format!("there is no parameter {name:?}"));
            }
        }
        for parameter in &self.parameters {
            match given.get_mut(&parameter.name) {
                None if parameter.is_required => {
                    return Err(format!("{:?} is required", parameter.name));
                }
                None => {}
                Some(value) => {
                    parameter.make_whole(value);
                    parameter.check(value)?;
                }
            }
        }
        Ok(Arguments(given))
    }
}

/// Parses the names of required properties.
fn required<'v>(schema: &mut Fields<'_, 'v>, properties: &Map<String, Value>) -> HashSet<&'v str> {
    let Some(value) = schema.get("required") else {
        return HashSet::new();
    };
    let names = value
        .as_array()
        .map(|names| names.iter().map(Value::as_str));
    let Some(names) = names.and_then(|names| names.collect::<Option<HashSet<_>>>()) else {
        schema.add("required", "must be a list of names");
        return HashSet::new();
    };
    for name in names.iter().filter(|name| !properties.contains_key(**name)) {
        schema.add("required", format_args!("there is no property {name:?}"));
    }
    names
}

impl Parameter {
    fn parse(mut fields: Fields<'_, '_>, name: &str, is_required: bool) -> Option<Self> {
        if !is_name(name) {
            let problem = "the name must consist of letters, digits and _, with a letter first";
            fields.diagnostics.add(&fields.path, problem);
        }
        let kind = fields.one_of("type", &TYPES, |kind| kind);
        fields.optional_text("description", MAX_DESCRIPTION);
        let choices = fields.get("enum").map(Value::as_array);
        fields.refuse_others();
        let kind = *kind?;
        let choices = match choices {
            None => Vec::new(),
            Some(Some(choices)) if (1..=MAX_CHOICES).contains(&choices.len()) => choices.clone(),
            Some(_) => {
                let problem = format_args!("must be a list of 1 to {MAX_CHOICES} values");
                fields.add("enum", problem);
                Vec::new()
            }
        };
        if choices.iter().any(|choice| !is_of(choice, kind)) {
            fields.add("enum", format_args!("must be values of the type {kind}"));
        }
        Some(Self {
            name: name.to_owned(),
            kind,
            choices,
            is_required,
        })
    }

    /// Makes an integer of `5.0`, as some models write it.
    fn make_whole(&self, value: &mut Value) {
        let double = value
            .as_f64()
            .filter(|_| value.is_f64() && self.kind == "integer");
        // Up to here a double is exact.
        let is_whole = |double: &f64| double.fract() == 0.0 && double.abs() < 9e15;
        if let Some(whole) = double.filter(is_whole) {
            *value = (whole as i64).into();
        }
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        let Self { name, kind, .. } = self;
        if !is_of(value, kind) {
            return Err(format!("{name:?} must be of the type {kind}"));
        }
        let text = value.as_str();
        if text.is_some_and(|text| text.chars().count() > MAX_TEXT) {
            return Err(format!("{name:?} must have at most {MAX_TEXT} characters"));
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            let choices = Value::from(self.choices.clone());
            return Err(format!("{name:?} must be one of {choices}"));
        }
        Ok(())
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => value.is_number(),
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::texts;

    fn parse(schema: &Value) -> Result<ToolParameters, Vec<String>> {
        let mut diagnostics = Diagnostics::default();
        let parameters = ToolParameters::parse(&mut diagnostics, Some(schema), "p");
        match texts(diagnostics.into_list()) {
            problems if problems.is_empty() => Ok(parameters),
            problems => Err(problems),
        }
    }

    #[test]
    fn arguments_fit_or_the_model_is_told_why_not() {
        let parameters = parse(&json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Whom to look for"},
                "size": {"type": "string", "enum": ["s", "m"]},
                "count": {"type": "integer"},
                "share": {"type": "number"},
                "urgent": {"type": "boolean"},
            },
            "required": ["name"],
        }))
        .unwrap();
        let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(MAX_TEXT + 1));
        let all = r#"{"name":"","size":"m","count":-3,"share":0.5,"urgent":false}"#;
        let no_string = Some("\"name\" must be of the type string");
        let no_integer = Some("\"count\" must be of the type integer");
        let no_boolean = Some("\"urgent\" must be of the type boolean");
        let no_choice = Some("\"size\" must be one of [\"s\",\"m\"]");
        let no_object = Some("the arguments must be an object");
        for (given, refused) in [
            (r#"{"name":"Ada"}"#, None),
            (all, None),
            (r#"{"name":"a\u0000b/../c"}"#, None),
            ("{}", Some("\"name\" is required")),
            (r#"{"name":null}"#, no_string),
            (r#"{"name":["Ada"]}"#, no_string),
            (
                r#"{"name":"Ada","host":"evil"}"#,
                Some("there is no parameter \"host\""),
            ),
            (r#"{"name":"Ada","size":"l"}"#, no_choice),
            (r#"{"name":"Ada","count":1.5}"#, no_integer),
            (r#"{"name":"Ada","count":"1"}"#, no_integer),
            (r#"{"name":"Ada","urgent":0}"#, no_boolean),
            ("[]", no_object),
            ("\"Ada\"", no_object),
            (&long, Some("\"name\" must have at most 5000 characters")),
        ] {
            let refusal = parameters.check(given).err();
            assert_eq!(refusal.as_deref(), refused, "{given:.60}");
        }
        for none in ["", " ", "null", "{}"] {
            let refusal = parameters.check(none).unwrap_err();
            assert_eq!(refusal, "\"name\" is required", "{none:?}");
        }
        let whole = parameters.check(r#"{"name":"Ada","count":5.0}"#).unwrap();
        assert_eq!(whole.0["count"].to_string(), "5");
        for broken in [
            "{",
            "{\"name\":\"Ada\"} x",
            "{\"share\":1e400,\"name\":\"\"}",
        ] {
            let refusal = parameters.check(broken).unwrap_err();
            assert!(
                refusal.starts_with("the arguments are not JSON"),
                "{refusal}"
            );
        }
        // The schema for the model says the same.
        let schema = parameters.schema;
        assert_eq!(
            schema["properties"]["name"]["description"],
            "Whom to look for"
        );
        assert_eq!(schema["additionalProperties"], false);
        assert!(parse(&schema).is_ok());
    }

    #[test]
    fn schemas_are_checked() {
        let of = |property: Value| json!({"type": "object", "properties": {"a": property}});
        for (schema, problem) in [
            (json!(null), "p: must be an object"),
            (json!({}), "p.type: must be \"object\""),
            (
                json!({"type": "object", "additionalProperties": true}),
                "p.additionalProperties: must be false, because a model may pass only the named \
                 properties",
            ),
            (
                json!({"type": "object", "required": ["b"]}),
                "p.required: there is no property \"b\"",
            ),
            (
                json!({"type": "object", "required": "b"}),
                "p.required: must be a list of names",
            ),
            (
                of(json!({"type": "array"})),
                "p.properties.a.type: must be one of string, number, integer, boolean",
            ),
            (
                of(json!({"type": "string", "pattern": "x"})),
                "p.properties.a: unknown member \"pattern\", expected type, description, enum",
            ),
            (
                of(json!({"type": "string", "enum": [1]})),
                "p.properties.a.enum: must be values of the type string",
            ),
            (
                json!({"type": "object", "properties": {"a-b": {"type": "string"}}}),
                "p.properties.a-b: the name must consist of letters, digits and _, with a letter \
                 first",
            ),
        ] {
            assert_eq!(parse(&schema).unwrap_err(), [problem], "{schema}");
        }
    }
}
