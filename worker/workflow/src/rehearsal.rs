//! Rehearses a definition: what a run with these answers would send, as far as no answer of an
//! account and no model decides about it. Sends nothing.

use std::time::Duration;

use url::Url;

use crate::{
    actions::{Action, Branch, Request, Step},
    definition::Definition,
    taint::Taint,
    template::{Labels, RenderError, TemplateContext},
    trail::Trail,
};

/// What a run would do at an action.
#[derive(Debug)]
pub enum Rehearsed {
    /// It would send this request, in a run with this taint; `Err` if it can't be made.
    Send(Result<Request, RenderError>, Taint),
    /// It would go on here.
    Choose(Branch),
    /// It would wait.
    Wait(Duration),
    /// It would fail, for this reason.
    Fail(String),
    /// Its owner has connected no such account.
    NoAccount,
    /// An earlier answer decides.
    ByAnswer,
    /// A model decides.
    ByModel,
}

/// The id of a run that there is not.
const NO_RUN: &str = "00000000-0000-7000-8000-000000000000";

/// Rehearses the actions that follow a submission of these answers, the JSON text of an object,
/// with the base URLs of accounts. Returns each action that would be reached, and what a run would
/// do there.
pub fn rehearse<'d>(
    definition: &'d Definition,
    answers: &str,
    received_at: &str,
    account: &impl Fn(&str) -> Option<Url>,
) -> serde_json::Result<Vec<(&'d Action, Rehearsed)>> {
    let context = TemplateContext::of_run(answers, NO_RUN, received_at)?;
    let context = context.with_labels(&Labels::of(&definition.form));
    let mut found = Vec::new();
    let mut trail = Trail::default();
    let actions = &definition.actions;
    walk(actions, &mut trail, &context, account, &mut found);
    Ok(found)
}

/// Returns whether a run would go on behind these actions.
fn walk<'r>(
    actions: &'r [Action],
    trail: &mut Trail<'r>,
    context: &TemplateContext,
    account: &impl Fn(&str) -> Option<Url>,
    found: &mut Vec<(&'r Action, Rehearsed)>,
) -> bool {
    for action in actions {
        let taint = trail.taint(action);
        let rehearsed = match &action.step {
            _ if action.references.has_answers() => Rehearsed::ByAnswer,
            Step::Wait(time) => Rehearsed::Wait(*time),
            Step::Fail(reason) => Rehearsed::Fail(reason.clone()),
            Step::Delegate(_) => Rehearsed::ByModel,
            Step::Choose(condition) => match condition.holds(context) {
                Ok(holds) => Rehearsed::Choose(holds.into()),
                Err(error) => Rehearsed::Fail(error.to_string()),
            },
            Step::Send(outgoing) => match account(outgoing.account()) {
                Some(base) => Rehearsed::Send(outgoing.render(&base, &context.renderer()), taint),
                None => Rehearsed::NoAccount,
            },
        };
        let chosen = match &rehearsed {
            Rehearsed::Choose(branch) => Some(*branch),
            _ => None,
        };
        let is_last = matches!(rehearsed, Rehearsed::Fail(_) | Rehearsed::Send(Err(_), _));
        found.push((action, rehearsed));
        if is_last {
            return false;
        }
        let mut below = trail.below(action);
        trail.pass(action);
        if let Some(branch) = chosen {
            let inside = action.branches.of(branch);
            if !walk(inside, &mut below, context, account, found) {
                return false;
            }
            trail.join(below);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_run_would_send_is_rehearsed() {
        let send = |id: &str, path: &str| {
            json!({"id": id, "type": "http.request", "account": "crm", "method": "POST",
                "path": path, "body": {"seats": "{{ form.seats }}"}})
        };
        let fail = json!({"id": "none", "type": "fail", "reason": "nothing left"});
        let actions = json!([
            send("first", "/a"),
            {"id": "wait", "type": "delay", "for": "PT1H"},
            send("echo", "/{{ actions.first.status }}"),
            {"id": "many", "type": "condition", "if": "form.seats > 2", "then": [fail]},
            {"id": "gone", "type": "http.request", "account": "x", "method": "GET", "path": "/"},
        ]);
        let form = json!({"title": "T", "fields": [
            {"key": "seats", "label": "Seats", "type": "number", "required": true}]});
        let definition = json!({"form": form, "actions": actions}).to_string();
        let definition = Definition::check(&definition).unwrap();
        let account = |name: &str| (name == "crm").then(|| "https://crm.example/".parse().unwrap());
        let told = |seats: u32| {
            let answers = json!({"seats": seats}).to_string();
            let rehearsed = rehearse(&definition, &answers, "now", &account).unwrap();
            let told = rehearsed.into_iter().map(|(action, what)| match what {
                Rehearsed::Send(request, taint) => {
                    let Request { url, body, .. } = request.unwrap();
                    format!("{url} {} {}", body.unwrap_or_default(), taint.is_any())
                }
                what => format!("{}: {what:?}", action.id),
            });
            told.collect::<Vec<_>>()
        };
        let begins = [
            "https://crm.example/a {\"seats\":2} true",
            "wait: Wait(3600s)",
            "echo: ByAnswer",
        ];
        let few = ["many: Choose(Else)", "gone: NoAccount"];
        assert_eq!(told(2), [begins.as_slice(), &few].concat());
        let many = told(3);
        assert_eq!(
            many[3..],
            ["many: Choose(Then)", "none: Fail(\"nothing left\")"]
        );
    }
}
