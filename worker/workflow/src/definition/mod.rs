//! The definition that an owner deploys: `{"form": {…}, "actions": […], "on_failure": […], "page":
//! {…}, "spam_defence": {…}}`, checked as a whole, so that one try reports every mistake.

mod form;
mod page;
mod spam_defence;
mod warnings;

use letterbox_common::{
    form::{Form, Page},
    json_object::text_of,
};
use serde_json::Value;

use crate::{
    actions::{self, Action},
    diagnostics::{Diagnostics, Problem},
};

pub(crate) use self::form::check as check_form;

/// The path of problems of no part.
const WHOLE: &str = "the definition";
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
    /// Parses and checks JSON text. An error has every mistake.
    pub fn check(text: &str) -> Result<Self, Vec<Problem>> {
        let mut diagnostics = Diagnostics::default();
        let parsed = match serde_json::from_str::<Value>(text) {
            _ if text.len() > MAX_BYTES => Err(format!("must have at most {MAX_BYTES} bytes")),
            Err(error) => Err(format!("is not JSON: {error}")),
            Ok(value) => Ok(value),
        };
        let definition = match parsed {
            Ok(mut value) => Self::parse(&mut diagnostics, &mut value),
            Err(problem) => {
                diagnostics.add(WHOLE, problem);
                None
            }
        };
        match definition {
            Some(definition) if diagnostics.is_empty() => Ok(definition),
            _ => Err(diagnostics.into_list()),
        }
    }

    fn parse(diagnostics: &mut Diagnostics, value: &mut Value) -> Option<Self> {
        // Names the schema, for editors.
        let members = value.as_object_mut();
        let schema = members.and_then(|members| members.remove("$schema"));
        if schema.is_some_and(|schema| !schema.is_string()) {
            diagnostics.add("$schema", "must be a string");
        }
        let mut whole = diagnostics.fields(value, WHOLE)?;
        let form = whole.get("form");
        let lists = actions::LISTS.map(|name| whole.get(name));
        let page = whole.get("page");
        let defence = whole.get("spam_defence");
        whole.refuse_others();
        let form = check_form(diagnostics, form);
        let page = page::check(diagnostics, page, &form);
        let least_seconds = spam_defence::check(diagnostics, defence);
        let [actions, on_failure] = actions::parse_and_check(diagnostics, &form, lists);
        let [actions_json, on_failure_json] = lists.map(|list| list.map(Value::to_string));
        Some(Self {
            form,
            page,
            least_seconds,
            actions,
            on_failure,
            actions_json: actions_json.unwrap_or_default(),
            on_failure_json,
        })
    }

    /// Warnings about valid but probably unintended parts, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let all = [&self.actions[..], &self.on_failure[..]].concat();
        let mut warnings = warnings::of_conditions(&self.form, &all);
        warnings.extend(warnings::of_statuses(&all));
        let texts = [Some(&self.actions_json), self.on_failure_json.as_ref()];
        warnings.extend(warnings::of_size(&all, texts.into_iter().flatten()));
        warnings
    }

    /// The form as JSON, as the public reads it.
    pub fn form_json(&self) -> String {
        text_of(&self.form)
    }

    /// How the form's page looks, as JSON; `None` if nothing is set.
    pub fn page_json(&self) -> Option<String> {
        let is_plain = self.page == Page::default();
        (!is_plain).then(|| text_of(&self.page))
    }

    /// The list of actions, as JSON.
    pub fn actions_json(&self) -> &str {
        &self.actions_json
    }

    /// The list of actions that follow when a run has failed, as JSON, if the definition has one.
    pub fn on_failure_json(&self) -> Option<&str> {
        self.on_failure_json.as_deref()
    }
}
