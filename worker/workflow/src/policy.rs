//! A workspace's policy: whether a request is allowed, needs a person's approval, or is denied. The
//! first matching rule decides, otherwise the default.

use letterbox_common::text_enum;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    actions::{self, METHODS},
    taint::{Steering, Taint, Untrusted},
};

text_enum! {
    /// The decision of a policy about an action.
    pub enum Decision {
        /// The request is sent
        Allow = "allow",
        /// The request is sent after a member has approved it
        Approve = "approve",
        /// The request is not sent, and the run ends
        Deny = "deny",
    }
}

/// As its column takes it.
const MAX_BYTES: usize = 262_144;
/// The database reads members of policies, and its texts hold no such character.
const NUL: &str = "must not contain U+0000";

/// The method of requests that only read.
const READING: &str = "GET";

text_enum! {
    /// Who may approve.
    pub enum ApproveBy {
        /// Any active owner or editor of the workspace
        Anyone = "anyone",
        /// Such a person who has proven who they are
        Person = "person",
        /// Such a person other than the user as whom the run acts
        Another = "another",
    }
}

/// The facts about an action that a policy decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionFacts<'a> {
    /// Kind of the action.
    pub action: &'a str,
    /// Name of the account.
    pub account: &'a str,
    /// Method of the request, in capital letters.
    pub method: &'a str,
    /// Host of the request, in lower case.
    pub host: &'a str,
    /// How untrusted text reaches the action.
    pub taint: Taint,
}

/// The rules of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Names the schema, for editors.
    #[serde(
        rename = "$schema",
        skip_serializing,
        default,
        deserialize_with = "given"
    )]
    schema: Option<String>,
    rules: Vec<Rule>,
    default: Decision,
    /// Who may approve; the database checks it when an approval is answered.
    #[serde(
        skip_serializing_if = "Option::is_none",
        default,
        deserialize_with = "given"
    )]
    approve_by: Option<ApproveBy>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    when: When,
    decision: Decision,
}

/// The requirements of a rule. An absent member matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct When {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    method: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    host: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    untrusted: Option<Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    steered_by: Option<Steering>,
}

/// Reads a member that is present. Refuses `null`, which is probably a mistake.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(given: D) -> Result<Option<T>, D::Error> {
    T::deserialize(given).map(Some)
}

/// A decision, and the rule that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling {
    /// The decision of the rule or the default, with the safeguard applied.
    pub decision: Decision,
    /// The rule that decided, counted from 1; `None` if the default did.
    pub rule: Option<i32>,
}

impl Default for Policy {
    /// The policy of a workspace that has set none. Allows everything except actions that untrusted
    /// text steers through an `ai.condition`, and each `http.request` with a method other than GET
    /// that an `ai.agent` steers, as its tool call or later, each e-mail that one steers, and each
    /// e-mail that goes where untrusted text says: those need approval.
    fn default() -> Self {
        let approve = |when| Rule {
            when,
            decision: Decision::Approve,
        };
        let by_condition = When {
            steered_by: Some(Steering::AiCondition),
            ..When::default()
        };
        let writing = METHODS.iter().filter(|method| **method != READING);
        let by_agent = When {
            action: Some(actions::TOOL_CALL.name.to_owned()),
            method: Some(writing.map(|method| (*method).to_owned()).collect()),
            steered_by: Some(Steering::AiAgent),
            ..When::default()
        };
        let email = |how| When {
            action: Some(actions::EMAIL.name.to_owned()),
            ..how
        };
        let email_by_agent = email(When {
            steered_by: Some(Steering::AiAgent),
            ..When::default()
        });
        let email_to_strangers = email(When {
            untrusted: Some(Untrusted::Recipient),
            ..When::default()
        });
        let rules = [by_condition, by_agent, email_by_agent, email_to_strangers];
        Self {
            schema: None,
            rules: rules.map(approve).into(),
            default: Decision::Allow,
            approve_by: None,
        }
    }
}

impl Policy {
    /// Parses JSON text. An error says the problem and its path.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            let length = text.len();
            return Err(format!("must have at most {MAX_BYTES} bytes, not {length}"));
        }
        let mut policy: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let schema = policy.schema.take();
        if schema.is_some_and(|schema| schema.contains('\0')) {
            return Err(format!("$schema: {NUL}"));
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            let checked = rule.when.check();
            checked.map_err(|error| format!("rules[{index}].when.{error}"))?;
        }
        Ok(policy)
    }

    /// Decides about an action.
    #[must_use]
    pub fn decide(&self, facts: &ActionFacts<'_>) -> Ruling {
        let mut rules = self.rules.iter().zip(1..);
        let found = rules.find(|(rule, _)| rule.when.matches(facts));
        let decision = found.map_or(self.default, |(rule, _)| rule.decision);
        Ruling {
            decision: match decision {
                Decision::Allow if self.is_safeguarded(facts) => Decision::Approve,
                decided => decided,
            },
            rule: found.map(|(_, number)| number),
        }
    }

    /// Returns the rules that can't match anything, each with its path and the reason. `accounts`
    /// are the names and hosts of connected accounts.
    pub fn useless_rules(&self, accounts: &[(String, String)]) -> Vec<String> {
        let mut found = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let mut add = |problem: String| found.push(format!("rules[{index}]: {problem}"));
            if let Some(account) = &rule.when.account
                && !accounts.iter().any(|(name, _)| name == account)
            {
                add(format!("no connected account has the name {account:?}"));
            }
            for host in rule.when.host.iter().flatten() {
                if !accounts.iter().any(|(_, at)| is_same_host(at, host)) {
                    add(format!("no connected account is at the host {host}"));
                }
            }
            let mut before = self.rules[..index].iter();
            if let Some(earlier) = before.position(|earlier| earlier.hides(rule)) {
                add(format!("never applies, because rules[{earlier}] covers it"));
            }
        }
        found
    }

    /// Whether an allowed action needs approval nevertheless: a model steered it, and no rule that
    /// matches the action names that steering and allows it.
    fn is_safeguarded(&self, facts: &ActionFacts<'_>) -> bool {
        let is_unsettled = |steering| {
            // A rule about another account or method says nothing about this action.
            let names =
                |rule: &&Rule| rule.when.steered_by == Some(steering) && rule.when.matches(facts);
            let named = self.rules.iter().find(names);
            facts.taint.steered.contains(steering)
                && named.is_none_or(|rule| rule.decision != Decision::Allow)
        };
        let is_call = facts.action == actions::TOOL_CALL.name && facts.method != READING;
        let writes = is_call || facts.action == actions::EMAIL.name;
        is_unsettled(Steering::AiCondition) || writes && is_unsettled(Steering::AiAgent)
    }
}

impl Rule {
    /// Whether a later rule has no effect because of this one. One that allows what a model steered
    /// has: it lifts the safeguard for what this one allows.
    fn hides(&self, later: &Self) -> bool {
        let by_model = [Steering::AiCondition, Steering::AiAgent].map(Some);
        let lifts = later.decision == Decision::Allow
            && by_model.contains(&later.when.steered_by)
            && self.decision == Decision::Allow
            && self.when.steered_by.is_none();
        self.when.covers(&later.when) && !lifts
    }
}

impl When {
    /// Refuses requirements that nothing can meet.
    fn check(&self) -> Result<(), String> {
        let sending = actions::sending_kinds();
        let is_in = |known: &[&str], given: &String| known.contains(&given.as_str());
        let is_host = |host: &String| {
            let parsed = url::Host::parse(host);
            parsed.is_ok_and(|parsed| parsed.to_string() == *host)
        };
        let mut methods = self.method.iter().flatten();
        if self.action.iter().any(|name| !is_in(&sending, name)) {
            Err(format!("action: must be one of {}", sending.join(", ")))
        } else if self.account.iter().any(|name| name.contains('\0')) {
            Err(format!("account: {NUL}"))
        } else if self.method.as_ref().is_some_and(Vec::is_empty) {
            Err("method: must not be empty, because nothing would match".to_owned())
        } else if let Some(hosts) = &self.host
            && (hosts.is_empty() || !hosts.iter().all(is_host))
        {
            Err("host: must be a list of hosts in lower case, without ports".to_owned())
        } else if methods.any(|method| !is_in(&METHODS, method)) {
            Err(format!("method: must be a list of {}", METHODS.join(", ")))
        } else {
            Ok(())
        }
    }

    /// Whether this matches whenever `other` does, as far as their members show.
    fn covers(&self, other: &Self) -> bool {
        fn one<T: PartialEq>(mine: &Option<T>, other: &Option<T>) -> bool {
            mine.is_none() || mine == other
        }
        fn any(mine: &Option<Vec<String>>, other: &Option<Vec<String>>) -> bool {
            let Some(mine) = mine else { return true };
            let others = other.as_deref();
            others.is_some_and(|others| others.iter().all(|other| mine.contains(other)))
        }
        // A steered action always has the taint `control`.
        let untrusted = one(&self.untrusted, &other.untrusted)
            || self.untrusted == Some(Untrusted::Control) && other.steered_by.is_some();
        one(&self.action, &other.action)
            && one(&self.account, &other.account)
            && any(&self.method, &other.method)
            && any(&self.host, &other.host)
            && one(&self.steered_by, &other.steered_by)
            && untrusted
    }

    fn matches(&self, facts: &ActionFacts<'_>) -> bool {
        fn is<T: PartialEq + ?Sized>(wanted: Option<&T>, fact: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == fact)
        }
        fn any(wanted: Option<&Vec<String>>, is: impl Fn(&String) -> bool) -> bool {
            wanted.is_none_or(|wanted| wanted.iter().any(is))
        }
        let Taint { steered, .. } = facts.taint;
        is(self.action.as_deref(), facts.action)
            && is(self.account.as_deref(), facts.account)
            && any(self.method.as_ref(), |method| method == facts.method)
            && any(self.host.as_ref(), |host| is_same_host(host, facts.host))
            && self.steered_by.is_none_or(|by| steered.contains(by))
            && self
                .untrusted
                .is_none_or(|how| facts.taint.kinds().contains(&how))
    }
}

/// Whether two names are the same host: the dot at the end of an absolute name says nothing.
fn is_same_host(one: &str, other: &str) -> bool {
    one.strip_suffix('.').unwrap_or(one) == other.strip_suffix('.').unwrap_or(other)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::taint::Steered;

    const FACTS: ActionFacts<'static> = ActionFacts {
        action: "http.request",
        account: "crm",
        method: "POST",
        host: "crm.example.com",
        taint: Taint {
            account: false,
            data: true,
            recipient: false,
            steered: Steered::NONE,
        },
    };

    fn steered(by: &[Steering]) -> ActionFacts<'static> {
        let steered = by.iter().fold(Steered::NONE, |all, one| all.with(*one));
        ActionFacts {
            taint: Taint {
                steered,
                ..FACTS.taint
            },
            ..FACTS
        }
    }

    fn decide(policy: &str, facts: ActionFacts<'_>) -> (Decision, Option<i32>) {
        let ruling = Policy::parse(policy).unwrap().decide(&facts);
        (ruling.decision, ruling.rule)
    }

    #[test]
    fn the_default_asks_only_for_what_was_steered_through_a_model() {
        let decide = |by: &[Steering]| Policy::default().decide(&steered(by)).decision;
        assert_eq!(decide(&[]), Decision::Allow);
        assert_eq!(decide(&[Steering::Condition]), Decision::Allow);
        assert_eq!(decide(&[Steering::Outcome]), Decision::Allow);
        assert_eq!(decide(&[Steering::AiCondition]), Decision::Approve);
        let text = serde_json::to_string(&Policy::default()).unwrap();
        assert_eq!(Policy::parse(&text), Ok(Policy::default()));
    }

    #[test]
    fn rules_that_can_match_nothing_are_found() {
        let policy = Policy::parse(
            r#"{"rules":[
            {"when":{"account":"CRM"},"decision":"deny"},
            {"when":{"host":["crm.example.com","bank.example.com"]},"decision":"deny"},
            {"when":{"method":["PUT","DELETE"]},"decision":"deny"},
            {"when":{"method":["PUT"],"account":"crm"},"decision":"allow"},
            {"when":{"method":["PUT","POST"]},"decision":"allow"},
            {"when":{"untrusted":"control"},"decision":"deny"},
            {"when":{"steered_by":"outcome"},"decision":"allow"}],
            "default":"allow"}"#,
        );
        let accounts = [("crm".to_owned(), "crm.example.com".to_owned())];
        assert_eq!(
            policy.unwrap().useless_rules(&accounts),
            [
                "rules[0]: no connected account has the name \"CRM\"",
                "rules[1]: no connected account is at the host bank.example.com",
                "rules[3]: never applies, because rules[2] covers it",
                "rules[6]: never applies, because rules[5] covers it",
            ]
        );
    }

    #[test]
    fn what_an_agent_reads_needs_no_approval() {
        let of = |action, method| {
            let by_agent = steered(&[Steering::AiAgent]);
            let facts = ActionFacts {
                action,
                method,
                ..by_agent
            };
            Policy::default().decide(&facts).decision
        };
        let call = actions::TOOL_CALL.name;
        assert_eq!(of(call, "POST"), Decision::Approve);
        assert_eq!(of(call, READING), Decision::Allow);
        assert_eq!(of("ai.condition", "POST"), Decision::Allow);
    }

    #[test]
    fn a_rule_hides_what_it_covers_unless_that_lifts_the_safeguard() {
        let by_condition = r#"{"steered_by":"condition"}"#;
        let by_agent = r#"{"steered_by":"ai.agent"}"#;
        let by_agent_to_crm = r#"{"steered_by":"ai.agent","account":"crm"}"#;
        let to_crm = r#"{"account":"crm"}"#;
        let any = "{}";
        let control = r#"{"untrusted":"control"}"#;
        let data = r#"{"untrusted":"data"}"#;
        for (earlier, decision, later, later_decision, is_hidden) in [
            (any, "allow", to_crm, "allow", true),
            (any, "allow", to_crm, "deny", true),
            (any, "allow", by_condition, "allow", true),
            (any, "allow", by_agent, "allow", false),
            (any, "allow", by_agent, "deny", true),
            (any, "deny", by_agent, "allow", true),
            (by_agent, "allow", by_agent_to_crm, "allow", true),
            (control, "deny", by_agent, "deny", true),
            (data, "deny", by_agent, "deny", false),
        ] {
            let policy = format!(
                r#"{{"rules":[{{"when":{earlier},"decision":"{decision}"}},
                    {{"when":{later},"decision":"{later_decision}"}}],"default":"allow"}}"#
            );
            let policy = Policy::parse(&policy).unwrap();
            let useless = policy.useless_rules(&[("crm".into(), String::new())]);
            assert_eq!(!useless.is_empty(), is_hidden, "{policy:?}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = r#"{"rules":[
            {"when":{"action":"ai.condition"},"decision":"deny"},
            {"when":{"account":"crm","method":["PUT","DELETE"]},"decision":"approve"},
            {"when":{"untrusted":"control"},"decision":"deny"},
            {"when":{"untrusted":"data","account":"crm"},"decision":"approve"},
            {"when":{},"decision":"allow"}],"default":"deny"}"#;
        let ai = ActionFacts {
            action: "ai.condition",
            ..FACTS
        };
        let put = ActionFacts {
            method: "PUT",
            ..FACTS
        };
        let clean = ActionFacts {
            taint: Taint::default(),
            ..FACTS
        };
        let other = ActionFacts {
            account: "other",
            ..FACTS
        };
        for (facts, expected) in [
            (ai, (Decision::Deny, Some(1))),
            (put, (Decision::Approve, Some(2))),
            (steered(&[Steering::Condition]), (Decision::Deny, Some(3))),
            (FACTS, (Decision::Approve, Some(4))),
            (clean, (Decision::Allow, Some(5))),
            (other, (Decision::Allow, Some(5))),
        ] {
            assert_eq!(decide(policy, facts), expected, "{facts:?}");
        }
        let by_default = decide(r#"{"rules":[],"default":"deny"}"#, FACTS);
        assert_eq!(by_default, (Decision::Deny, None));
    }

    /// An action that is steered in several ways is matched by each of them.
    #[test]
    fn nesting_hides_no_steering() {
        let both = steered(&[Steering::Condition, Steering::AiCondition]);
        for by in ["condition", "ai.condition"] {
            let policy = format!(
                r#"{{"rules":[{{"when":{{"steered_by":"{by}"}},"decision":"deny"}}],
                    "default":"allow"}}"#
            );
            assert_eq!(decide(&policy, both).0, Decision::Deny, "{by}");
        }
    }

    /// A policy that doesn't mention models doesn't switch their safeguard off.
    #[test]
    fn what_a_model_steered_needs_approval_unless_the_policy_speaks_of_it() {
        let steered = steered(&[Steering::AiCondition]);
        let silent = r#"{"rules":[{"when":{"account":"bank"},"decision":"deny"}],
            "default":"allow"}"#;
        assert_eq!(decide(silent, steered), (Decision::Approve, None));
        assert_eq!(decide(silent, FACTS), (Decision::Allow, None));
        let of_another = r#"{"rules":[{"when":{"steered_by":"ai.condition","account":"bank"},
            "decision":"allow"}],"default":"allow"}"#;
        assert_eq!(decide(of_another, steered), (Decision::Approve, None));
        let speaking = r#"{"rules":[{"when":{"steered_by":"ai.condition","account":"crm"},
            "decision":"allow"}],"default":"deny"}"#;
        assert_eq!(decide(speaking, steered), (Decision::Allow, Some(1)));
        let strict = r#"{"rules":[],"default":"deny"}"#;
        assert_eq!(decide(strict, steered), (Decision::Deny, None));
    }

    /// A rule that allows an action without naming the steering doesn't switch it off either.
    #[test]
    fn a_rule_that_allows_switches_no_safeguard_off() {
        let by_condition = steered(&[Steering::AiCondition]);
        let by_agent = steered(&[Steering::AiAgent]);
        let silent = r#"{"rules":[{"when":{"account":"crm"},"decision":"allow"}],
            "default":"deny"}"#;
        assert_eq!(decide(silent, FACTS), (Decision::Allow, Some(1)));
        assert_eq!(decide(silent, by_condition), (Decision::Approve, Some(1)));
        assert_eq!(decide(silent, by_agent), (Decision::Approve, Some(1)));
        let speaking = r#"{"rules":[
            {"when":{"account":"crm"},"decision":"allow"},
            {"when":{"steered_by":"ai.condition","account":"crm"},"decision":"allow"}],
            "default":"deny"}"#;
        assert_eq!(decide(speaking, by_condition), (Decision::Allow, Some(1)));
        assert_eq!(decide(speaking, by_agent), (Decision::Approve, Some(1)));
        let policy = Policy::parse(speaking).unwrap();
        let useless = policy.useless_rules(&[("crm".into(), String::new())]);
        assert!(useless.is_empty(), "{useless:?}");
        let shadowed = speaking.replace(
            r#"account":"crm"},"decision":"allow"}],"#,
            r#"account":"crm"},"decision":"approve"}],"#,
        );
        assert_eq!(
            decide(&shadowed, by_condition),
            (Decision::Approve, Some(1))
        );
    }

    #[test]
    fn a_rule_can_name_where_a_request_goes() {
        let policy = r#"{"rules":[{"when":{"host":["crm.example.com"]},"decision":"deny"}],
            "default":"allow"}"#;
        assert_eq!(decide(policy, FACTS).0, Decision::Deny);
        let at = |host| ActionFacts { host, ..FACTS };
        assert_eq!(decide(policy, at("example.com")).0, Decision::Allow);
        // The same host, as an absolute name.
        assert_eq!(decide(policy, at("crm.example.com.")).0, Decision::Deny);
        let absolute = policy.replace("example.com", "example.com.");
        assert_eq!(decide(&absolute, FACTS).0, Decision::Deny);
    }

    /// Rules take their words from the registry: every kind of action that sends can be named.
    #[test]
    fn every_kind_that_sends_can_be_named_in_a_rule() {
        for kind in &actions::KINDS {
            let name = kind.name;
            let text = format!(
                r#"{{"rules":[{{"when":{{"action":"{name}"}},"decision":"deny"}}],
                    "default":"allow"}}"#
            );
            assert_eq!(Policy::parse(&text).is_ok(), kind.sends, "{name}");
        }
        for steering in [Steering::Condition, Steering::AiCondition] {
            let kinds = actions::KINDS
                .iter()
                .filter(|kind| kind.steering == Some(steering));
            assert_eq!(
                kinds.map(|kind| kind.name).collect::<Vec<_>>(),
                [steering.as_str()]
            );
        }
    }

    #[test]
    fn the_schema_has_every_steering() {
        let schema: serde_json::Value = crate::POLICY_SCHEMA.parse().unwrap();
        let known = &schema["$defs"]["when"]["properties"]["steered_by"]["enum"];
        let all = Steering::ALL.iter().map(|steering| steering.as_str());
        assert_eq!(*known, all.collect::<serde_json::Value>());
    }

    #[test]
    fn a_policy_that_could_be_misread_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"rules":[]}"#,
            r#"{"default":"allow"}"#,
            r#"{"rules":[],"default":"maybe"}"#,
            r#"{"rules":[],"default":"allow","more":1}"#,
            r#"{"$schema":null,"rules":[],"default":"allow"}"#,
            r#"{"rules":[{"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"acount":"x"},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"method":"POST"},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"method":[]},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"method":["delete"]},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"action":"http"},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"untrusted":"both"},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"account":null},"decision":"allow"}],"default":"deny"}"#,
            r#"{"rules":[{"when":{"method":null},"decision":"allow"}],"default":"deny"}"#,
            r#"{"rules":[{"when":{"host":[]},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"host":["Example.com"]},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"host":["a.example:443"]},"decision":"deny"}],
                "default":"allow"}"#,
            r#"{"rules":[{"when":{"host":["https://a.example"]},"decision":"deny"}],
                "default":"allow"}"#,
        ] {
            assert!(Policy::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        /// The database can read every string of what is taken for a policy.
        #[test]
        fn no_string_of_a_policy_has_a_nul(
            texts in prop::array::uniform8("[a-z.\0]{0,6}"),
            keeps in prop::array::uniform8(any::<bool>()),
        ) {
            let proper =
                ["x", "http.request", "crm", "GET", "a.example", "data", "outcome", "deny"];
            let text = |at: usize| if keeps[at] { proper[at] } else { texts[at].as_str() };
            let policy = serde_json::json!({"$schema": text(0), "default": "allow", "rules": [
                {"when": {"action": text(1), "account": text(2), "method": [text(3)],
                    "host": [text(4)], "untrusted": text(5), "steered_by": text(6)},
                 "decision": text(7)}]});
            let has_nul = (0..8).any(|at| text(at).contains('\0'));
            let parsed = Policy::parse(&policy.to_string());
            prop_assert!(parsed.is_err() || !has_nul, "{policy}");
            let all_proper = (0..8).all(|at| text(at) == proper[at]);
            prop_assert!(parsed.is_ok() || !all_proper, "{policy}: {parsed:?}");
        }
    }
}
