//! Requests to an OpenAI-compatible chat completions endpoint, and the part of its answers that is
//! used.

use serde_json::{Map, Value};
use url::Url;

use super::{
    MAX_ACCOUNT,
    outgoing::{BodyType, Request, join_path},
};
use crate::{
    diagnostics::Fields,
    json::{self, MAX_ANSWER},
    template::{Escape, RenderError, Renderer, Template},
};

/// Maximum characters of a model's name.
const MAX_MODEL: usize = 200;
/// Maximum number of parameters, and bytes of their JSON text.
const MAX_PARAMETERS: usize = 20;
const MAX_PARAMETERS_TEXT: usize = 4_096;
/// What Letterbox sets itself, and what would bring another answer than it reads.
const RESERVED: [&str; 7] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "functions",
    "stream",
    "n",
];
pub(super) const NOT_UNDERSTOOD: &str = "the model's answer could not be understood";
const PATH: &str = "/chat/completions";

/// A model of an account. It is sent no parameter that its owner has not set: each is refused by
/// some model.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) account: String,
    name: String,
    parameters: Map<String, Value>,
}

impl Model {
    /// Parses the members `account`, `model` and `parameters`.
    pub(super) fn parse(fields: &mut Fields<'_, '_>) -> Self {
        Self {
            account: fields.text("account", MAX_ACCOUNT),
            name: fields.text("model", MAX_MODEL),
            parameters: parameters(fields),
        }
    }

    /// A request with these members to the endpoint below the account's base URL.
    pub(super) fn request(
        &self,
        base_url: &Url,
        members: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Result<Request, RenderError> {
        let mut body = self.parameters.clone();
        let model = ("model", self.name.as_str().into());
        let members = members.into_iter().chain([model]);
        body.extend(members.map(|(name, value)| (name.to_owned(), value)));
        Ok(Request {
            method: "POST".into(),
            url: join_path(base_url, PATH)?.into(),
            headers: Vec::new(),
            body: Some(Value::from(body).to_string()),
            body_type: BodyType::Json,
        })
    }
}

fn parameters(fields: &mut Fields<'_, '_>) -> Map<String, Value> {
    const NAME: &str = "parameters";
    let Some(given) = fields.get(NAME) else {
        return Map::new();
    };
    let place = fields.place(NAME);
    let Some(object) = fields.diagnostics.fields(given, &*place) else {
        return Map::new();
    };
    let given = object.members;
    let text = Value::from(given.clone()).to_string();
    if given.len() > MAX_PARAMETERS || text.len() > MAX_PARAMETERS_TEXT {
        let problem = format_args!(
            "must have at most {MAX_PARAMETERS} members and {MAX_PARAMETERS_TEXT} bytes"
        );
        fields.add(NAME, problem);
    }
    for name in RESERVED.iter().filter(|name| given.contains_key(**name)) {
        fields.add(NAME, format_args!("must not have {name:?}"));
    }
    fields.diagnostics.check_fixed(&place, &text);
    given.clone()
}

/// Renders the input of a model, of at most `max` characters.
pub(super) fn input(
    template: &Template,
    renderer: &Renderer<'_>,
    max: usize,
) -> Result<String, RenderError> {
    let text = template.render(Escape::None, renderer)?;
    if text.chars().count() > max {
        let reason = format!("the input is longer than {max} characters");
        return Err(RenderError::new(reason));
    }
    Ok(text)
}

/// An answer of a model.
pub(super) struct Answer {
    choice: Value,
    /// What question and answer took, as the model reports it.
    pub(super) tokens: u64,
}

impl Answer {
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let answer = json::parse(body).ok_or_else(|| match body.len() {
            MAX_ANSWER.. => format!("the model's answer is longer than {MAX_ANSWER} bytes"),
            _ => NOT_UNDERSTOOD.to_owned(),
        })?;
        let choice = answer.pointer("/choices/0");
        let choice = choice.filter(|choice| choice["message"].is_object());
        let tokens = answer.pointer("/usage/total_tokens");
        Ok(Self {
            choice: choice.cloned().ok_or(NOT_UNDERSTOOD)?,
            tokens: tokens.and_then(Value::as_u64).unwrap_or(0),
        })
    }

    /// The message of its first choice.
    pub(super) fn message(&self) -> &Value {
        &self.choice["message"]
    }

    /// The text of the message, which may come in parts. `None` if there is none.
    pub(super) fn text(&self) -> Option<String> {
        match &self.message()["content"] {
            Value::String(text) => Some(text.clone()),
            Value::Array(parts) => {
                let texts = parts.iter().filter_map(|part| part["text"].as_str());
                Some(texts.collect())
            }
            _ => None,
        }
    }

    /// Whether it reached its maximum of tokens.
    pub(super) fn is_cut(&self) -> bool {
        self.choice["finish_reason"] == "length"
    }

    /// Why the model has not said all that it wanted to, or would not.
    pub(super) fn hindrance(&self) -> Option<&'static str> {
        if self.message()["refusal"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
        {
            return Some("the model refused to answer");
        }
        match self.choice["finish_reason"].as_str()? {
            "length" => Some("the model's answer was cut off: it reached its maximum of tokens"),
            "content_filter" => Some("the model's answer was withheld by its provider's filter"),
            _ => None,
        }
    }
}
