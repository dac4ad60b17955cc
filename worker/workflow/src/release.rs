//! A release as it is executed: the actions of a definition that was checked when it was deployed.

use serde_json::Value;

use crate::{
    actions::{self, Action},
    diagnostics::Diagnostics,
};

/// Why a release can't be executed. It was not deployed through Letterbox, or by a newer one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the release can't be loaded: {0}")]
pub struct LoadError(String);

/// Loads the actions of a release. `text` is the JSON of the list.
///
/// # Errors
/// Names the first problem.
pub fn load(text: &str) -> Result<Vec<Action>, LoadError> {
    let list: Value = serde_json::from_str(text).map_err(|error| LoadError(error.to_string()))?;
    let mut diagnostics = Diagnostics::default();
    let actions = actions::parse(&mut diagnostics, Some(&list));
    match diagnostics.into_list().into_iter().next() {
        None => Ok(actions),
        Some(problem) => Err(LoadError(problem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_list_of_known_actions_does_not_load() {
        assert_eq!(load("[]").map(|actions| actions.len()), Ok(0));
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
}
