//! What a deploy would do, before it is done.

use std::collections::BTreeMap;

use letterbox_common::ids::WorkflowId;
use letterbox_database::statements;
use letterbox_workflow::Definition;
use serde::Serialize;
use serde_json::Value;

use crate::{LiveLink, Losing, Operator, OperatorError, Reason, json, workflows};

statements! {
    /// The form and the actions that are deployed now, and the draft.
    DEPLOYED_NOW = deployed_now "
SELECT f.draft, r.form::text AS form, r.actions, r.on_failure
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
LEFT JOIN releases r
    ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
    AND r.release_id = f.live_release_id
WHERE f.state <> 'deleted'";
}

/// What a deploy would do.
#[derive(Debug, Clone, Serialize)]
pub struct DeployPlan {
    /// The links that would end, for everybody who has them.
    pub ends: Vec<LiveLink>,
    /// Fields by their keys, as against what is deployed now.
    pub fields: Changes,
    /// Actions by their ids, as against what is deployed now.
    pub actions: Changes,
    /// What the owner may want to fix, one sentence each.
    pub warnings: Vec<String>,
}

/// What is new, gone or another.
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
    ///
    /// # Errors
    /// When the definition has mistakes, or there is no such workflow, or it is deleted.
    pub async fn plan_deploy(
        &self,
        workflow: WorkflowId,
        definition: Option<&str>,
    ) -> Result<DeployPlan, OperatorError> {
        let found = self.database.query_opt(&DEPLOYED_NOW, &[&workflow]).await?;
        let found = found.ok_or(workflows::GONE)?;
        let draft: Option<String> = found.try_get("draft")?;
        let text = definition.map(str::to_owned).or(draft);
        let text = text.ok_or(Reason::NoDefinition)?;
        let checked = Definition::check(&text).map_err(Reason::InvalidDefinition)?;
        let form: Option<&str> = found.try_get("form")?;
        let lists: [Option<&str>; 2] = [found.try_get("actions")?, found.try_get("on_failure")?];
        let (mut former, mut latter) = (BTreeMap::new(), BTreeMap::new());
        lists
            .iter()
            .flatten()
            .for_each(|list| collect(&json(list), "id", &mut former));
        let lists = [Some(checked.actions_json()), checked.on_failure_json()];
        lists
            .iter()
            .flatten()
            .for_each(|list| collect(&json(list), "id", &mut latter));
        let fields = |form: &str| {
            let mut fields = BTreeMap::new();
            collect(&json(form)["fields"], "key", &mut fields);
            fields
        };
        let mut warnings = checked.warnings();
        warnings.extend(self.account_warnings(workflow, &checked).await?);
        Ok(DeployPlan {
            ends: self.live_links(Losing::Workflow(workflow)).await?,
            fields: Changes::between(
                &form.map(fields).unwrap_or_default(),
                &fields(&checked.form_json()),
            ),
            actions: Changes::between(&former, &latter),
            warnings,
        })
    }

    async fn account_warnings(
        &self,
        workflow: WorkflowId,
        definition: &Definition,
    ) -> Result<Vec<String>, OperatorError> {
        let row = self.workflow(workflow).await?.row;
        let work = workflows::AccountWarnings {
            workspace: row.workspace_id,
            owner: row.owner_id,
            definition,
        };
        let warnings = self.database.transaction("account warnings", &work).await?;
        Ok(warnings.unwrap_or_default())
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
