//! Descriptions of questions and actions, the same on every screen. Names and texts are as their
//! authors wrote them: each screen escapes them.

use std::collections::BTreeMap;

use letterbox_common::json_object;
use letterbox_workflow::{Decision, Steering, Untrusted, actions::BodyType};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::RunAction;

/// Method and URL of a request.
pub fn request(request: Option<&Value>) -> Option<String> {
    let request = request?;
    let method = request["method"].as_str()?;
    let url = request["url"].as_str()?;
    Some(format!("{method} {url}"))
}

/// The other members of a request, which together with those are all that will be sent: names, and
/// texts as they are or values as JSON. Of an e-mail it is each header and each part.
pub fn members_of_request(request: Option<&Value>) -> Vec<(String, String)> {
    if let Some(request) = request
        && let Some(email) = members_of_email(request)
    {
        return email;
    }
    let members = request.and_then(Value::as_object).into_iter().flatten();
    let others = members.filter(|(name, value)| {
        let is_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        !matches!(&name[..], "method" | "url" | "account_id") && !is_nothing
    });
    let others = others.flat_map(|(name, value)| match value {
        Value::String(text) if name == "body" => members_of_body(text),
        Value::String(text) => vec![(name.clone(), text.clone())],
        value => vec![(name.clone(), value.to_string())],
    });
    others.collect()
}

/// The members of a body that is a JSON object, each by its name, and texts as they are; or all of
/// it.
fn members_of_body(body: &str) -> Vec<(String, String)> {
    let members = json_object::all(body).unwrap_or_default().into_iter();
    let told = members.map(|(name, json)| {
        let text = serde_json::from_str::<String>(json.get()).ok();
        // What reads like another value keeps its quotes.
        let text = text.filter(|text| serde_json::from_str::<IgnoredAny>(text).is_err());
        let text = text.unwrap_or_else(|| json.get().to_owned());
        Some((format!("body: {}", name?), text))
    });
    let told = told.collect::<Option<Vec<_>>>().unwrap_or_default();
    match told.is_empty() {
        true => vec![("body".to_owned(), body.to_owned())],
        false => told,
    }
}

fn members_of_email(request: &Value) -> Option<Vec<(String, String)>> {
    let is_email = request["body_type"] == BodyType::Mail.as_str();
    let body = request["body"].as_str().filter(|_| is_email)?;
    let mut members: Vec<(String, String)> =
        serde_json::from_value(request["headers"].clone()).ok()?;
    let parts: BTreeMap<String, String> = serde_json::from_str(body).ok()?;
    let account = request["account"].as_str().unwrap_or_default();
    members.insert(0, ("account".to_owned(), account.to_owned()));
    members.extend(parts);
    Some(members)
}

/// How untrusted text reaches an action; `None` if it does not.
pub fn taint(untrusted: &[Untrusted], steered_by: &[Steering]) -> Option<String> {
    let fills = untrusted.iter().filter_map(|kind| match kind {
        Untrusted::Data => Some("the submission"),
        Untrusted::Account => Some("an account's answer"),
        Untrusted::Control | Untrusted::Recipient => None,
    });
    let mut fills = fills.collect::<Vec<_>>().join(" and ");
    if untrusted.contains(&Untrusted::Recipient) {
        fills += ", the recipients too";
    }
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

/// A policy as sentences: its rules in their order, then what holds for all else.
pub fn policy(policy: &Value) -> Vec<String> {
    let rules = policy["rules"].as_array().into_iter().flatten();
    let rules = rules.map(|rule| {
        let when = rule["when"].as_object().into_iter().flatten();
        let when: Vec<_> = when.map(|(name, value)| requirement(name, value)).collect();
        let when = match when.is_empty() {
            true => "in any case".to_owned(),
            false => format!("when {}", when.join(" and ")),
        };
        format!("{} a request {when}", verdict(&rule["decision"]))
    });
    let otherwise = format!("{} everything else", verdict(&policy["default"]));
    let by = match policy["approve_by"].as_str() {
        Some("another") => Some("Another person than the one as whom the run acts must answer"),
        Some("person") => Some("A person who has proven who they are must answer"),
        _ => None,
    };
    let sentences = rules.chain([otherwise]);
    sentences.chain(by.map(str::to_owned)).collect()
}

fn verdict(decision: &Value) -> &'static str {
    match decision.as_str() {
        Some("allow") => "Allow",
        Some("approve") => "Ask for approval of",
        _ => "Deny",
    }
}

fn requirement(name: &str, value: &Value) -> String {
    let listed = match value {
        Value::Array(all) => {
            let all = all.iter().filter_map(Value::as_str);
            all.collect::<Vec<_>>().join(" or ")
        }
        value => value.as_str().unwrap_or_default().to_owned(),
    };
    match name {
        "action" => format!("the action is {listed}"),
        "account" => format!("the account is {listed}"),
        "method" => format!("the method is {listed}"),
        "host" => format!("the host is {listed}"),
        "untrusted" => format!("untrusted text has to do with it ({listed})"),
        _ => format!("it is steered by {listed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_told_by_its_members() {
        let told = |body: &str| {
            let told = members_of_body(body).into_iter();
            told.map(|(name, text)| format!("{name} = {text}"))
                .collect::<Vec<_>>()
        };
        let body = r#"{"z":"Ada \"x\"","a":1.50,"b":"2","c":{"d":[true]}}"#;
        let members = [
            "body: z = Ada \"x\"",
            "body: a = 1.50",
            "body: b = \"2\"",
            "body: c = {\"d\":[true]}",
        ];
        assert_eq!(told(body), members);
        for other in ["[1]", "a=b", "{}", r#"{"\ud800":1}"#] {
            assert_eq!(told(other), [format!("body = {other}")]);
        }
    }
}
