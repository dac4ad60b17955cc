//! What was ordered in a workspace, by whom, and why: the audit log, for its owners.

use askama::Template;
use letterbox_common::states::Proof;
use letterbox_operator::{HistoryEntry, Member};
use serde_json::{Map, Value};
use url::{Position, Url};

use super::{PageWorkspace, Visit, id, name_of, refused};
use crate::{pages::filters, response::Answered};

/// Entries on one page.
const EACH: u32 = 50;
/// Maximum characters of a value.
const MAX_TOLD: usize = 80;
/// How the log writes what it hides.
const HIDDEN: &str = "(hidden)";
/// Columns that say when something ended, with what that is called.
const ENDS: [(&str, &str); 4] = [
    ("ended_at", "ended"),
    ("deleted_at", "deleted"),
    ("disconnected_at", "disconnected"),
    ("deactivated_at", "deactivated"),
];
/// How the names of columns end that say nothing to people.
const UNTOLD: [&str; 5] = ["_id", "_at", "_since", "_made", "_sha256"];
/// How tables are called on pages, and under which path their rows are, if they have pages.
const SUBJECTS: [(&str, &str, Option<&str>); 10] = [
    ("workflows", "form", Some("forms")),
    ("form_links", "form link", None),
    ("runs", "run", Some("runs")),
    ("approvals", "question", Some("questions")),
    ("connected_accounts", "account", None),
    ("account_trials", "trial of an account", None),
    ("webhooks", "webhook", Some("webhooks")),
    ("members", "member", None),
    ("policies", "policy", None),
    ("workspaces", "workspace", None),
];

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryPage {
    place: PageWorkspace,
    entries: Vec<HistoryEntry>,
    members: Vec<Member>,
    /// The query for those before.
    older: Option<String>,
}

impl HistoryPage {
    fn who(&self, entry: &HistoryEntry) -> String {
        const OPERATOR: &str = "Whoever runs this Letterbox";
        let Some(user) = &entry.ordered_by else {
            return OPERATOR.to_owned();
        };
        let name = name_of(user, &self.members).unwrap_or("somebody who has left");
        match entry.proven_by {
            Some(Proof::Asserted) => format!("{OPERATOR}, in the name of {name}"),
            _ => name.to_owned(),
        }
    }

    /// What was changed, and the page on which it is.
    fn subject(&self, entry: &HistoryEntry) -> (String, Option<String>) {
        let mut known = SUBJECTS.iter();
        let Some((table, name, path)) = known.find(|one| one.0 == entry.subject) else {
            return (entry.subject.replace('_', " "), None);
        };
        let id = entry.subject_id.as_deref();
        let member = id.filter(|_| *table == "members");
        let member = member.and_then(|id| name_of(&id.parse().ok()?, &self.members));
        let page = path.zip(id).map(|(path, id)| format!("/{path}/{id}"));
        // As it is called, or was.
        let columns = [&entry.after["name"], &entry.before["name"]].into_iter();
        let called = columns.filter_map(Value::as_str).next();
        let short = id.and_then(|id| id.get(..8));
        let called = member.or(called).or(short).unwrap_or_default();
        (format!("{name} {called}"), page)
    }

    /// What was done to it.
    fn verb(entry: &HistoryEntry) -> &'static str {
        let is_empty = |columns: &Value| columns.as_object().is_none_or(Map::is_empty);
        let mut ends = ENDS.iter();
        let ended = ends.find(|(column, _)| entry.after[column].is_string());
        match (is_empty(&entry.before), is_empty(&entry.after), ended) {
            (true, false, _) => "new",
            (false, true, _) => "removed",
            (_, _, Some((_, verb))) => verb,
            _ => "changed",
        }
    }

    /// The entries that say something to people.
    fn told(&self) -> impl Iterator<Item = &HistoryEntry> {
        let says = |entry: &&HistoryEntry| {
            Self::verb(entry) != "changed"
                || entry.reason.is_some()
                || !Self::changes(entry).is_empty()
        };
        self.entries.iter().filter(says)
    }

    /// The columns that say something to people, each with what it was and is.
    fn changes(entry: &HistoryEntry) -> Vec<String> {
        let is_new = Self::verb(entry) == "new";
        let columns = entry.after.as_object().into_iter().flatten();
        let columns = columns.filter(|(name, _)| !UNTOLD.iter().any(|end| name.ends_with(end)));
        let told = columns.filter_map(|(name, after)| {
            // What stands behind the host of an address may be a secret.
            let told = match name.ends_with("url") || name == "target" {
                true => host_of,
                false => told,
            };
            // Of what is new, not what it is anyway.
            let is_usual = is_new && (*after == false || *after == 0);
            let before = told(&entry.before[name]);
            let name = name.replace('_', " ");
            match (before, told(after)) {
                _ if is_usual => None,
                (Some(before), Some(after)) => Some(format!("{name}: {before}, now {after}")),
                (None, Some(after)) => Some(format!("{name}: {after}")),
                _ if is_new => None,
                (Some(before), None) => Some(format!("{name}: {before}, now another, or none")),
                (None, None) => Some(format!("{name}: another, or none")),
            }
        });
        told.collect()
    }
}

/// Scheme, host and port of an address.
fn host_of(value: &Value) -> Option<String> {
    let url = Url::parse(value.as_str()?).ok()?;
    let host = &url[Position::BeforeHost..Position::AfterPort];
    Some(format!("{}://{host}", url.scheme()))
}

/// A value, cut; `None` if it says nothing.
fn told(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) if text != HIDDEN => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => return None,
    };
    let cut: String = text.chars().take(MAX_TOLD).collect();
    let rest = if cut.len() < text.len() { "…" } else { "" };
    Some(format!("{cut}{rest}"))
}

/// The newest entries, for an owner of the workspace.
pub(crate) async fn list(visit: Visit) -> Answered {
    let place = visit.some_place().await?;
    if !place.rights.is_owner() {
        return Err(refused("Only the owners of a workspace see its history."));
    }
    let query = &visit.asked.query;
    let before: Option<i64> = query.get("before").map(id).transpose()?;
    let operator = &visit.operator;
    let entries = operator.history(place.workspace, before, EACH).await?;
    let last = entries.last().filter(|_| entries.len() == EACH as usize);
    let older = last.map(|last| format!("{}&before={}", query.without("before"), last.entry_id));
    let page = HistoryPage {
        members: operator.members(place.workspace).await?,
        place,
        entries,
        older,
    };
    Ok(visit.page("History", &page))
}
