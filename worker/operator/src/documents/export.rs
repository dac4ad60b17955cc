//! Writes what there is as documents, and everything that they can say.

use letterbox_common::{ids::WorkspaceId, states::WorkflowState};
use letterbox_database::{from_row, statements};
use serde_json::Value;

use super::{
    Document, MemberDocument, PolicyDocument, SameBy, SubscriptionDocument, WebhookDocument,
    WorkflowDocument, WorkspaceDocument,
};
use crate::{Operator, OperatorError, Reason, json, optional_json};

statements! {
    /// The settings of a workspace.
    EXPORT_WORKSPACE = export_workspace "
SELECT name, run_allowance, retry_attempts, retry_first_milliseconds, keep_answers,
    is_searchable, notify_by_email
FROM workspaces WHERE workspace_id = $1";

    /// The workflows of a workspace that are not deleted.
    EXPORT_WORKFLOWS = export_workflows "
SELECT f.name, u.email, f.state, coalesce(f.draft, '{}') AS definition
FROM workflows f JOIN users u ON u.user_id = f.owner_id
WHERE f.workspace_id = $1 AND f.state <> 'deleted' ORDER BY f.name, f.workflow_id";

    /// The webhooks of a workspace that are neither deleted nor replaced.
    EXPORT_WEBHOOKS = export_webhooks "
SELECT name, scheme, scheme_rules, allow_from, coalesce(kept_headers, '{}') AS kept_headers,
    same_by_id
FROM webhooks WHERE workspace_id = $1 AND deleted_at IS NULL AND ends_at IS NULL
ORDER BY name, webhook_id";
}

struct Settings {
    name: String,
    run_allowance: Option<i32>,
    retry_attempts: Option<i32>,
    retry_first_milliseconds: Option<i32>,
    keep_answers: bool,
    is_searchable: bool,
    notify_by_email: bool,
}

from_row!(Settings {
    name,
    run_allowance,
    retry_attempts,
    retry_first_milliseconds,
    keep_answers,
    is_searchable,
    notify_by_email
});

struct Workflow {
    name: String,
    email: String,
    state: WorkflowState,
    definition: Value,
}

from_row!(Workflow {
    name,
    email,
    state,
    definition: json
});

struct Webhook {
    name: String,
    scheme: String,
    scheme_rules: Option<Value>,
    allow_from: Option<String>,
    kept_headers: Vec<String>,
    same_by_id: bool,
}

from_row!(Webhook {
    name,
    scheme,
    scheme_rules: optional_json,
    allow_from,
    kept_headers,
    same_by_id
});

impl Operator {
    /// Writes a workspace as documents: the same that, applied to it, change nothing. What is not
    /// in them: accounts and secrets, form links, and what came in.
    ///
    /// # Errors
    /// When there is no such workspace, or two things of a kind have one name.
    pub async fn export_workspace(
        &self,
        workspace: WorkspaceId,
    ) -> Result<Vec<Document>, OperatorError> {
        let documents = self.documents(workspace).await?;
        for (number, document) in documents.iter().enumerate() {
            if documents[..number].iter().any(|one| one.is_about(document)) {
                let (kind, name) = (document.kind(), document.name().to_owned());
                return Err(Reason::SameName(kind, name).into());
            }
        }
        Ok(documents)
    }

    /// The same, also where two things have one name.
    pub(super) async fn documents(
        &self,
        workspace: WorkspaceId,
    ) -> Result<Vec<Document>, OperatorError> {
        let settings: Settings = self
            .find(&EXPORT_WORKSPACE, &[&workspace], "workspace")
            .await?;
        let mut documents = vec![Document::Workspace(WorkspaceDocument {
            name: settings.name,
            run_allowance: Some(settings.run_allowance.map(i32::unsigned_abs)),
            retry_attempts: Some(settings.retry_attempts),
            retry_first_milliseconds: Some(settings.retry_first_milliseconds),
            keeps_answers: Some(settings.keep_answers),
            is_searchable: Some(settings.is_searchable),
            notifies_by_email: Some(settings.notify_by_email),
        })];
        for member in self.members(workspace).await? {
            documents.push(Document::Member(MemberDocument {
                email: member.email,
                name: Some(member.name),
                role: member.role,
                is_deactivated: Some(member.deactivated_at.is_some()),
            }));
        }
        let policy = self.policy(workspace).await?.policy;
        documents.push(Document::Policy(PolicyDocument { policy }));
        let workflows: Vec<Workflow> = self.fetch_all(&EXPORT_WORKFLOWS, &[&workspace]).await?;
        for workflow in workflows {
            documents.push(Document::Workflow(WorkflowDocument {
                name: workflow.name,
                owner: workflow.email,
                state: workflow.state,
                definition: workflow.definition,
            }));
        }
        let webhooks: Vec<Webhook> = self.fetch_all(&EXPORT_WEBHOOKS, &[&workspace]).await?;
        for webhook in webhooks {
            let same_by = if webhook.same_by_id {
                SameBy::Id
            } else {
                SameBy::Body
            };
            documents.push(Document::Webhook(WebhookDocument {
                name: webhook.name,
                scheme: Some(webhook.scheme),
                rules: webhook.scheme_rules,
                allow_from: Some(webhook.allow_from),
                keep_headers: Some(webhook.kept_headers),
                same_by: Some(same_by),
                secret: None,
            }));
        }
        for subscription in self.subscriptions(workspace).await? {
            documents.push(Document::Subscription(SubscriptionDocument {
                queue: subscription.queue,
                webhook: Some(subscription.webhook_name),
                signal_kind: Some(subscription.kind),
                is_paused: Some(subscription.paused_at.is_some()),
            }));
        }
        Ok(documents)
    }
}
