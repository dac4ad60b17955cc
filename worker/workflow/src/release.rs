//! A release as it is executed: the actions of a deployed definition.
//!
//! A worker believes nothing about the row that it loads, which people may write: what no deploy
//! would take does not load.

use serde_json::Value;

use crate::{
    actions::{self, Action},
    definition,
    diagnostics::Diagnostics,
    template::Labels,
};

/// Why a release can't be loaded: no deploy has checked it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the release can't be loaded: {0}")]
pub struct LoadError(String);

/// The JSON texts of a release.
#[derive(Debug, Clone)]
pub struct ReleaseTexts {
    /// The form.
    pub form: String,
    /// The list of actions.
    pub actions: String,
    /// The list of those that follow a failure, if there is one.
    pub on_failure: Option<String>,
}

/// The actions of a release.
#[derive(Debug, Clone)]
pub struct Release {
    /// In their order.
    pub actions: Vec<Action>,
    /// The actions that follow when a run has failed.
    pub on_failure: Vec<Action>,
    /// What the form calls its fields.
    pub labels: Labels,
    /// The bytes of its JSON texts.
    pub length: usize,
}

impl ReleaseTexts {
    /// How many bytes they have.
    pub fn length(&self) -> usize {
        let on_failure = self.on_failure.as_ref().map_or(0, String::len);
        self.form.len() + self.actions.len() + on_failure
    }
}

impl Release {
    /// Loads a release for execution: parses it, and checks it as a deploy does, for its form.
    pub fn load(texts: &ReleaseTexts) -> Result<Self, LoadError> {
        let form = json(&texts.form)?;
        let mut labels = Labels::default();
        let release = Self::of(
            &texts.actions,
            texts.on_failure.as_deref(),
            |diagnostics, lists| {
                let form = definition::check_form(diagnostics, Some(&form));
                labels = Labels::of(&form);
                actions::parse_and_check(diagnostics, &form, lists)
            },
        )?;
        Ok(Self {
            labels,
            length: texts.length(),
            ..release
        })
    }

    /// Parses a release to look at it: its templates are not checked, and must not be rendered.
    pub fn parse(actions: &str, on_failure: Option<&str>) -> Result<Self, LoadError> {
        Self::of(actions, on_failure, actions::parse)
    }

    fn of(
        actions: &str,
        on_failure: Option<&str>,
        parse: impl FnOnce(&mut Diagnostics, [Option<&Value>; 2]) -> [Vec<Action>; 2],
    ) -> Result<Self, LoadError> {
        let length = actions.len() + on_failure.map_or(0, str::len);
        let list = json(actions)?;
        let following = on_failure.map(json).transpose()?;
        let mut diagnostics = Diagnostics::default();
        let [actions, on_failure] = parse(&mut diagnostics, [Some(&list), following.as_ref()]);
        match diagnostics.into_list().first() {
            None => Ok(Self {
                actions,
                on_failure,
                labels: Labels::default(),
                length,
            }),
            Some(problem) => Err(LoadError(problem.to_string())),
        }
    }

    /// Whether another action may use the answer of the action `id`.
    pub fn uses_answer_of(&self, id: &str) -> bool {
        let lists = [&self.actions, &self.on_failure].into_iter();
        let mut actions = lists.flat_map(|list| actions::all(list));
        actions.any(|action| action.references.has_answer_of(id))
    }
}

fn json(text: &str) -> Result<Value, LoadError> {
    serde_json::from_str(text).map_err(|error| LoadError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_list_of_known_actions_does_not_load() {
        let load = |text| Release::parse(text, None);
        assert_eq!(load("[]").map(|release| release.actions.len()), Ok(0));
        assert!(Release::parse("[]", Some("{}")).is_err());
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
    fn what_the_engine_panics_at_is_refused_at_every_check() {
        let actions = r#"[{"id":"c","type":"condition","if":"form.n }} x"}]"#;
        let form = r#"{"title":"T","fields":[
            {"key":"n","label":"N","type":"number","required":true}]}"#;
        let definition = format!(r#"{{"form":{form},"actions":{actions}}}"#);
        let problems = crate::Definition::check(&definition).unwrap_err();
        let load = |form: &str, actions: &str| {
            let texts = ReleaseTexts {
                form: form.to_owned(),
                actions: actions.to_owned(),
                on_failure: None,
            };
            Release::load(&texts).map(drop)
        };
        assert!(load(form, actions).is_err());
        let actions =
            r#"[{"id":"c","type":"condition","if":"form.n * 2 > 1","then":[],"else":[]}]"#;
        assert_eq!(load(form, actions), Ok(()));
        // The check would know one of the two fields, and a run the other.
        let field = r#"{"key":"n","label":"N","type":"text","required":true}"#;
        let twice = form.replace("]", &format!(",{field}]"));
        assert!(load(&twice, actions).is_err());
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
        let release = Release::parse(checked.actions_json(), None).unwrap();
        assert_eq!(crate::preview::sending_actions(&release).len(), 45);
    }
}
