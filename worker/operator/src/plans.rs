//! Previews of deploys, and the history of former ones.

use std::collections::BTreeMap;

use jiff::Timestamp;
use letterbox_common::ids::{WorkflowId, WorkspaceId};
use letterbox_database::{FromRow, Row, RowError, statements};
use letterbox_workflow::Definition;
use serde::Serialize;
use serde_json::Value;

use crate::{LiveLink, Losing, Operator, Reason, Result, deploys::warnings, json, workflows::GONE};

statements! {
    /// The form and the actions that are deployed now, and the definition.
    desk fn deployed_now(workflow: WorkflowId) -> Option<DeployedNow> = "
SELECT f.definition, r.form::text AS form, r.page, r.actions, r.on_failure
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
LEFT JOIN releases r
    ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
    AND r.release_id = f.live_release_id
WHERE f.state <> 'deleted'";

    /// The releases of a workflow, the newest first.
    desk fn releases(
        workspace: WorkspaceId, workflow: WorkflowId, most: i64,
    ) -> Vec<DeployedRelease> = "
SELECT r.number, r.created_at, r.form::text AS form, r.page, r.actions, r.on_failure
FROM releases r WHERE r.workspace_id = $1 AND r.workflow_id = $2
ORDER BY r.number DESC LIMIT $3";
}

/// What a deploy would do.
#[derive(Debug, Clone, Serialize)]
pub struct DeployPlan {
    /// The links that would end, for everybody who has them.
    pub ends: Vec<LiveLink>,
    /// As against what is deployed now.
    #[serde(flatten)]
    pub changes: ReleaseChanges,
    /// What the owner may want to fix, one sentence each.
    pub warnings: Vec<String>,
}

/// What differs between two releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReleaseChanges {
    /// Texts of the form, such as its title, and settings of its page, by their names.
    pub texts: Changes,
    /// Fields by their keys.
    pub fields: Changes,
    /// Actions by their ids.
    pub actions: Changes,
}

/// A deploy of a workflow.
#[derive(Debug, Clone, Serialize)]
pub struct ReleaseRow {
    /// Counts the deploys, from 1.
    pub number: i32,
    /// By the database's clock.
    pub created_at: Timestamp,
    /// As against the release before; `None` for the first.
    pub changes: Option<ReleaseChanges>,
}

/// What is deployed, and the definition.
#[derive(FromRow)]
struct DeployedNow {
    definition: Option<String>,
    #[row(from = ReleaseParts::of_release)]
    parts: ReleaseParts,
}

/// A release.
#[derive(FromRow)]
struct DeployedRelease {
    number: i32,
    created_at: Timestamp,
    #[row(from = ReleaseParts::of_release)]
    parts: ReleaseParts,
}

/// What was added, removed or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Only in the new definition.
    pub added: Vec<String>,
    /// In both, and not alike.
    pub changed: Vec<String>,
    /// Only in what is deployed now.
    pub removed: Vec<String>,
}

impl Changes {
    fn between(former: &BTreeMap<String, Value>, latter: &BTreeMap<String, Value>) -> Self {
        let only = |one: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>| {
            let keys = one.keys().filter(|key| !other.contains_key(*key));
            keys.cloned().collect()
        };
        let changed = latter.iter().filter(|(key, value)| {
            let before = former.get(*key);
            before.is_some_and(|before| before != *value)
        });
        Self {
            added: only(latter, former),
            changed: changed.map(|(key, _)| key.clone()).collect(),
            removed: only(former, latter),
        }
    }
}

impl Operator {
    /// Says what a deploy of a definition, or of the one that the workflow has, would do. Nothing
    /// is stored.
    pub async fn plan_deploy(
        &self,
        workflow: WorkflowId,
        definition: Option<&str>,
    ) -> Result<DeployPlan> {
        let found = deployed_now(self, workflow).await?.ok_or(GONE)?;
        let text = definition.map(str::to_owned).or(found.definition);
        let text = text.ok_or(Reason::NoDefinition)?;
        let checked = Definition::check(&text).map_err(Reason::InvalidDefinition)?;
        let latter = ReleaseParts::of(
            &checked.form_json(),
            checked.page_json().as_deref(),
            [Some(checked.actions_json()), checked.on_failure_json()],
        );
        let row = self.workflow(workflow).await?.row;
        let warnings = warnings(self, row.workspace_id, row.owner_id, &checked);
        Ok(DeployPlan {
            ends: self.live_links(Losing::Workflow(workflow)).await?,
            changes: ReleaseParts::changes(&found.parts, &latter),
            warnings: warnings.await?,
        })
    }

    /// Lists the releases of a workflow, the newest first, at most `limit`, with what each has
    /// changed.
    pub async fn releases(&self, workflow: WorkflowId, limit: u32) -> Result<Vec<ReleaseRow>> {
        // One more, which the oldest is compared with.
        let most = i64::from(limit) + 1;
        let workspace = self.home(workflow).await?;
        let stored = releases(self, workspace, workflow, most).await?;
        let former = stored.iter().skip(1).map(Some).chain([None]);
        let releases = stored.iter().zip(former).take(limit as usize);
        let releases = releases.map(|(latter, former)| ReleaseRow {
            number: latter.number,
            created_at: latter.created_at,
            changes: former.map(|former| ReleaseParts::changes(&former.parts, &latter.parts)),
        });
        Ok(releases.collect())
    }
}

/// What a release consists of: its texts by their names, its fields by their keys, its actions by
/// their ids.
#[derive(Default)]
struct ReleaseParts {
    texts: BTreeMap<String, Value>,
    fields: BTreeMap<String, Value>,
    actions: BTreeMap<String, Value>,
}

impl ReleaseParts {
    /// Of JSON texts: a form, a page, and lists of actions.
    fn of(form: &str, page: Option<&str>, actions: [Option<&str>; 2]) -> Self {
        let mut parts = Self::default();
        let form = json(form);
        collect(&form["fields"], "key", &mut parts.fields);
        for members in [form, page.map(json).unwrap_or_default()] {
            let members = members.as_object().into_iter().flatten();
            let texts = members.filter(|(name, _)| *name != "fields");
            let texts = texts.map(|(name, value)| (name.clone(), value.clone()));
            parts.texts.extend(texts);
        }
        for list in actions.into_iter().flatten() {
            collect(&json(list), "id", &mut parts.actions);
        }
        parts
    }

    /// Of a row with the columns of a release, which are null if there is none.
    fn of_release(row: &Row) -> Result<Self, RowError> {
        let form: Option<&str> = row.try_get("form")?;
        let lists = [row.try_get("actions")?, row.try_get("on_failure")?];
        let page = row.try_get("page")?;
        let parts = form.map(|form| Self::of(form, page, lists));
        Ok(parts.unwrap_or_default())
    }

    fn changes(former: &Self, latter: &Self) -> ReleaseChanges {
        ReleaseChanges {
            texts: Changes::between(&former.texts, &latter.texts),
            fields: Changes::between(&former.fields, &latter.fields),
            actions: Changes::between(&former.actions, &latter.actions),
        }
    }
}

/// The objects of a list by one of their members, also those in branches. What is in a branch is
/// compared by itself, and not as a part of its condition.
fn collect(list: &Value, name: &str, into: &mut BTreeMap<String, Value>) {
    for one in list.as_array().into_iter().flatten() {
        let mut alone = one.clone();
        for branch in ["then", "else"] {
            if let Some(inside) = alone.as_object_mut().and_then(|alone| alone.remove(branch)) {
                collect(&inside, name, into);
            }
        }
        if let Some(key) = one[name].as_str() {
            into.insert(key.to_owned(), alone);
        }
    }
}
