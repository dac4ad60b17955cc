//! The definition that an owner deploys: `{"form": {…}, "actions": […], "on_failure": […], "page":
//! {…}, "spam_defence": {…}}`, checked as a whole, so that one try reports every mistake.

mod form;
mod page;
mod spam_defence;
mod warnings;

use letterbox_common::form::{Form, Page};
use serde_json::Value;

use crate::{
    actions::{self, Action},
    diagnostics::{Diagnostics, Problem},
};

pub(crate) use self::form::check as check_form;

/// The JSON Schema of definitions.
pub const DEFINITION_SCHEMA: &str = include_str!("../../schemas/definition.json");

/// Maximum bytes of a definition.
const MAX_BYTES: usize = 262_144;

/// A valid definition.
#[derive(Debug, Clone)]
pub struct Definition {
    pub(crate) form: Form,
    /// How the form's page looks.
    pub(crate) page: Page,
    /// Minimum seconds to fill in the form, if its submissions need a proof of work; `None` if
    /// they don't.
    pub least_seconds: Option<i16>,
    /// In order; the actions of branches are inside their conditions.
    pub actions: Vec<Action>,
    /// The actions that follow when a run has failed.
    pub on_failure: Vec<Action>,
    /// The actions as JSON text, as they are in the definition.
    actions_json: String,
    /// The same for `on_failure`; `None` if the definition has none.
    on_failure_json: Option<String>,
}

impl Definition {
    /// Parses and checks JSON text.
    ///
    /// # Errors
    /// Every mistake.
    pub fn check(text: &str) -> Result<Self, Vec<Problem>> {
        let mut diagnostics = Diagnostics::default();
        let value = match serde_json::from_str(text) {
            _ if text.len() > MAX_BYTES => {
                let problem = format_args!("must have at most {MAX_BYTES} bytes");
                diagnostics.add("the definition", problem);
                return Err(diagnostics.into_list());
            }
            Err(error) => {
                diagnostics.add("the definition", format_args!("is not JSON: {error}"));
                return Err(diagnostics.into_list());
            }
            Ok(value) => value,
        };
        let mut value: Value = value;
        // Names the schema, for editors.
        let members = value.as_object_mut();
        let schema = members.and_then(|members| members.remove("$schema"));
        if let Some(schema) = schema {
            diagnostics.string(&schema, "$schema");
        }
        let definition = diagnostics.object(&value, "the definition").map(|members| {
            diagnostics.only(
                members,
                "the definition",
                &["form", "actions", "on_failure", "page", "spam_defence"],
            );
            let form = check_form(&mut diagnostics, members.get("form"));
            let page = page::check(&mut diagnostics, members.get("page"), &form);
            let defence = members.get("spam_defence");
            let least_seconds = spam_defence::check(&mut diagnostics, defence);
            let list = members.get("actions");
            let following = members.get("on_failure");
            let none = Value::Array(Vec::new());
            let lists = [("actions", list), ("on_failure", following.or(Some(&none)))];
            let [actions, on_failure] = actions::parse_and_check(&mut diagnostics, &form, lists);
            Self {
                form,
                page,
                least_seconds,
                actions,
                on_failure,
                actions_json: list.unwrap_or(&Value::Null).to_string(),
                on_failure_json: following.map(Value::to_string),
            }
        });
        match definition {
            Some(definition) if diagnostics.is_empty() => Ok(definition),
            _ => Err(diagnostics.into_list()),
        }
    }

    /// Warnings about valid but probably unintended parts, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let all = [&self.actions[..], &self.on_failure[..]].concat();
        let mut warnings = warnings::of_conditions(&self.form, &all);
        let texts = [Some(&self.actions_json), self.on_failure_json.as_ref()];
        warnings.extend(warnings::of_size(&all, texts.into_iter().flatten()));
        warnings
    }

    /// The form as JSON, as the public reads it.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "a form is text, booleans and lists of them"
    )]
    pub fn form_json(&self) -> String {
        serde_json::to_string(&self.form).expect("text, booleans and lists always serialize")
    }

    /// How the form's page looks, as JSON; `None` if nothing is set.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a page is text and lists of it")]
    pub fn page_json(&self) -> Option<String> {
        let is_plain = self.page == Page::default();
        (!is_plain).then(|| serde_json::to_string(&self.page).expect("text always serializes"))
    }

    /// The list of actions, as JSON.
    #[must_use]
    pub fn actions_json(&self) -> &str {
        &self.actions_json
    }

    /// The list of actions that follow when a run has failed, as JSON, if the definition has one.
    #[must_use]
    pub fn on_failure_json(&self) -> Option<&str> {
        self.on_failure_json.as_deref()
    }
}
