//! A workspace's policy: whether an action may be sent, needs a person's approval, or may not. The
//! first rule that matches decides, else the default.

use letterbox_common::text_enum;
use serde::{Deserialize, Serialize};

use crate::{
    actions::{self, METHODS},
    taint::{Steering, Taint, Untrusted},
};

text_enum! {
    /// What a policy says of an action.
    pub enum Decision {
        /// It is sent
        Allow = "allow",
        /// It is sent after a member has approved it
        Approve = "approve",
        /// It is not sent, and the run is over
        Deny = "deny",
    }
}

/// What a policy is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionFacts<'a> {
    /// Kind of the action.
    pub action: &'a str,
    /// Name of the account.
    pub account: &'a str,
    /// Method of the request, in capital letters.
    pub method: &'a str,
    /// How text that a submitter wrote reaches the action.
    pub taint: Taint,
}

/// The rules of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    rules: Vec<Rule>,
    default: Decision,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    when: When,
    decision: Decision,
}

/// What a rule requires. A rule does not depend on what it does not mention.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    untrusted: Option<Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steered_by: Option<Steering>,
}

/// What a policy decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling {
    /// What the rule, or the default, says.
    pub decision: Decision,
    /// The rule that decided, counted from 1; none where the default did.
    pub rule: Option<i32>,
}

impl Default for Policy {
    /// The policy of a workspace that has set none: allows everything but what untrusted text
    /// steers through an `ai.condition`, which needs approval.
    fn default() -> Self {
        let when = When {
            steered_by: Some(Steering::AiCondition),
            ..When::default()
        };
        Self {
            rules: vec![Rule {
                when,
                decision: Decision::Approve,
            }],
            default: Decision::Allow,
        }
    }
}

impl Policy {
    /// Parses JSON text.
    ///
    /// # Errors
    /// Says what is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let policy: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.when
                .check()
                .map_err(|error| format!("rules[{index}].when.{error}"))?;
        }
        Ok(policy)
    }

    /// Asks the policy about an action.
    #[must_use]
    pub fn decide(&self, facts: &ActionFacts<'_>) -> Ruling {
        let found = self
            .rules
            .iter()
            .zip(1..)
            .find(|(rule, _)| rule.when.matches(facts));
        match found {
            Some((rule, number)) => Ruling {
                decision: rule.decision,
                rule: Some(number),
            },
            None => Ruling {
                decision: self.default,
                rule: None,
            },
        }
    }
}

impl When {
    /// A rule that can match nothing is a mistake.
    fn check(&self) -> Result<(), String> {
        let sending = actions::sending_kinds();
        if self
            .action
            .as_ref()
            .is_some_and(|action| !sending.contains(&action.as_str()))
        {
            return Err(format!("action: must be one of {}", sending.join(", ")));
        }
        if self.method.as_ref().is_some_and(Vec::is_empty) {
            return Err("method: must not be empty: nothing would match".to_owned());
        }
        let mut methods = self.method.iter().flatten();
        match methods.find(|method| !METHODS.contains(&method.as_str())) {
            Some(_) => Err(format!("method: must be a list of {}", METHODS.join(", "))),
            None => Ok(()),
        }
    }

    fn matches(&self, facts: &ActionFacts<'_>) -> bool {
        let Taint { data, control } = facts.taint;
        self.action
            .as_deref()
            .is_none_or(|action| action == facts.action)
            && self
                .account
                .as_deref()
                .is_none_or(|account| account == facts.account)
            && self
                .method
                .as_ref()
                .is_none_or(|methods| methods.iter().any(|method| method == facts.method))
            && self
                .steered_by
                .is_none_or(|steering| control == Some(steering))
            && match self.untrusted {
                None => true,
                Some(Untrusted::Data) => data,
                Some(Untrusted::Control) => control.is_some(),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Taint = Taint {
        data: true,
        control: None,
    };
    const FACTS: ActionFacts<'static> = ActionFacts {
        action: "http.request",
        account: "crm",
        method: "POST",
        taint: DATA,
    };

    fn steered(control: Option<Steering>) -> ActionFacts<'static> {
        ActionFacts {
            taint: Taint { control, ..DATA },
            ..FACTS
        }
    }

    fn decide(policy: &str, facts: ActionFacts<'_>) -> (Decision, Option<i32>) {
        let ruling = Policy::parse(policy).unwrap().decide(&facts);
        (ruling.decision, ruling.rule)
    }

    #[test]
    fn the_default_asks_only_for_what_was_steered_through_a_model() {
        let decide = |control| Policy::default().decide(&steered(control)).decision;
        assert_eq!(decide(None), Decision::Allow);
        assert_eq!(decide(Some(Steering::Condition)), Decision::Allow);
        assert_eq!(decide(Some(Steering::AiCondition)), Decision::Approve);
        let text = serde_json::to_string(&Policy::default()).unwrap();
        assert_eq!(Policy::parse(&text), Ok(Policy::default()));
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
            (
                steered(Some(Steering::Condition)),
                (Decision::Deny, Some(3)),
            ),
            (FACTS, (Decision::Approve, Some(4))),
            (clean, (Decision::Allow, Some(5))),
            (other, (Decision::Allow, Some(5))),
        ] {
            assert_eq!(decide(policy, facts), expected, "{facts:?}");
        }
        let by_default = decide(r#"{"rules":[],"default":"deny"}"#, FACTS);
        assert_eq!(by_default, (Decision::Deny, None));
    }

    /// The words of a rule are the registry's: a kind of action that sends can be named.
    #[test]
    fn every_kind_that_sends_can_be_named_in_a_rule() {
        for kind in &actions::KINDS {
            let name = kind.name;
            let text = format!(
                r#"{{"rules":[{{"when":{{"action":"{name}"}},"decision":"deny"}}],
                    "default":"allow"}}"#
            );
            assert_eq!(Policy::parse(&text).is_ok(), kind.sends(), "{name}");
        }
        for steering in Steering::ALL {
            let kinds = actions::KINDS
                .iter()
                .filter(|kind| kind.steering == Some(*steering));
            assert_eq!(
                kinds.map(|kind| kind.name).collect::<Vec<_>>(),
                [steering.as_str()]
            );
        }
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
            r#"{"rules":[{"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"acount":"x"},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"method":"POST"},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"method":[]},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"method":["delete"]},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"action":"http"},"decision":"deny"}],"default":"allow"}"#,
            r#"{"rules":[{"when":{"untrusted":"both"},"decision":"deny"}],"default":"allow"}"#,
        ] {
            assert!(Policy::parse(text).is_err(), "{text}");
        }
    }
}
