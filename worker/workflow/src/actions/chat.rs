//! An OpenAI-compatible chat completions endpoint: where it is, what is sent to it, and what of its
//! answer counts.

use serde_json::Value;
use url::Url;

use super::outgoing::{Request, join_path};
use crate::{
    diagnostics::Diagnostics,
    template::{Escape, RenderError, Renderer, Template},
};

/// Characters of a model's name.
pub(super) const MAX_MODEL: usize = 200;
const PATH: &str = "/chat/completions";

/// A request to the endpoint below an account's base URL.
pub(super) fn request(base_url: &Url, body: &Value) -> Result<Request, RenderError> {
    Ok(Request {
        method: "POST".into(),
        url: join_path(base_url, PATH)?.into(),
        headers: Vec::new(),
        body: Some(body.to_string()),
    })
}

/// What a model is told to do is the owner's, and the same in every run.
pub(super) fn check_fixed(diagnostics: &mut Diagnostics, path: &str, text: &str) {
    if text.contains("{{") || text.contains("{%") {
        diagnostics.add(path, "must not contain values: insert them into input");
    }
}

/// The text that a model is given, with its values, of at most `max` characters.
pub(super) fn input(
    template: &Template,
    renderer: &Renderer<'_>,
    max: usize,
) -> Result<String, RenderError> {
    let text = template.render(Escape::None, renderer)?;
    match text.chars().count() {
        count if count > max => {
            let reason = format!("the input is longer than {max} characters");
            Err(RenderError::new(reason))
        }
        _ => Ok(text),
    }
}

/// The first choice of an answer; none where it is not one.
pub(super) fn first_choice(answer: &Value) -> Option<&Value> {
    answer
        .pointer("/choices/0")
        .filter(|choice| choice.get("message").is_some_and(Value::is_object))
}
