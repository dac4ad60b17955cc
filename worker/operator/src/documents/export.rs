//! Writes what there is as documents, and everything that they can say.

use letterbox_common::ids::WorkspaceId;
use letterbox_database::statements;

use super::{
    Document, MemberSettings, PolicyDocument, SubscriptionSettings, WorkflowDocument, former,
};
use crate::{Operator, Reason, Result, webhook_settings::live_webhooks};

statements! {
    /// The workflows of a workspace that are not deleted.
    fn export_workflows(workspace: WorkspaceId) -> Vec<WorkflowDocument> = "
SELECT f.name, u.email AS owner, f.state, coalesce(f.definition, '{}') AS definition
FROM workflows f JOIN users u ON u.user_id = f.owner_id
WHERE f.workspace_id = $1 AND f.state <> 'deleted' ORDER BY f.name, f.workflow_id";
}

impl Operator {
    /// Writes a workspace as documents: the same that, applied to it, change nothing. What is not
    /// in them: accounts and secrets, form links, and what came in.
    ///
    /// # Errors
    /// When there is no such workspace, or two things of a kind have one name.
    pub async fn export_workspace(&self, workspace: WorkspaceId) -> Result<Vec<Document>> {
        let documents = self.documents(workspace).await?;
        for document in &documents {
            // Two of one name could not be applied.
            former(&documents, document)?;
        }
        Ok(documents)
    }

    /// The same, also where two things have one name.
    pub(super) async fn documents(&self, workspace: WorkspaceId) -> Result<Vec<Document>> {
        let settings = self.settings(workspace).await?;
        let mut documents = vec![Document::Workspace(settings)];
        for member in self.members(workspace).await? {
            documents.push(Document::Member(MemberSettings {
                email: member.email,
                name: Some(member.name),
                role: member.role,
                is_deactivated: Some(member.deactivated_at.is_some()),
            }));
        }
        let policy = self.policy(workspace).await?.policy;
        documents.push(Document::Policy(PolicyDocument { policy }));
        let workflows = export_workflows(self, workspace).await?;
        documents.extend(workflows.into_iter().map(Document::Workflow));
        let webhooks = live_webhooks(self, workspace).await?;
        if let Some(unknown) = webhooks.iter().find(|one| one.tool.is_none()) {
            let name = &unknown.name;
            let told = format!("only a newer version knows the tool of {name:?}: export with that");
            return Err(Reason::InvalidWebhook(told).into());
        }
        documents.extend(webhooks.into_iter().map(Document::Webhook));
        for subscription in self.subscriptions(workspace).await? {
            let conditions = subscription.conditions.iter().map(|one| one.parse());
            documents.push(Document::Subscription(SubscriptionSettings {
                queue: subscription.queue,
                in_flight: subscription.url.as_ref().map(|_| subscription.in_flight),
                url: subscription.url.and_then(|url| url.parse().ok()),
                webhook: Some(subscription.webhook_name),
                signal_kind: Some(subscription.signal_kind),
                conditions: conditions.collect::<Result<_, _>>().ok(),
                is_paused: Some(subscription.paused_at.is_some()),
            }));
        }
        Ok(documents)
    }
}
