//! What a document would change, and what ends by that, in words.

use serde_json::Value;

use super::Document;
use crate::{Changes, LiveLink};

/// What changes.
pub(super) struct DocumentChange {
    pub(super) is_new: bool,
    /// Members.
    pub(super) members: Vec<String>,
    /// The same, in words.
    pub(super) told: Vec<String>,
}

impl DocumentChange {
    /// Compares what there is with what is wanted, member by member.
    pub(super) fn between(former: Option<&Document>, wanted: &Document) -> Self {
        let known = former.map(Document::members).unwrap_or_default();
        let mut change = Self {
            is_new: former.is_none(),
            members: Vec::new(),
            told: Vec::new(),
        };
        for (member, after) in wanted.members() {
            // By these it was found; a secret is a new webhook's, a name a new user's.
            let is_name = match wanted {
                Document::Member(_) => ["email", "name"].contains(&&*member),
                _ => member == "name" || member == "secret",
            };
            let before = known.get(&member);
            if is_name || member == "kind" || is_same(&member, before, &after) {
                continue;
            }
            if former.is_some() {
                let short = |value: Option<&Value>| match value {
                    Some(Value::Object(_)) => "…".to_owned(),
                    Some(value) => value.to_string(),
                    None => "null".to_owned(),
                };
                change.told.push(match &after {
                    Value::Object(_) => member.clone(),
                    after => format!("{member}: {} -> {}", short(before), short(Some(after))),
                });
            }
            change.members.push(member);
        }
        change
    }

    /// Whether this member changes, or everything is new.
    pub(super) fn is_in(&self, member: &str) -> bool {
        self.is_new || self.members.iter().any(|one| one == member)
    }
}

/// Whether a member says what is so already. An address is the same in any case.
fn is_same(member: &str, before: Option<&Value>, after: &Value) -> bool {
    match (before, after) {
        (Some(Value::String(before)), Value::String(after)) if member == "owner" => {
            before.eq_ignore_ascii_case(after)
        }
        (None, after) => after.is_null(),
        (Some(before), after) => before == after,
    }
}

/// What a deploy changes, in words; `None` if nothing.
pub(super) fn told(what: &str, changes: &Changes) -> Option<String> {
    let marked = |sign: char, names: &[String]| -> Vec<String> {
        names.iter().map(|name| format!("{sign}{name}")).collect()
    };
    let all = [
        marked('+', &changes.added),
        marked('~', &changes.changed),
        marked('-', &changes.removed),
    ]
    .concat();
    (!all.is_empty()).then(|| format!("{what}: {}", all.join(" ")))
}

/// A form link, in words.
pub(super) fn told_link(link: &LiveLink) -> String {
    let workflow = &link.row.workflow_name;
    let made = link.row.created_at;
    format!("the form link of {workflow} made {made}")
}
