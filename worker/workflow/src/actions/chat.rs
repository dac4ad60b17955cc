//! Requests to an OpenAI-compatible chat completions endpoint, and the part of its answers that is
//! used.

use serde_json::Value;
use url::Url;

use super::outgoing::{Request, join_path};
use crate::{
    diagnostics::Diagnostics,
    template::{Escape, RenderError, Renderer, Template},
};

/// Maximum characters of a model's name.
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

/// Requires fixed text: only the owner decides what a model is told to do.
pub(super) fn check_fixed(diagnostics: &mut Diagnostics, path: &str, text: &str) {
    if text.contains("{{") || text.contains("{%") {
        diagnostics.add(path, "must not contain values: insert them into input");
    }
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

/// Returns the first choice of an answer. `None` if the body isn't an answer.
pub(super) fn first_choice(answer: &Value) -> Option<&Value> {
    answer
        .pointer("/choices/0")
        .filter(|choice| choice.get("message").is_some_and(Value::is_object))
}
