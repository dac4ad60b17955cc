//! The draft of a workflow: the JSON text that the next deploy takes. Pages change some of its
//! members, and all else stays as it was written.

use letterbox_common::{form::Form, ids::WorkflowId, json_object};
use letterbox_operator::{OperatorError, Problem, Reason, WorkflowDetail};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Visit, or_refusal, refused};
use crate::response::Trouble;

/// The members of a definition, in their order, as JSON texts.
pub(super) struct Members(Vec<(String, String)>);

impl Members {
    /// Those of a draft; of repeated names the last counts.
    pub(super) fn of(draft: &str) -> Self {
        let mut members = Self(Vec::new());
        for (name, json) in json_object::all(draft).unwrap_or_default() {
            let Some(name) = name else { continue };
            members.0.retain(|(other, _)| *other != name);
            members.0.push((name, json.get().to_owned()));
        }
        members
    }

    /// The JSON text of a member.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut members = self.0.iter();
        Some(&members.find(|one| one.0 == name)?.1)
    }

    /// Sets a member, or takes it out.
    pub(super) fn set(&mut self, name: &str, json: Option<String>) {
        match (self.0.iter_mut().find(|one| one.0 == name), json) {
            (Some(member), Some(json)) => member.1 = json,
            (None, Some(json)) => self.0.push((name.to_owned(), json)),
            (_, None) => self.0.retain(|one| one.0 != name),
        }
    }

    /// The draft with them.
    pub(super) fn text(&self) -> String {
        let members = self.0.iter();
        let members = members.map(|(name, json)| format!("  {}: {json}", Value::from(&**name)));
        format!("{{\n{}\n}}", members.collect::<Vec<_>>().join(",\n"))
    }
}

/// A value as the member of a draft.
pub(super) fn member(value: &Value) -> String {
    format!("{value:#}").replace('\n', "\n  ")
}

/// A text as it was meant: browsers send a line break as two characters.
pub(super) fn written(text: &str) -> String {
    text.trim().replace("\r\n", "\n")
}

/// The number of the item of a list in which a mistake is, and the place within it.
pub(super) fn item(path: &str, list: &str) -> Option<(usize, String)> {
    let (at, rest) = path
        .strip_prefix(list)?
        .strip_prefix('[')?
        .split_once(']')?;
    Some((at.parse().ok()?, rest.replace('.', ", ")))
}

/// Moves or removes the item that a button names by its place, such as `up:1`.
pub(super) fn arrange<T>(items: &mut Vec<T>, order: &str) {
    let Some((what, at)) = order.split_once(':') else {
        return;
    };
    let at = at.parse().unwrap_or(usize::MAX);
    match what {
        "up" if (1..items.len()).contains(&at) => items.swap(at, at - 1),
        "down" if at.saturating_add(1) < items.len() => items.swap(at, at + 1),
        "remove" if at < items.len() => drop(items.remove(at)),
        _ => {}
    }
}

/// A name that is free, made of one: itself, or with a number.
pub(super) fn free(name: &str, sign: char, is_free: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number: u32| format!("{name}{sign}{number}"));
    let mut names = [name.to_owned()].into_iter().chain(numbered);
    names.find(|name| is_free(name)).unwrap_or_default()
}

/// Names a draft: another text has another one.
pub(super) fn version(draft: Option<&str>) -> String {
    hex::encode(Sha256::digest(draft.unwrap_or_default()))
}

/// The form of a draft, if it has one that is complete.
pub(super) fn form_of(workflow: &WorkflowDetail) -> Option<Form> {
    let form = workflow.definition.as_ref()?["form"].clone();
    serde_json::from_value(form).ok()
}

/// A workflow of the person: only its owner says what it does.
pub(super) async fn owned(visit: &Visit, workflow: WorkflowId) -> Result<WorkflowDetail, Trouble> {
    let workflow = visit.operator.workflow(workflow).await?;
    let rights = visit.rights(workflow.row.workspace_id).await?;
    match workflow.row.owner_id == visit.user && rights.may_run() {
        true => Ok(workflow),
        false => Err(refused("Only its owner changes what a form asks and does.")),
    }
}

/// Why a draft was not saved.
#[derive(Default)]
pub(super) struct NotSaved {
    pub(super) problems: Vec<Problem>,
    pub(super) refused: Option<String>,
}

/// Saves the draft of a page, which says of which version it is; that of another window is not lost
/// unseen.
pub(super) async fn save(
    visit: &Visit,
    workflow: &WorkflowDetail,
    draft: &str,
) -> Result<Result<(), NotSaved>, Trouble> {
    let former = workflow.text.as_deref();
    let saved = match visit.asked.form.get("of") {
        Some(of) if of == version(former) => {
            let operator = &visit.operator;
            let id = workflow.row.workflow_id;
            operator
                .save_draft(id, former.unwrap_or_default(), draft)
                .await
        }
        _ => Err(Reason::DraftConflict.into()),
    };
    let mut not_saved = NotSaved::default();
    match saved {
        Ok(()) => return Ok(Ok(())),
        Err(OperatorError::Refused(Reason::InvalidDefinition(found))) => {
            not_saved.problems = found;
        }
        Err(error) => not_saved.refused = or_refusal(Err::<(), _>(error))?.err(),
    }
    Ok(Err(not_saved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_in_an_item_of_a_list() {
        for (path, found) in [
            ("form.fields[3].label", Some((3, ", label".to_owned()))),
            ("form.fields[0]", Some((0, String::new()))),
            ("form.title", None),
            ("form.fields[x].label", None),
        ] {
            assert_eq!(item(path, "form.fields"), found);
        }
    }
}
