//! A release as it is executed: the actions of a deployed definition.

use serde_json::Value;

use crate::{
    actions::{self, Action, Branch},
    diagnostics::Diagnostics,
};

/// Why a release can't be loaded: it was not deployed by Letterbox, or by a newer version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the release can't be loaded: {0}")]
pub struct LoadError(String);

/// The actions of a release.
#[derive(Debug, Clone)]
pub struct Release {
    /// In their order.
    pub actions: Vec<Action>,
    /// The actions that follow when a run has failed.
    pub on_failure: Vec<Action>,
}

impl Release {
    /// Loads a release from the JSON texts of its actions and of those that follow a failure.
    ///
    /// # Errors
    /// Returns the first problem.
    pub fn load(actions: &str, on_failure: Option<&str>) -> Result<Self, LoadError> {
        let json = |text| {
            let parsed: Result<Value, _> = serde_json::from_str(text);
            parsed.map_err(|error| LoadError(error.to_string()))
        };
        let (list, following) = (json(actions)?, json(on_failure.unwrap_or("[]"))?);
        let mut diagnostics = Diagnostics::default();
        let lists = [("actions", Some(&list)), ("on_failure", Some(&following))];
        let [actions, on_failure] = actions::parse(&mut diagnostics, lists);
        match diagnostics.into_list().into_iter().next() {
            None => Ok(Self {
                actions,
                on_failure,
            }),
            Some(problem) => Err(LoadError(problem.to_string())),
        }
    }

    /// Whether another action may use the answer of the action `id`.
    #[must_use]
    pub fn uses_answer_of(&self, id: &str) -> bool {
        let lists = [&self.actions, &self.on_failure];
        lists.into_iter().any(|actions| uses_answer_of(actions, id))
    }
}

fn uses_answer_of(actions: &[Action], id: &str) -> bool {
    actions.iter().any(|action| {
        let mut branches = Branch::ALL.iter().map(|branch| action.branches.of(*branch));
        action.references.has_answer_of(id) || branches.any(|branch| uses_answer_of(branch, id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_list_of_known_actions_does_not_load() {
        let load = |text| Release::load(text, None);
        assert_eq!(load("[]").map(|release| release.actions.len()), Ok(0));
        assert!(Release::load("[]", Some("{}")).is_err());
        for text in [
            "",
            "{}",
            "null",
            r#"[{"id":"a","type":"teleport"}]"#,
            r#"[{"id":"a"}]"#,
        ] {
            let error = load(text).unwrap_err().to_string();
            assert!(
                error.starts_with("the release can't be loaded: "),
                "{text}: {error}"
            );
        }
    }

    /// The engine's lexer panics at this condition.
    #[test]
    fn what_the_engine_panics_at_loads_and_is_refused_at_the_check() {
        let actions = r#"[{"id":"c","type":"condition","if":"form.n }} x"}]"#;
        assert!(Release::load(actions, None).is_ok());
        let form = r#"{"title":"T","fields":[
            {"key":"n","label":"N","type":"number","required":true}]}"#;
        let definition = format!(r#"{{"form":{form},"actions":{actions}}}"#);
        let problems = crate::Definition::check(&definition).unwrap_err();
        assert_eq!((problems.len(), &*problems[0].path), (1, "actions[0].if"));
    }

    /// Checking takes time linear in the number of conditions, not in the number of paths through
    /// them.
    #[test]
    fn many_conditions_are_checked_at_once() {
        let condition = |id: &str, inner: Value| {
            serde_json::json!({"id": id, "type": "condition", "if": "true",
                "then": inner, "else": []})
        };
        let send = |id: &str| {
            serde_json::json!({"id": id, "type": "http.request", "account": "a", "method": "GET",
                "path": "/{{ form.a }}"})
        };
        let actions: Vec<_> = (0..45)
            .map(|n| condition(&format!("c{n}"), vec![send(&format!("s{n}"))].into()))
            .collect();
        let field = serde_json::json!({"key": "a", "label": "A", "type": "text", "required": true});
        let form = serde_json::json!({"title": "T", "fields": [field]});
        let definition = serde_json::json!({"form": form, "actions": actions}).to_string();
        let checked = crate::Definition::check(&definition).unwrap();
        let release = Release::load(checked.actions_json(), None).unwrap();
        assert_eq!(crate::preview::sending_actions(&release).len(), 45);
    }
}
