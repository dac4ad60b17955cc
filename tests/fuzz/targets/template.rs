//! Target of templates: what the check of a definition accepts, held against the engine.

use std::sync::LazyLock;

use letterbox_tests::definition_with;
use letterbox_workflow::{
    Definition, TemplateContext,
    actions::{Action, Step},
};
use serde_json::{Value, json};
use url::Url;

use super::text;

/// How the engine begins to say that a template is none. It may fail for a value only.
const NO_TEMPLATE: [&str; 8] = [
    "syntax error",
    "unknown filter",
    "unknown test",
    "missing argument",
    "too many arguments",
    "unknown function",
    "unknown method",
    "template not found",
];
const FORMS: [&str; 2] = [
    r#"{"name": "Ada", "email": "ada@example.com", "message": "Hi", "seats": 3, "terms": true}"#,
    r#"{"name": "{{ run.id }}/..", "message": "", "seats": -1e30, "terms": false}"#,
];
const ANSWERS: [&str; 2] = [r#"{"x": [1, {"y": "z"}]}"#, r#"{"x": "/../"}"#];

static BASE: LazyLock<Url> = LazyLock::new(|| "https://crm.example.com/api".parse().unwrap());

/// An action with the template in one of the places where templates are.
fn action(place: usize, source: &str) -> Value {
    let mut action = json!({"id": "b", "type": "http.request", "account": "crm", "method": "POST",
        "path": "/"});
    match place {
        0 => action["path"] = source.into(),
        1 => action["headers"] = json!({ "x-h": source }),
        2 => action["body"] = json!([{ "text": source }]),
        _ => action = json!({"id": "b", "type": "condition", "if": source}),
    }
    action
}

/// A template that is accepted is one to the engine, whatever the values. It depends on no value
/// that it is not known to refer to, and changes no place where a request goes.
pub(super) fn template(input: &[u8]) {
    let Some(source) = text(input) else { return };
    let first = json!({"id": "a", "type": "http.request", "account": "crm", "method": "GET",
        "path": "/"});
    for place in 0..4 {
        let definition = definition_with(json!([first, action(place, source)]));
        let Ok(definition) = Definition::check(&definition) else {
            continue;
        };
        let action = &definition.actions[1];
        let outcomes = FORMS.map(|form| ANSWERS.map(|answer| outcome(action, form, answer)));
        for outcome in outcomes.iter().flatten() {
            let Err(problem) = outcome else { continue };
            let is_none = NO_TEMPLATE.iter().any(|begin| problem.starts_with(begin));
            assert!(!is_none, "{problem}");
        }
        let (uses_form, uses_answer) = (action.references.form, action.references.has_answers());
        for (form, of_form) in outcomes.iter().enumerate() {
            for (answer, outcome) in of_form.iter().enumerate() {
                let used = |is_used, one| if is_used { one } else { 0 };
                let alike = &outcomes[used(uses_form, form)][used(uses_answer, answer)];
                // The time that a rendering takes is no value.
                let is_late = |one: &Outcome| one.as_ref().is_err_and(|why| why.contains(" ms "));
                assert!(
                    alike == outcome || is_late(alike) || is_late(outcome),
                    "{source}"
                );
            }
        }
    }
}

type Outcome = Result<String, String>;

fn outcome(action: &Action, form: &str, answer: &str) -> Outcome {
    let context = TemplateContext::of_run(form, "run", "now").unwrap();
    let context = context.with_answer("a", Some(200), answer.as_bytes().into());
    let outcome = match &action.step {
        Step::Choose(condition) => condition.holds(&context).map(|holds| holds.to_string()),
        Step::Send(outgoing) => {
            let request = outgoing.render(&BASE, &context.renderer());
            request.map(|request| {
                assert!(request.is_below(&BASE));
                format!("{request:?}")
            })
        }
        _ => unreachable!("there are no others"),
    };
    outcome.map_err(|error| error.to_string())
}
