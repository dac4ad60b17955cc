//! What an owner deploys: `{"form": {…}, "actions": […]}`, checked whole, so that one try names
//! every mistake.

mod form;
mod mistakes;

use letterbox_common::form::Form;
use serde_json::Value;

use crate::actions::{self, Action, Names};

pub use self::mistakes::Mistakes;

/// Largest definition, in bytes.
const LENGTH: usize = 262_144;

/// A definition without mistakes.
#[derive(Debug, Clone)]
pub struct Definition {
    pub form: Form,
    pub actions: Vec<Action>,
    /// The actions as JSON text, as they stand in the definition.
    actions_json: String,
}

impl Definition {
    /// Reads and checks JSON text.
    ///
    /// # Errors
    /// Every mistake, each with its path.
    pub fn check(text: &str) -> Result<Self, Vec<String>> {
        if text.len() > LENGTH {
            return Err(vec![format!(
                "the definition is larger than {LENGTH} bytes"
            )]);
        }
        let value: Value = serde_json::from_str(text)
            .map_err(|error| vec![format!("the definition is not JSON: {error}")])?;
        let mut mistakes = Mistakes::default();
        let definition = mistakes
            .object(&value, "the definition", &["form", "actions"])
            .map(|members| {
                let form = form::check(&mut mistakes, members.get("form"));
                let actions = members.get("actions");
                let checked = actions::check(&mut mistakes, actions, &Names::of(&form));
                Self {
                    form,
                    actions: checked,
                    actions_json: actions.unwrap_or(&Value::Null).to_string(),
                }
            });
        match definition {
            Some(definition) if mistakes.is_empty() => Ok(definition),
            _ => Err(mistakes.into_list()),
        }
    }

    /// The form, as the public reads it.
    #[must_use]
    pub fn form_json(&self) -> String {
        // Texts, lists and booleans always serialize.
        serde_json::to_string(&self.form).unwrap_or_default()
    }

    /// The list of actions.
    #[must_use]
    pub fn actions_json(&self) -> &str {
        &self.actions_json
    }
}
