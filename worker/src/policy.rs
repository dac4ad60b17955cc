//! A workspace's policy: whether an action may be sent, needs somebody's approval, or may not.
//! Pure: the first rule that matches decides, else the default.

use serde::{Deserialize, Serialize};

use crate::actions::http_request::METHODS;

/// What a policy says of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allow,
    /// Only after a member has approved it.
    Approve,
    Deny,
}

impl Decision {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

/// How untrusted text has to do with an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Untrusted {
    /// It fills the request.
    Data,
    /// A condition over it decided that the action runs.
    Control,
}

/// What kind of condition was steered by untrusted text. An `ai.condition` outranks a plain one: it
/// can be talked round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Steering {
    #[serde(rename = "condition")]
    Condition,
    #[serde(rename = "ai.condition")]
    AiCondition,
}

impl Steering {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::AiCondition => "ai.condition",
        }
    }
}

/// What a policy is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Type of the action.
    pub action: &'a str,
    /// Name of the account.
    pub account: &'a str,
    pub method: &'a str,
    /// Whether untrusted text fills the request.
    pub data: bool,
    /// What untrusted text steered the run here by.
    pub control: Option<Steering>,
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

/// What a rule asks for; what it does not mention may be anything.
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

/// What a policy decided, and by which of its rules, counted from 1; none where the default did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling {
    pub decision: Decision,
    pub rule: Option<i32>,
}

impl Default for Policy {
    /// Of a workspace that has set none: lets data through, and asks for approval of what untrusted
    /// text steers through an `ai.condition`.
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
    /// Reads JSON text.
    ///
    /// # Errors
    /// Says what is wrong with it, and where.
    pub fn read(text: &str) -> Result<Self, String> {
        let policy: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (index, rule) in policy.rules.iter().enumerate() {
            let action = rule.when.action.as_deref();
            if action.is_some_and(|action| !["http.request", "ai.condition"].contains(&action)) {
                return Err(format!(
                    "rules[{index}].when.action: has to be http.request or ai.condition"
                ));
            }
            if rule.when.method.as_ref().is_some_and(Vec::is_empty) {
                return Err(format!(
                    "rules[{index}].when.method: an empty list matches nothing"
                ));
            }
            let mut methods = rule.when.method.iter().flatten();
            if let Some(method) =
                methods.find(|method| METHODS.iter().all(|(known, _)| known != method))
            {
                return Err(format!(
                    "rules[{index}].when.method: {method:?} is no method of a request"
                ));
            }
        }
        Ok(policy)
    }

    #[must_use]
    pub fn decide(&self, facts: &Facts<'_>) -> Ruling {
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
    fn matches(&self, facts: &Facts<'_>) -> bool {
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
                .is_none_or(|steering| facts.control == Some(steering))
            && match self.untrusted {
                None => true,
                Some(Untrusted::Data) => facts.data,
                Some(Untrusted::Control) => facts.control.is_some(),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts<'static> = Facts {
        action: "http.request",
        account: "crm",
        method: "POST",
        data: true,
        control: None,
    };

    fn decide(policy: &str, facts: Facts<'_>) -> (Decision, Option<i32>) {
        let ruling = Policy::read(policy).unwrap().decide(&facts);
        (ruling.decision, ruling.rule)
    }

    #[test]
    fn the_default_asks_only_for_what_a_model_was_steered_to() {
        let decide = |control| {
            Policy::default()
                .decide(&Facts { control, ..FACTS })
                .decision
        };
        assert_eq!(decide(None), Decision::Allow);
        assert_eq!(decide(Some(Steering::Condition)), Decision::Allow);
        assert_eq!(decide(Some(Steering::AiCondition)), Decision::Approve);
        let text = serde_json::to_string(&Policy::default()).unwrap();
        assert_eq!(Policy::read(&text), Ok(Policy::default()));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = r#"{"rules":[
            {"when":{"action":"ai.condition"},"decision":"deny"},
            {"when":{"account":"crm","method":["PUT","DELETE"]},"decision":"approve"},
            {"when":{"untrusted":"control"},"decision":"deny"},
            {"when":{"untrusted":"data","account":"crm"},"decision":"approve"},
            {"when":{},"decision":"allow"}],"default":"deny"}"#;
        for (facts, expected) in [
            (
                Facts {
                    action: "ai.condition",
                    ..FACTS
                },
                (Decision::Deny, Some(1)),
            ),
            (
                Facts {
                    method: "PUT",
                    ..FACTS
                },
                (Decision::Approve, Some(2)),
            ),
            (
                Facts {
                    control: Some(Steering::Condition),
                    ..FACTS
                },
                (Decision::Deny, Some(3)),
            ),
            (FACTS, (Decision::Approve, Some(4))),
            (
                Facts {
                    data: false,
                    ..FACTS
                },
                (Decision::Allow, Some(5)),
            ),
            (
                Facts {
                    account: "other",
                    ..FACTS
                },
                (Decision::Allow, Some(5)),
            ),
        ] {
            assert_eq!(decide(policy, facts), expected, "{facts:?}");
        }
        assert_eq!(
            decide(r#"{"rules":[],"default":"deny"}"#, FACTS),
            (Decision::Deny, None)
        );
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
            assert!(Policy::read(text).is_err(), "{text}");
        }
    }
}
