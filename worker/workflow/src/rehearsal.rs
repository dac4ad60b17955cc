//! Rehearses a definition: what a run with these answers would send, as far as no answer of an
//! account and no model decides about it; where one does, what either would lead to. Sends nothing.

use std::time::Duration;

use url::Url;

use crate::{
    actions::{Action, Branch, Request, Step},
    definition::Definition,
    policy::Decision,
    taint::Taint,
    template::{Labels, RenderError, TemplateContext},
    trail::Trail,
};

/// What a run would do at an action.
#[derive(Debug)]
pub enum Rehearsed {
    /// It would send this request, if the policy lets it.
    Send(Request, Decision),
    /// The same for a request that is too long to be shown with the others.
    SendUnshown(Decision),
    /// It would go on here.
    Choose(Branch),
    /// It would wait.
    Wait(Duration),
    /// It would fail, for this reason.
    Fail(String),
    /// It would fail: its owner has connected no such account.
    NoAccount,
    /// An earlier answer decides.
    ByAnswer,
    /// A model decides.
    ByModel,
}

/// An action that a run would reach, or might.
#[derive(Debug)]
pub struct RehearsedAction<'d> {
    /// The action.
    pub action: &'d Action,
    /// What the run would do there.
    pub rehearsed: Rehearsed,
    /// The last condition that nobody can know yet, and the branch that leads here.
    pub only_if: Option<(&'d str, Branch)>,
}

/// Maximum bytes of all requests that are shown.
const MAX_SHOWN: usize = 1 << 20;
/// The id of a run that there is not.
const NO_RUN: &str = "00000000-0000-7000-8000-000000000000";

/// Rehearses what follows a submission of these answers, the JSON text of an object, with the base
/// URLs of accounts and what the policy decides about a request.
pub fn rehearse<'d>(
    definition: &'d Definition,
    answers: &str,
    received_at: &str,
    account: impl Fn(&str) -> Option<Url>,
    decide: impl Fn(&Action, &Request, Taint) -> Decision,
) -> serde_json::Result<Vec<RehearsedAction<'d>>> {
    let context = TemplateContext::of_run(answers, NO_RUN, received_at)?;
    let mut rehearsal = Rehearsal {
        context: context.with_labels(&Labels::of(&definition.form)),
        account,
        decide,
        left: MAX_SHOWN,
        found: Vec::new(),
    };
    let mut trail = Trail::default();
    if let End::Failed(reason) = rehearsal.walk(&definition.actions, &mut trail, None) {
        rehearsal.context = rehearsal.context.after_failure(&reason);
        let mut trail = trail.after_failure();
        rehearsal.walk(&definition.on_failure, &mut trail, None);
    }
    Ok(rehearsal.found)
}

/// How a list of actions ends.
enum End {
    GoesOn,
    Denied,
    Failed(String),
}

struct Rehearsal<'d, A, D> {
    context: TemplateContext,
    account: A,
    decide: D,
    /// Bytes of requests that may still be shown.
    left: usize,
    found: Vec<RehearsedAction<'d>>,
}

impl<'d, A, D> Rehearsal<'d, A, D>
where
    A: Fn(&str) -> Option<Url>,
    D: Fn(&Action, &Request, Taint) -> Decision,
{
    fn walk(
        &mut self,
        actions: &'d [Action],
        trail: &mut Trail<'d>,
        only_if: Option<(&'d str, Branch)>,
    ) -> End {
        for action in actions {
            let rehearsed = self.rehearsed(action, trail.taint(action));
            let (chosen, end) = match &rehearsed {
                Rehearsed::Choose(branch) => (Some(*branch), None),
                Rehearsed::Fail(reason) => (None, Some(End::Failed(reason.clone()))),
                Rehearsed::NoAccount => (None, Some(End::Failed("no account".to_owned()))),
                Rehearsed::Send(_, Decision::Deny) | Rehearsed::SendUnshown(Decision::Deny) => {
                    (None, Some(End::Denied))
                }
                _ => (None, None),
            };
            self.found.push(RehearsedAction {
                action,
                rehearsed,
                only_if,
            });
            if let Some(end) = end {
                return end;
            }
            let below = trail.below(action);
            trail.pass(action);
            for branch in Branch::ALL.iter().copied() {
                let inside = action.branches.of(branch);
                let mut below = below.clone();
                match chosen {
                    None => drop(self.walk(inside, &mut below, Some((&action.id, branch)))),
                    Some(chosen) if chosen == branch => {
                        match self.walk(inside, &mut below, only_if) {
                            End::GoesOn => {}
                            end => return end,
                        }
                    }
                    Some(_) => continue,
                }
                trail.join(below);
            }
        }
        End::GoesOn
    }

    fn rehearsed(&mut self, action: &Action, taint: Taint) -> Rehearsed {
        let rendered: Result<_, RenderError> = match &action.step {
            _ if action.references.has_answers() => return Rehearsed::ByAnswer,
            Step::Wait(time) => return Rehearsed::Wait(*time),
            Step::Fail(reason) => return Rehearsed::Fail(reason.clone()),
            Step::Delegate(_) => return Rehearsed::ByModel,
            Step::Choose(condition) => {
                let holds = condition.holds(&self.context);
                holds.map(|holds| Rehearsed::Choose(holds.into()))
            }
            Step::Send(outgoing) => match (self.account)(outgoing.account()) {
                None => return Rehearsed::NoAccount,
                Some(base) => {
                    let request = outgoing.render(&base, &self.context.renderer());
                    request.map(|request| {
                        let decision = (self.decide)(action, &request, taint);
                        match self.left.checked_sub(request.length()) {
                            None => Rehearsed::SendUnshown(decision),
                            Some(left) => {
                                self.left = left;
                                Rehearsed::Send(request, decision)
                            }
                        }
                    })
                }
            },
        };
        rendered.unwrap_or_else(|error| Rehearsed::Fail(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn send(id: &str, account: &str, path: &str) -> serde_json::Value {
        json!({"id": id, "type": "http.request", "account": account, "method": "POST",
            "path": path, "body": {"seats": "{{ form.seats }}"}})
    }

    /// What a submission of so many seats leads to.
    fn told(actions: &serde_json::Value, seats: u32) -> Vec<String> {
        let form = json!({"title": "T", "fields": [
            {"key": "seats", "label": "Seats", "type": "number", "required": true}]});
        let after = [send("sorry", "crm", "/sorry")];
        let definition = json!({"form": form, "actions": actions, "on_failure": after});
        let definition = Definition::check(&definition.to_string()).unwrap();
        let account = |name: &str| (name != "none").then(|| "https://h.example/".parse().unwrap());
        let decide = |action: &Action, _: &Request, taint: Taint| {
            assert!(taint.is_any(), "{}", action.id);
            match action.account() {
                Some("forbidden") => Decision::Deny,
                _ => Decision::Allow,
            }
        };
        let answers = json!({"seats": seats}).to_string();
        let rehearsed = rehearse(&definition, &answers, "now", account, decide).unwrap();
        let told = rehearsed.into_iter().map(|one| {
            let what = match one.rehearsed {
                Rehearsed::Send(Request { url, .. }, decision) => format!("{url} {decision}"),
                what => format!("{what:?}"),
            };
            let only_if = one.only_if.map(|(id, branch)| format!("{id} {branch} "));
            format!("{}{}: {what}", only_if.unwrap_or_default(), one.action.id)
        });
        told.collect()
    }

    #[test]
    fn what_a_run_would_send_is_rehearsed() {
        let fail = json!({"id": "none", "type": "fail", "reason": "nothing left"});
        let actions = json!([
            send("first", "crm", "/a"),
            {"id": "wait", "type": "delay", "for": "PT1H"},
            send("echo", "crm", "/{{ actions.first.status }}"),
            {"id": "many", "type": "condition", "if": "form.seats > 2", "then": [fail]},
            send("last", "crm", "/last"),
        ]);
        let begins = [
            "first: https://h.example/a allow",
            "wait: Wait(3600s)",
            "echo: ByAnswer",
        ];
        let few = ["many: Choose(Else)", "last: https://h.example/last allow"];
        assert_eq!(told(&actions, 2), [begins.as_slice(), &few].concat());
        let many = told(&actions, 3);
        let sorry = "sorry: https://h.example/sorry allow";
        let ends = ["many: Choose(Then)", "none: Fail(\"nothing left\")", sorry];
        assert_eq!(many[3..], ends);
    }

    /// Nothing is told behind the end of a run, and both ways where nobody knows which is taken.
    #[test]
    fn ends_and_unknown_branches_are_told() {
        for (account, last) in [
            ("none", Some("sorry: https://h.example/sorry allow")),
            ("forbidden", None),
        ] {
            let actions = json!([send("a", account, "/a"), send("b", "crm", "/b")]);
            let told = told(&actions, 1);
            assert!(told.iter().all(|one| !one.starts_with("b:")), "{told:?}");
            assert_eq!(told.get(1).map(String::as_str), last);
        }
        let actions = json!([
            send("a", "crm", "/a"),
            {"id": "c", "type": "condition", "if": "actions.a.status == 200",
                "then": [send("yes", "forbidden", "/yes")], "else": [send("no", "crm", "/no")]},
            send("b", "crm", "/b"),
        ]);
        let expected = [
            "a: https://h.example/a allow",
            "c: ByAnswer",
            "c then yes: https://h.example/yes deny",
            "c else no: https://h.example/no allow",
            "b: https://h.example/b allow",
        ];
        assert_eq!(told(&actions, 1), expected);
    }
}
