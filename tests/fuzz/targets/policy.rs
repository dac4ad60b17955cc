//! Target of policies: what one decides, held against a reading of its JSON by the words of its
//! documentation.

use letterbox_tests::problems_of_policy;
use letterbox_workflow::{ActionFacts, Decision, Policy, Ruling, Steered, Steering, Taint};
use serde_json::Value;

use super::text;

const KINDS: [&str; 3] = ["http.request", "ai.condition", "ai.agent"];
const METHODS: [&str; 3] = ["GET", "POST", "DELETE"];

/// A policy that is accepted fits its schema, is read as it was written, and decides as it says. A
/// rule of which it says that it never applies changes nothing.
pub(super) fn policy(input: &[u8]) {
    let Some((text, policy)) = text(input).and_then(|text| Some((text, Policy::parse(text).ok()?)))
    else {
        return;
    };
    let value: Value = text.parse().unwrap();
    assert_eq!(problems_of_policy(&value), [""; 0]);
    let written = serde_json::to_string(&policy).unwrap();
    assert_eq!(Policy::parse(&written).as_ref(), Ok(&policy));
    let facts = facts(&value);
    for facts in &facts {
        let Ruling { decision, rule } = policy.decide(facts);
        assert_eq!(
            (decision.as_str(), rule),
            ruling(&value, facts),
            "{facts:?}"
        );
    }
    let useless = policy.useless_rules(&[]);
    let mut useless = useless
        .iter()
        .filter(|said| said.contains("]: never applies, "));
    let Some(last) = useless.next_back() else {
        return;
    };
    let number: usize = last.split(['[', ']']).nth(1).unwrap().parse().unwrap();
    let mut without = value.clone();
    without["rules"].as_array_mut().unwrap().remove(number);
    let without = Policy::parse(&without.to_string()).unwrap();
    for facts in &facts {
        let decided = |policy: &Policy| -> Decision { policy.decide(facts).decision };
        assert_eq!(decided(&policy), decided(&without), "{last}: {facts:?}");
    }
}

/// Some facts, of the words that the policy has.
fn facts(policy: &Value) -> Vec<ActionFacts<'_>> {
    let rules = policy["rules"].as_array().unwrap();
    let mut accounts = vec!["crm"];
    accounts.extend(
        rules
            .iter()
            .filter_map(|rule| rule["when"]["account"].as_str()),
    );
    let mut hosts = vec!["crm.example.com"];
    let named = rules
        .iter()
        .filter_map(|rule| rule["when"]["host"].as_array());
    hosts.extend(named.flatten().filter_map(Value::as_str));
    let mut random = fastrand::Rng::with_seed(rules.len() as u64);
    let facts = (0..64).map(|_| {
        let steered = Steering::ALL.iter().filter(|_| random.u32(..3) == 0);
        let steered = steered.fold(Steered::NONE, |all, one| all.with(*one));
        let (data, account, recipient) = (random.bool(), random.bool(), random.bool());
        ActionFacts {
            action: KINDS[random.usize(..3)],
            account: accounts[random.usize(..accounts.len())],
            method: METHODS[random.usize(..3)],
            host: hosts[random.usize(..hosts.len())],
            taint: Taint {
                data,
                account,
                recipient,
                steered,
            },
        }
    });
    facts.collect()
}

/// What a policy decides, and the number of the rule.
fn ruling<'p>(policy: &'p Value, facts: &ActionFacts<'_>) -> (&'p str, Option<i32>) {
    let rules = policy["rules"].as_array().unwrap();
    let is_absolute = |host: &str| host.strip_suffix('.').unwrap_or(host).to_owned();
    let host = is_absolute(facts.host);
    let untrusted: Vec<_> = facts
        .taint
        .kinds()
        .iter()
        .map(|kind| kind.as_str())
        .collect();
    let steered: Vec<_> = facts
        .taint
        .steered
        .kinds()
        .iter()
        .map(|by| by.as_str())
        .collect();
    let matches = |rule: &Value| {
        let when = rule["when"].as_object().unwrap();
        when.iter().all(|(name, value)| {
            let word = value.as_str().unwrap_or_default();
            let words = value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            let words: Vec<_> = words.collect();
            match name.as_str() {
                "action" => word == facts.action,
                "account" => word == facts.account,
                "method" => words.contains(&facts.method),
                "host" => words.iter().any(|word| is_absolute(word) == host),
                "untrusted" => untrusted.contains(&word),
                "steered_by" => steered.contains(&word),
                other => panic!("{other}"),
            }
        })
    };
    let found = rules.iter().position(&matches);
    let decided = found.map_or(&policy["default"], |found| &rules[found]["decision"]);
    // What a model steered needs a rule that names the model, matches and allows it.
    let is_lifted = |word: &str| {
        let mut naming = rules
            .iter()
            .filter(|rule| rule["when"]["steered_by"] == word);
        naming
            .find(|rule| matches(rule))
            .is_some_and(|rule| rule["decision"] == "allow")
    };
    let needs = |word: &str| steered.contains(&word) && !is_lifted(word);
    let is_call = facts.action == "http.request" && facts.method != "GET";
    let decided = match decided.as_str().unwrap() {
        "allow" if needs("ai.condition") || is_call && needs("ai.agent") => "approve",
        decided => decided,
    };
    (decided, found.map(|found| found as i32 + 1))
}
