//! The orders behind the documents, kind by kind: what is made, changed or ended so that it is as
//! they say. Each is part of the transaction of its workspace.

use letterbox_common::{
    ids::{WorkflowId, WorkspaceId},
    sealing::{Seal, Secret},
    states::WorkflowState,
};
use letterbox_database::statements;
use uuid::Uuid;

use super::{
    Applied, Document, MemberSettings, SubscriptionSettings, WorkflowDocument,
    change::DocumentChange,
};
use crate::{
    Member, Move, NewSubscription, Operator, Reason, Result, Secrets, SubscriptionRow, WebhookRow,
    names::only_one, subscriptions::set_in_flight,
};

statements! {
    /// Sets the definition that the next deploy uses.
    fn set_definition(workspace: WorkspaceId, workflow: WorkflowId, definition: &str) = "
UPDATE workflows SET definition = $3
WHERE workspace_id = $1 AND workflow_id = $2 AND state <> 'deleted'";
}

impl Operator {
    /// Carries out what one document says. Notes what it has made.
    pub(super) async fn carry_out(
        &self,
        keys: &dyn Seal,
        secrets: &Secrets<'_>,
        workspace: WorkspaceId,
        document: &Document,
        change: &DocumentChange,
        applied: &mut Applied,
    ) -> Result<()> {
        match document {
            Document::Workspace(wanted) => self.change_settings(workspace, wanted).await?,
            Document::Member(wanted) => self.set_up_member(workspace, wanted, change).await?,
            Document::Policy(wanted) => {
                let policy = wanted.policy.to_string();
                self.set_policy(workspace, &policy).await?;
            }
            Document::Workflow(wanted) => self.set_up_workflow(workspace, wanted, change).await?,
            Document::Webhook(wanted) if change.is_new => {
                let given = wanted.given_secret(secrets)?;
                let making = self.create_webhook(keys, workspace, wanted, given);
                applied.webhooks.push(making.await?);
            }
            Document::Webhook(wanted) => {
                let known = self.webhook_named(workspace, &wanted.name).await?;
                let changing = wanted.change(self, workspace, known.webhook_id, &known.settings);
                changing.await?;
            }
            Document::Subscription(wanted) => {
                let made = self.set_up_subscription(workspace, wanted, change);
                applied.subscriptions.extend(made.await?);
            }
        }
        Ok(())
    }

    async fn set_up_member(
        &self,
        workspace: WorkspaceId,
        wanted: &MemberSettings,
        change: &DocumentChange,
    ) -> Result<()> {
        let (user, was) = if change.is_new {
            let name = wanted.name.as_ref().unwrap_or(&wanted.email);
            let inviting = self.invite(workspace, &wanted.email, name, wanted.role);
            (inviting.await?.user_id, false)
        } else {
            let known = self.member_of(workspace, &wanted.email).await?;
            (known.user_id, known.deactivated_at.is_some())
        };
        let is_deactivated = wanted.is_deactivated.unwrap_or(was);
        // Who is invited has the role already.
        if !change.is_new || is_deactivated {
            self.set_member(workspace, user, wanted.role, is_deactivated)
                .await?;
        }
        Ok(())
    }

    async fn set_up_workflow(
        &self,
        workspace: WorkspaceId,
        wanted: &WorkflowDocument,
        change: &DocumentChange,
    ) -> Result<()> {
        use WorkflowState::{Deployed, Draft, Paused};
        let definition = wanted.definition.to_string();
        let owner = self.member_of(workspace, &wanted.owner).await?.user_id;
        let is_other = change.is_in("definition");
        let (workflow, now): (WorkflowId, _) = if change.is_new {
            let making = self.create_workflow(workspace, owner, &wanted.name, &definition);
            (making.await?.workflow_id, Draft)
        } else {
            let known = self.id_by_name(workspace, &wanted.name).await?;
            if change.is_in("owner") {
                self.transfer_workflow(known, owner).await?;
            }
            (known, self.workflow(known).await?.row.state)
        };
        let is_deployed = wanted.state != Draft && (is_other || now == Draft);
        if now != Draft && wanted.state == Draft {
            self.move_workflow(workflow, Move::Draft).await?;
        }
        // Also what is to be paused: only a release can be.
        if is_deployed {
            self.deploy(workflow, Some(&definition)).await?;
        } else if is_other && !change.is_new {
            set_definition(self, workspace, workflow, &definition).await?;
        }
        let now = if is_deployed { Deployed } else { now };
        match (now, wanted.state) {
            (Deployed, Paused) => drop(self.move_workflow(workflow, Move::Pause).await?),
            (Paused, Deployed) => drop(self.move_workflow(workflow, Move::Activate).await?),
            _ => {}
        }
        Ok(())
    }

    async fn set_up_subscription(
        &self,
        workspace: WorkspaceId,
        wanted: &SubscriptionSettings,
        change: &DocumentChange,
    ) -> Result<Option<(SubscriptionRow, Secret)>> {
        let mut made = None;
        let target = wanted.target()?;
        if change.is_new {
            let webhook = match wanted.webhook.as_ref().and_then(Option::as_ref) {
                Some(name) => Some(self.webhook_named(workspace, name).await?.webhook_id),
                None => None,
            };
            let new = NewSubscription {
                webhook,
                signal_kind: wanted.signal_kind.flatten(),
                conditions: wanted.conditions.clone().unwrap_or_default(),
                in_flight: wanted.in_flight,
                ..NewSubscription::default()
            };
            let adding = self.add_subscription(workspace, Uuid::new_v4(), &target, &new);
            let (row, secret) = adding.await?;
            made = secret.map(|secret| (row, secret));
        } else if let Some(in_flight) = wanted.in_flight {
            set_in_flight(self, workspace, target.name(), in_flight).await?;
        }
        if let Some(pauses) = wanted.is_paused {
            self.pause_subscription(workspace, target.name(), pauses)
                .await?;
        }
        Ok(made)
    }

    /// Deletes what no document names.
    pub(super) async fn prune(&self, workspace: WorkspaceId, document: &Document) -> Result<()> {
        match document {
            Document::Member(member) => {
                let member = self.member_of(workspace, &member.email).await?;
                self.remove_member(workspace, member.user_id).await?;
            }
            Document::Workflow(workflow) => {
                let id = self.id_by_name(workspace, &workflow.name).await?;
                self.move_workflow(id, Move::Delete).await?;
            }
            Document::Webhook(webhook) => {
                for webhook in self.doomed_webhooks(workspace, &webhook.name).await? {
                    self.delete_webhook(webhook.webhook_id).await?;
                }
            }
            Document::Subscription(subscription) => {
                self.remove_subscription(workspace, subscription.name())
                    .await?;
            }
            Document::Workspace(_) | Document::Policy(_) => {}
        }
        Ok(())
    }

    /// The webhook of a name, and those that it was to replace: else they would go on.
    pub(super) async fn doomed_webhooks(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<Vec<WebhookRow>> {
        let webhook = self.webhook_named(workspace, name).await?;
        let mut former = webhook.replaces;
        let mut doomed = vec![webhook];
        while let Some(id) = former {
            let webhook = self.webhook(id).await?;
            former = webhook.replaces;
            doomed.extend(webhook.deleted_at.is_none().then_some(webhook));
        }
        Ok(doomed)
    }

    /// The member of a workspace who has this e-mail address.
    pub(super) async fn member_of(&self, workspace: WorkspaceId, email: &str) -> Result<Member> {
        let user = self.user_by_email(email).await?;
        let mut members = self.members(workspace).await?.into_iter();
        let member = members.find(|member| Some(member.user_id) == user);
        Ok(member.ok_or_else(|| Reason::not_named("member", email))?)
    }

    /// The webhook of this name that is neither deleted nor being replaced.
    async fn webhook_named(&self, workspace: WorkspaceId, name: &str) -> Result<WebhookRow> {
        let webhooks = self.webhooks(workspace).await?;
        let is_it = |one: &WebhookRow| {
            one.settings.name == name && one.deleted_at.is_none() && one.ends_at.is_none()
        };
        let named = webhooks.into_iter().filter(is_it).collect();
        let id = |one: &WebhookRow| one.webhook_id.to_string();
        Ok(only_one(named, "webhook", name, id)?)
    }
}
