//! Words for people about what is asked and what was done, the same on every screen. Names and
//! texts in them are as their authors wrote them: whoever shows them makes them inert.

use letterbox_workflow::{Decision, Steering, Untrusted};
use serde_json::Value;

use crate::RunAction;

/// Method and URL of a request.
#[must_use]
pub fn request(request: Option<&Value>) -> Option<String> {
    let request = request?;
    let (method, url) = (request["method"].as_str()?, request["url"].as_str()?);
    Some(format!("{method} {url}"))
}

/// The other members of a request, which together with those are all that will be sent: names, and
/// texts as they are or values as JSON.
#[must_use]
pub fn members_of_request(request: Option<&Value>) -> Vec<(String, String)> {
    let members = request.and_then(Value::as_object).into_iter().flatten();
    let others = members.filter(|(name, value)| {
        let is_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        !matches!(&name[..], "method" | "url" | "account_id") && !is_nothing
    });
    let others = others.map(|(name, value)| match value {
        Value::String(text) => (name.clone(), text.clone()),
        value => (name.clone(), value.to_string()),
    });
    others.collect()
}

/// How untrusted text reaches an action; `None` if it does not.
#[must_use]
pub fn taint(untrusted: &[Untrusted], steered_by: &[Steering]) -> Option<String> {
    let fills = untrusted.iter().filter_map(|kind| match kind {
        Untrusted::Data => Some("the submission"),
        Untrusted::Account => Some("an account's answer"),
        Untrusted::Control => None,
    });
    let fills = fills.collect::<Vec<_>>().join(" and ");
    let steers: Vec<_> = steered_by.iter().map(|one| one.as_str()).collect();
    let steers = steers.join(", ");
    match (fills.is_empty(), steers.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("filled by {fills}")),
        (true, false) => Some(format!("steered by {steers}")),
        (false, false) => Some(format!("filled by {fills}, steered by {steers}")),
    }
}

/// Why an action was allowed, or not, with what people answered; `None` if the policy was not
/// asked.
#[must_use]
pub fn permission(action: &RunAction, answer: &str) -> Option<String> {
    let version = action.policy_version.unwrap_or_default();
    let rule = match (action.decision_rule, version) {
        (Some(rule), 0) => format!("rule {rule} of the default policy"),
        (Some(rule), _) => format!("rule {rule} of policy {version}"),
        (None, 0) => "the default policy".to_owned(),
        (None, _) => format!("the default of policy {version}"),
    };
    let decided = match action.decision? {
        Decision::Allow => format!("allowed by {rule}"),
        Decision::Approve => format!("{rule} asks for approval"),
        Decision::Deny => format!("denied by {rule}"),
    };
    let taint = taint(&action.untrusted, &action.steered_by);
    let taint = taint.map(|taint| format!("; {taint}"));
    Some(format!("{decided}{answer}{}", taint.unwrap_or_default()))
}
