//! The orders behind the documents, kind by kind: what is made, changed or ended so that it is as
//! they say. Each is part of the transaction of its workspace.

use letterbox_common::{
    ids::{UserId, WorkflowId, WorkspaceId},
    sealing::Seal,
    states::WorkflowState,
    webhook::Scheme,
};
use letterbox_database::statements;
use letterbox_workflow::Definition;
use serde_json::Value;

use super::{
    Applied, Document, MadeWebhook, MemberDocument, SameBy, SecretFrom, Secrets,
    SubscriptionDocument, WebhookDocument, WorkflowDocument, WorkspaceDocument,
    change::{Change, told, told_link},
};
use crate::{
    LiveLink, Losing, Member, Move, NewSubscription, Operator, OperatorError, Reason, Retries,
    Sender, SubscribedTo, SubscriptionRow, WebhookRow,
};

statements! {
    /// Sets the definition that the next deploy uses.
    SET_DRAFT = set_draft "
UPDATE workflows SET draft = $3
WHERE workspace_id = $1 AND workflow_id = $2 AND state <> 'deleted'";
}

impl Operator {
    /// Carries out what one document says; notes what comes of it.
    pub(super) async fn carry_out(
        &self,
        keys: &dyn Seal,
        secrets: &Secrets<'_>,
        workspace: WorkspaceId,
        document: &Document,
        change: &mut Change,
        applied: &mut Applied,
    ) -> Result<(), OperatorError> {
        match document {
            Document::Workspace(wanted) => self.set_up(workspace, wanted, change).await,
            Document::Member(wanted) => self.set_up_member(workspace, wanted, change).await,
            Document::Policy(wanted) => {
                let policy = wanted.policy.to_string();
                let preview = self.preview_policy(workspace, &policy).await?;
                change.warnings = preview.warnings;
                for ruling in preview.changes {
                    let (before, after) = (ruling.before, ruling.after);
                    let (workflow, action) = (ruling.workflow_name, ruling.action_id);
                    // By name: a workflow of the same plan has another id when it is made.
                    let told = format!("{action} of {workflow}: {before} -> {after}");
                    change.told.push(told);
                }
                self.set_policy(workspace, &policy).await.map(drop)
            }
            Document::Workflow(wanted) => self.set_up_workflow(workspace, wanted, change).await,
            Document::Webhook(wanted) if change.is_new => {
                let from = match &wanted.secret {
                    Some(SecretFrom::File(name)) => Some(format!("its secret is in {name}")),
                    Some(SecretFrom::Environment(name)) => {
                        Some(format!("its secret is in the environment, as {name}"))
                    }
                    _ => None,
                };
                change.told.extend(from);
                let made = self.make_webhook(keys, secrets, workspace, wanted).await?;
                applied.webhooks.push(made);
                Ok(())
            }
            Document::Webhook(wanted) => self.set_up_webhook(workspace, wanted, change).await,
            Document::Subscription(wanted) => {
                let made = self.set_up_subscription(workspace, wanted, change).await?;
                applied.made.extend(made);
                Ok(())
            }
        }
    }

    async fn set_up(
        &self,
        workspace: WorkspaceId,
        wanted: &WorkspaceDocument,
        change: &Change,
    ) -> Result<(), OperatorError> {
        if let Some(allowance) = wanted
            .run_allowance
            .filter(|_| change.is_in("run_allowance"))
        {
            self.set_allowance(workspace, allowance).await?;
        }
        if change.is_in("retry_attempts") || change.is_in("retry_first_milliseconds") {
            let now = self.retries(workspace).await?;
            let pause = wanted.retry_first_milliseconds;
            self.set_retries(&Retries {
                workspace_id: workspace,
                attempts: wanted.retry_attempts.unwrap_or(now.attempts),
                first_pause_milliseconds: pause.unwrap_or(now.first_pause_milliseconds),
            })
            .await?;
        }
        if let Some(keeps) = wanted
            .keeps_answers
            .filter(|_| change.is_in("keeps_answers"))
        {
            self.keep_answers(workspace, keeps).await?;
        }
        if let Some(searches) = wanted
            .is_searchable
            .filter(|_| change.is_in("is_searchable"))
        {
            self.switch_search(workspace, searches).await?;
        }
        let notifies = wanted.notifies_by_email;
        if let Some(notifies) = notifies.filter(|_| change.is_in("notifies_by_email")) {
            self.notify_by_email(workspace, notifies).await?;
        }
        Ok(())
    }

    async fn set_up_member(
        &self,
        workspace: WorkspaceId,
        wanted: &MemberDocument,
        change: &mut Change,
    ) -> Result<(), OperatorError> {
        let members = self.members(workspace).await?;
        let same = |member: &&Member| member.email.eq_ignore_ascii_case(&wanted.email);
        if let Some(known) = members.iter().find(same) {
            let (user, was) = (known.user_id, known.deactivated_at.is_some());
            let of = Losing::Member(workspace, user);
            let links = self.live_links(of).await?;
            let is_deactivated = wanted.is_deactivated.unwrap_or(was);
            self.set_member(workspace, user, wanted.role, is_deactivated)
                .await?;
            change.ends = self.ended_of(&links, of).await?;
            return Ok(());
        }
        let name = wanted.name.as_ref().unwrap_or(&wanted.email);
        let member = self
            .invite(workspace, &wanted.email, name, wanted.role)
            .await?;
        if wanted.is_deactivated == Some(true) {
            self.set_member(workspace, member.user_id, wanted.role, true)
                .await?;
        }
        Ok(())
    }

    /// Those of these links that live no more, in words.
    async fn ended_of(&self, links: &[LiveLink], of: Losing) -> Result<Vec<String>, OperatorError> {
        let left = self.live_links(of).await?;
        let is_left = |link: &&LiveLink| {
            left.iter()
                .any(|other| other.form_link_id == link.form_link_id)
        };
        let ended = links.iter().filter(|link| !is_left(link));
        Ok(ended.map(told_link).collect())
    }

    async fn set_up_workflow(
        &self,
        workspace: WorkspaceId,
        wanted: &WorkflowDocument,
        change: &mut Change,
    ) -> Result<(), OperatorError> {
        if wanted.state == WorkflowState::Deleted {
            return Err(Reason::DeletedDocument(wanted.name.clone()).into());
        }
        let definition = wanted.definition.to_string();
        let owner: UserId = self.user_of(workspace, &wanted.owner).await?;
        if change.is_new {
            let making = self.create_workflow(workspace, owner, &wanted.name, &definition);
            let made = making.await?.workflow_id;
            if wanted.state != WorkflowState::Draft {
                change.warnings = self.deploy(made, None).await?.warnings;
            }
            if wanted.state == WorkflowState::Paused {
                self.move_workflow(made, Move::Pause).await?;
            }
            return Ok(());
        }
        let workflow: WorkflowId = self.id_by_name(workspace, &wanted.name).await?;
        let of = Losing::Workflow(workflow);
        let links = self.live_links(of).await?;
        let is_other = change.is_in("definition");
        if change.is_in("owner") {
            self.transfer_workflow(workflow, owner).await?;
        }
        let now = self.workflow(workflow).await?.row.state;
        use WorkflowState::{Deleted, Deployed, Draft, Paused};
        match (now, wanted.state) {
            (Draft, Draft) => {}
            (_, Draft) => drop(self.move_workflow(workflow, Move::Draft).await?),
            (Draft, _) => {}
            (Deployed, Paused) if !is_other => {
                self.move_workflow(workflow, Move::Pause).await?;
            }
            (Paused, Deployed) if !is_other => {
                self.move_workflow(workflow, Move::Activate).await?;
            }
            (_, Deployed | Paused | Deleted) => {}
        }
        let is_deployed = wanted.state != Draft && (is_other || now == Draft);
        if is_deployed {
            let plan = self.plan_deploy(workflow, Some(&definition)).await?;
            change.told.retain(|told| !told.starts_with("definition"));
            change.told.extend(told("fields", &plan.changes.fields));
            change.told.extend(told("actions", &plan.changes.actions));
            change.warnings = self.deploy(workflow, Some(&definition)).await?.warnings;
            if wanted.state == Paused {
                self.move_workflow(workflow, Move::Pause).await?;
            }
        } else if is_other {
            Definition::check(&definition).map_err(Reason::InvalidDefinition)?;
            self.execute(&SET_DRAFT, &[&workspace, &workflow, &definition])
                .await?;
        }
        change.ends = self.ended_of(&links, of).await?;
        Ok(())
    }

    async fn make_webhook(
        &self,
        keys: &dyn Seal,
        secrets: &Secrets<'_>,
        workspace: WorkspaceId,
        wanted: &WebhookDocument,
    ) -> Result<MadeWebhook, OperatorError> {
        let given = match &wanted.secret {
            None | Some(SecretFrom::Later) => None,
            Some(from) => Some(secrets(from).map_err(Reason::NoSecret)?),
        };
        let is_later = wanted.secret == Some(SecretFrom::Later);
        let scheme = match &wanted.scheme {
            None => Scheme::Letterbox,
            Some(word) => {
                let scheme = word.parse::<Scheme>();
                scheme.map_err(|error| Reason::InvalidScheme(format!("scheme: {error}")))?
            }
        };
        let is_shown = given.is_none() && !is_later;
        let sender = Sender {
            scheme,
            rules: wanted.rules.as_ref().map(Value::to_string),
            secret: given,
            is_secret_later: is_later,
            allow_from: wanted.allow_from.clone().flatten(),
            kept_headers: wanted.keep_headers.clone().unwrap_or_default(),
            same_by_id: wanted.same_by == Some(SameBy::Id),
        };
        let made = self
            .create_webhook(keys, workspace, &wanted.name, &sender)
            .await?;
        Ok(MadeWebhook {
            name: wanted.name.clone(),
            address: made.address,
            secret: is_shown.then_some(made.secret),
        })
    }

    async fn set_up_webhook(
        &self,
        workspace: WorkspaceId,
        wanted: &WebhookDocument,
        change: &Change,
    ) -> Result<(), OperatorError> {
        for member in ["scheme", "rules", "same_by"] {
            if change.is_in(member) {
                return Err(Reason::FixedMember(wanted.name.clone(), member).into());
            }
        }
        let now = self.webhook_named(workspace, &wanted.name).await?;
        let allow_from = wanted.allow_from.as_ref().unwrap_or(&now.allow_from);
        let kept = wanted.keep_headers.as_ref().unwrap_or(&now.kept_headers);
        self.change_webhook(&now, allow_from.as_deref(), kept).await
    }

    /// Gives the subscription if it is new.
    async fn set_up_subscription(
        &self,
        workspace: WorkspaceId,
        wanted: &SubscriptionDocument,
        change: &Change,
    ) -> Result<Option<SubscriptionRow>, OperatorError> {
        let mut made = None;
        if change.is_new {
            let webhook = match wanted.webhook.as_ref().and_then(Option::as_ref) {
                Some(name) => Some(self.webhook_named(workspace, name).await?.webhook_id),
                None => None,
            };
            let new = NewSubscription {
                queue: wanted.queue.clone(),
                to: SubscribedTo {
                    webhook,
                    kind: wanted.signal_kind.flatten(),
                },
                from: None,
                login: None,
                may_exist: false,
            };
            made = Some(self.add_subscription(workspace, &new).await?);
        } else if change.is_in("webhook") || change.is_in("signal_kind") {
            return Err(Reason::QueueTaken.into());
        }
        if let Some(pauses) = wanted.is_paused {
            self.pause_subscription(workspace, &wanted.queue, pauses)
                .await?;
        }
        Ok(made)
    }

    /// Deletes what no document names; tells what ends by it.
    pub(super) async fn prune(
        &self,
        workspace: WorkspaceId,
        document: &Document,
        applied: &mut Applied,
    ) -> Result<Vec<String>, OperatorError> {
        match document {
            Document::Member(member) => {
                let user = self.user_of(workspace, &member.email).await?;
                let of = Losing::Member(workspace, user);
                let links = self.live_links(of).await?;
                self.remove_member(workspace, user).await?;
                self.ended_of(&links, of).await
            }
            Document::Workflow(workflow) => {
                let id = self.id_by_name(workspace, &workflow.name).await?;
                let links = self.live_links(Losing::Workflow(id)).await?;
                self.move_workflow(id, Move::Delete).await?;
                Ok(links.iter().map(told_link).collect())
            }
            Document::Webhook(webhook) => {
                let doomed = self.webhook_named(workspace, &webhook.name).await?;
                self.delete_webhook(doomed.webhook_id).await?;
                let mut ends = vec!["its address and its secret".to_owned()];
                // One that it was to replace would go on.
                let mut former = doomed.replaces;
                while let Some(id) = former {
                    let webhook = self.webhook(id).await?;
                    if webhook.deleted_at.is_none() {
                        self.delete_webhook(id).await?;
                        ends.push("those of the webhook that it was to replace".to_owned());
                    }
                    former = webhook.replaces;
                }
                Ok(ends)
            }
            Document::Subscription(subscription) => {
                let ended = self
                    .remove_subscription(workspace, &subscription.queue)
                    .await?;
                let login = ended.login.iter();
                let ends = login.map(|login| format!("the user {login} of RabbitMQ"));
                let ends = ends.collect();
                applied.ended.push(ended);
                Ok(ends)
            }
            Document::Workspace(_) | Document::Policy(_) => Ok(Vec::new()),
        }
    }

    /// The member of a workspace who has this e-mail address.
    async fn user_of(&self, workspace: WorkspaceId, email: &str) -> Result<UserId, OperatorError> {
        let members = self.members(workspace).await?;
        let mut members = members.iter();
        let member = members.find(|member| member.email.eq_ignore_ascii_case(email));
        let missing = || Reason::NotNamed {
            noun: "member",
            text: email.to_owned(),
        };
        Ok(member.ok_or_else(missing)?.user_id)
    }

    /// The webhook of this name that is neither deleted nor being replaced.
    async fn webhook_named(
        &self,
        workspace: WorkspaceId,
        name: &str,
    ) -> Result<WebhookRow, OperatorError> {
        let webhooks = self.webhooks(workspace).await?;
        let is_it = |one: &WebhookRow| {
            one.name == name && one.deleted_at.is_none() && one.ends_at.is_none()
        };
        let mut found = webhooks.into_iter().filter(is_it);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(Reason::NotNamed {
                noun: "webhook",
                text: name.to_owned(),
            }
            .into()),
            (Some(one), Some(other)) => Err(Reason::Ambiguous {
                text: name.to_owned(),
                meant: [one, other].map(|one| one.webhook_id.to_string()).into(),
            }
            .into()),
        }
    }
}
