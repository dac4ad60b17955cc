//! Rehearses a definition: what a run with these answers would send, as far as no answer of an
//! account and no model decides about it; where one does, what either would lead to. Sends nothing.

use std::{sync::Arc, time::Duration};

use letterbox_common::json_object::text_of;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    actions::{Action, Branch, Outgoing, Request, Step},
    definition::Definition,
    policy::{ActionFacts, Decision, Policy},
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
/// URLs of accounts, under a policy.
pub fn rehearse<'d>(
    definition: &'d Definition,
    answers: &str,
    received_at: &str,
    account: impl Fn(&str) -> Option<Url>,
    policy: &Policy,
) -> serde_json::Result<Vec<RehearsedAction<'d>>> {
    let context = TemplateContext::of_run(answers, NO_RUN, received_at)?;
    let mut rehearsal = Rehearsal {
        context: context.with_labels(&Labels::of(&definition.form)),
        account,
        policy,
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

/// A step of a draft that a person has sent, with sample answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledStep {
    /// JSON text of the definition.
    pub definition: String,
    /// JSON text of the answers, an object.
    pub answers: String,
    /// When they would have been received, as templates tell it.
    pub received_at: String,
    /// The id of the action.
    pub action: String,
}

impl SampledStep {
    /// As it is stored.
    pub fn to_json(&self) -> String {
        text_of(self)
    }

    /// What the action sends, the request, and what the policy decides about it; or why there is
    /// none.
    ///
    /// # Errors
    /// In the words of a run that fails.
    pub fn request(
        &self,
        account: impl Fn(&str) -> Option<Url>,
        policy: &Policy,
    ) -> Result<(Arc<dyn Outgoing>, Request, Decision), String> {
        let definition = Definition::check(&self.definition);
        let definition = definition.map_err(|_| "the draft has mistakes")?;
        let rehearsed = rehearse(
            &definition,
            &self.answers,
            &self.received_at,
            account,
            policy,
        );
        let rehearsed = rehearsed.map_err(|error| error.to_string())?;
        let mut sent = rehearsed.into_iter().filter_map(|one| {
            let Step::Send(outgoing) = &one.action.step else {
                return None;
            };
            match one.rehearsed {
                Rehearsed::Send(request, decision) if one.action.id == self.action => {
                    Some((outgoing.clone(), request, decision))
                }
                _ => None,
            }
        });
        let sent = sent.next();
        sent.ok_or_else(|| format!("these answers send nothing in {:?}", self.action))
    }
}

/// How a list of actions ends.
enum End {
    GoesOn,
    Denied,
    Failed(String),
}

struct Rehearsal<'d, 'p, A> {
    context: TemplateContext,
    account: A,
    policy: &'p Policy,
    /// Bytes of requests that may still be shown.
    left: usize,
    found: Vec<RehearsedAction<'d>>,
}

impl<'d, A: Fn(&str) -> Option<Url>> Rehearsal<'d, '_, A> {
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
            // Also what follows the failure of this action is steered by it.
            let below = trail.below(action);
            trail.pass(action);
            if let Some(end) = end {
                return end;
            }
            for branch in Branch::ALL.iter().copied() {
                let inside = action.branches.of(branch);
                let mut below = below.clone();
                match chosen {
                    None => drop(self.walk(inside, &mut below, Some((&action.id, branch)))),
                    Some(chosen) if chosen == branch => {
                        let end = self.walk(inside, &mut below, only_if);
                        if !matches!(end, End::GoesOn) {
                            trail.join(below);
                            return end;
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
                        let decision = self.decide(action, &request, taint);
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

    fn decide(&self, action: &Action, request: &Request, taint: Taint) -> Decision {
        let url = Url::parse(&request.url).ok();
        let facts = ActionFacts {
            action: action.kind.name,
            account: action.account().unwrap_or_default(),
            method: &request.method,
            host: url.as_ref().and_then(Url::host_str).unwrap_or_default(),
            taint,
        };
        self.policy.decide(&facts).decision
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

    /// What a submission of so many seats leads to, under a policy that lets nearly all go.
    fn told(actions: &serde_json::Value, seats: u32) -> Vec<String> {
        let policy = json!({"default": "approve", "rules": [
            {"when": {"account": "forbidden"}, "decision": "deny"},
            {"when": {"untrusted": "control"}, "decision": "allow"},
            {"when": {"untrusted": "data"}, "decision": "allow"}]});
        told_under(&Policy::parse(&policy.to_string()).unwrap(), actions, seats)
    }

    fn told_under(policy: &Policy, actions: &serde_json::Value, seats: u32) -> Vec<String> {
        let form = json!({"title": "T", "fields": [
            {"key": "seats", "label": "Seats", "type": "number", "required": true}]});
        let after = [send("sorry", "crm", "/sorry")];
        let definition = json!({"form": form, "actions": actions, "on_failure": after});
        let definition = Definition::check(&definition.to_string()).unwrap();
        let account = |name: &str| (name != "none").then(|| "https://h.example/".parse().unwrap());
        let answers = json!({"seats": seats}).to_string();
        let rehearsed = rehearse(&definition, &answers, "now", account, policy).unwrap();
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

    /// What failed steers what follows, as in a run, wherever it stood.
    #[test]
    fn what_follows_a_failure_is_steered_by_it() {
        let ask = json!({"id": "ask", "type": "ai.condition", "account": "none",
            "model": "m", "question": "Many?", "input": "{{ form.seats }}",
            "then": [], "else": []});
        let below = json!({"id": "many", "type": "condition", "if": "form.seats > 2",
            "then": [ask], "else": []});
        for actions in [json!([ask]), json!([below])] {
            let told = told_under(&Policy::default(), &actions, 3);
            let last = told.last().map(String::as_str);
            assert_eq!(last, Some("sorry: https://h.example/sorry approve"));
        }
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
