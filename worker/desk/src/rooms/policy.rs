//! The policy of a workspace as rows: what actions may do, and who answers questions. Its members
//! see it, its owners change it: what was changed is set by a press of its own, once it is shown
//! what that would mean for what is deployed.

use askama::Template;
use letterbox_common::ids::WorkspaceId;
use letterbox_operator::{PolicyChange, PolicyRow, PolicyVersion, words};
use serde_json::{Map, Value, json};

use super::{
    PageWorkspace, Visit,
    draft::{arrange, version},
    id, or_refusal, refused, see_list,
};
use crate::{
    pages::filters,
    response::{Answered, Trouble},
};

/// Versions that are shown.
const VERSIONS: u32 = 20;
/// Decisions, as people call them.
const DECISIONS: [(&str, &str); 3] = [
    ("approve", "ask a person first"),
    ("allow", "let it go on"),
    ("deny", "refuse it"),
];
/// Who answers questions.
const ANSWERERS: [(&str, &str); 3] = [
    ("anyone", "any owner or editor"),
    ("person", "an owner or editor who has proven who they are"),
    (
        "another",
        "such a person, but not the one as whom the form acts",
    ),
];
/// How strangers have to do with a request.
const STRANGERS: [(&str, &str); 4] = [
    ("data", "what somebody wrote is sent"),
    ("recipient", "what somebody wrote says to whom it is sent"),
    ("control", "what somebody wrote decided that it is sent"),
    ("account", "what an account answered is sent"),
];

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage<'v> {
    visit: &'v Visit,
    place: PageWorkspace,
    stored: PolicyRow,
    /// As it is shown: with what was changed and not set yet.
    shown: Value,
    /// The same as JSON text, as it was given.
    text: String,
    history: Vec<PolicyVersion>,
    /// The accounts of the workspace that the person sees, by name.
    accounts: Vec<String>,
    /// What it would change, if it were set.
    change: Option<PolicyChange>,
    refused: Option<String>,
}

impl PolicyPage<'_> {
    /// Its rules, and then what holds otherwise, as sentences.
    fn sentences(&self) -> (Vec<String>, Vec<String>) {
        let count = self.shown["rules"].as_array().map_or(0, Vec::len);
        let mut rules = words::policy(&self.shown);
        let rest = rules.split_off(count.min(rules.len()));
        (rules, rest)
    }

    /// Whether a member of it has this value.
    fn is(&self, member: &str, value: &str) -> bool {
        self.shown[member] == value
    }

    /// Names what is shown, so that nothing else is set.
    fn previewed(&self) -> String {
        version(Some(&self.text))
    }

    /// Of which version what was changed is.
    fn version(&self) -> String {
        match self.visit.filled("version") {
            "" => self.stored.version.to_string(),
            given => given.to_owned(),
        }
    }
}

async fn found(visit: &Visit, given: Option<String>) -> Result<PolicyPage<'_>, Trouble> {
    let place = visit.some_place().await?;
    let operator = &visit.operator;
    let workspace = place.workspace;
    let stored = operator.policy(workspace).await?;
    let text = given.unwrap_or_else(|| format!("{:#}", stored.policy));
    let accounts = operator.accounts(workspace).await?.into_iter();
    let accounts = accounts.filter(|one| one.disconnected_at.is_none());
    let mut accounts: Vec<String> = accounts.map(|one| one.name).collect();
    accounts.sort();
    accounts.dedup();
    Ok(PolicyPage {
        visit,
        shown: serde_json::from_str(&text).unwrap_or_else(|_| stored.policy.clone()),
        text,
        history: operator.policy_history(workspace, VERSIONS).await?,
        accounts,
        change: None,
        refused: None,
        place,
        stored,
    })
}

/// The policy.
pub(crate) async fn show(visit: Visit) -> Answered {
    Ok(visit.page("Policy", &found(&visit, None).await?))
}

/// Sets the policy that was shown; or changes what is to be set, and says what that would change.
pub(crate) async fn change(visit: Visit) -> Answered {
    let workspace: WorkspaceId = id(visit.given("workspace")?)?;
    if !visit.rights(workspace).await?.is_owner() {
        return Err(refused("Only the owners of a workspace change its policy."));
    }
    let operator = &visit.operator;
    let text = edited(visit.given("policy")?, &visit)?;
    // What was filled in since is shown first.
    let is_shown = visit.filled("previewed") == version(Some(&text));
    let done = if visit.given("how")? == "set" && is_shown {
        let of = visit.given("version")?;
        let of = of.parse().map_err(|_| Trouble::Unreadable)?;
        let setting = operator.replace_policy(workspace, &text, Some(of));
        or_refusal(setting.await)?.map(|_| None)
    } else {
        let preview = operator.preview_policy(workspace, &text);
        or_refusal(preview.await)?.map(Some)
    };
    let mut found = match done {
        Ok(None) => return Ok(see_list("policy", workspace)),
        _ => found(&visit, Some(text)).await?,
    };
    match done {
        Err(refused) => {
            found.refused = Some(refused);
            Ok(visit.refusal("Policy", &found))
        }
        Ok(change) => {
            found.change = change;
            Ok(visit.page("Policy", &found))
        }
    }
}

/// A policy, changed as the pressed button and what was chosen say; what is no JSON stays as it is.
fn edited(text: &str, visit: &Visit) -> Result<String, Trouble> {
    let how = visit.given("how")?;
    let Ok(Value::Object(mut policy)) = serde_json::from_str(text) else {
        return Ok(text.to_owned());
    };
    if how != "check" {
        for (member, usual) in [("default", ""), ("approve_by", ANSWERERS[0].0)] {
            let chosen = visit.filled(member);
            let is_said = policy.contains_key(member) || chosen != usual;
            if is_said && !chosen.is_empty() {
                policy.insert(member.to_owned(), chosen.into());
            }
        }
    }
    if let Some(Value::Array(rules)) = policy.get_mut("rules") {
        match how {
            // The first rule that fits decides.
            "add" => rules.insert(0, rule(visit)?),
            how => arrange(rules, how),
        }
    }
    Ok(format!("{:#}", Value::Object(policy)))
}

/// The rule that was filled in.
fn rule(visit: &Visit) -> Result<Value, Trouble> {
    let given = |name: &str| Some(visit.filled(name)).filter(|value| !value.is_empty());
    let mut when = Map::new();
    for name in ["account", "untrusted"] {
        when.extend(given(name).map(|value| (name.to_owned(), value.into())));
    }
    let methods = match visit.filled("method") {
        "reads" => Some(json!(["GET", "HEAD"])),
        "writes" => Some(json!(["POST", "PUT", "PATCH", "DELETE"])),
        _ => None,
    };
    when.extend(methods.map(|methods| ("method".to_owned(), methods)));
    Ok(json!({"when": when, "decision": visit.given("decision")?}))
}

/// Has a person asked before anything is sent to accounts of this name, from now on; otherwise
/// says why not.
pub(super) async fn ask_first(
    visit: &Visit,
    workspace: WorkspaceId,
    account: &str,
) -> Result<Result<(), String>, Trouble> {
    let mut stored = visit.operator.policy(workspace).await?;
    match with_question(&mut stored.policy, account) {
        Err(why) => return Ok(Err(why.to_owned())),
        Ok(false) => return Ok(Ok(())),
        Ok(true) => {}
    }
    let text = format!("{:#}", stored.policy);
    let (operator, of) = (&visit.operator, stored.version);
    let setting = operator.replace_policy(workspace, &text, Some(of));
    Ok(or_refusal(setting.await)?.map(drop))
}

/// Adds the rule that a person is asked about an account, and says whether it wasn't there. It must
/// let nothing pass that is refused now: the first rule that fits decides.
fn with_question(policy: &mut Value, account: &str) -> Result<bool, &'static str> {
    const REFUSES: &str = "Not saved: the policy refuses some requests, and a rule that asks first \
        could let them pass. Add that rule in the policy, at its place.";
    let rule = json!({"when": {"account": account}, "decision": "approve"});
    let denies = |one: &Value| *one == "deny";
    let is_strict = denies(&policy["default"]);
    let rules = policy.get_mut("rules").and_then(Value::as_array_mut);
    let rules = rules.ok_or(REFUSES)?;
    let at = rules
        .iter()
        .take_while(|one| denies(&one["decision"]))
        .count();
    if rules.get(at) == Some(&rule) {
        return Ok(false);
    }
    if is_strict || rules[at..].iter().any(|one| denies(&one["decision"])) {
        return Err(REFUSES);
    }
    rules.retain(|one| *one != rule);
    rules.insert(at, rule);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_lets_nothing_pass_that_is_refused() {
        let [ask, deny, allow] = ["approve", "deny", "allow"]
            .map(|decision| json!({"when": {"account": "crm"}, "decision": decision}));
        for (rules, default, expected) in [
            (vec![], "allow", Ok(vec![&ask])),
            (vec![&deny, &allow], "allow", Ok(vec![&deny, &ask, &allow])),
            (vec![&allow, &ask], "approve", Ok(vec![&ask, &allow])),
            (vec![&allow, &deny], "allow", Err(())),
            (vec![], "deny", Err(())),
        ] {
            let mut policy = json!({"rules": rules, "default": default});
            let added = with_question(&mut policy, "crm");
            assert_eq!(added.is_ok(), expected.is_ok(), "{policy}");
            if let Ok(expected) = expected {
                assert_eq!(policy["rules"], json!(expected));
                assert_eq!(with_question(&mut policy, "crm"), Ok(false), "{policy}");
            }
        }
        for mut odd in [json!([]), json!(null), json!({}), json!({"rules": 1})] {
            assert!(with_question(&mut odd, "crm").is_err(), "{odd}");
        }
    }
}
