//! Checks, kind by kind, what a document asks for, and finds out what comes of it: in the light of
//! what there is, and of what the other documents ask for. Nothing here writes.

use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::{MemberRole, WorkflowState},
};
use letterbox_workflow::Definition;

use super::{
    Document, MemberDocument, PolicyDocument, SecretFrom, Secrets, Step, SubscriptionDocument,
    WebhookDocument, WorkflowDocument,
    change::{Change, told, told_link},
};
use crate::{
    Losing, Operator, OperatorError, Reason, check_name,
    policies::{DeployedActions, compare_policies},
    subscriptions::check_queue,
    users::check_user,
};

/// What there is, and what will be.
pub(super) struct Outlook<'a> {
    pub(super) operator: &'a Operator,
    pub(super) secrets: &'a Secrets<'a>,
    pub(super) workspace: Option<WorkspaceId>,
    pub(super) current: &'a [Document],
    pub(super) wanted: &'a [Document],
}

impl Outlook<'_> {
    /// Checks what a document asks for; notes in its step what comes of it.
    pub(super) async fn foresee(
        &self,
        document: &Document,
        former: Option<&Document>,
        change: &Change,
        step: &mut Step,
    ) -> Result<(), OperatorError> {
        match (document, former) {
            (Document::Workspace(wanted), _) => Ok(wanted.check()?),
            (Document::Member(wanted), _) => self.member(wanted, step).await,
            (Document::Policy(wanted), _) => self.policy(wanted, step).await,
            (Document::Workflow(wanted), former) => {
                let state = match former {
                    Some(Document::Workflow(former)) => Some(former.state),
                    _ => None,
                };
                self.workflow(wanted, state, change, step).await
            }
            (Document::Webhook(wanted), Some(Document::Webhook(former))) => {
                for member in ["scheme", "rules", "same_by"] {
                    if change.is_in(member) {
                        return Err(Reason::FixedMember(wanted.name.clone(), member).into());
                    }
                }
                wanted.over(former).sender(None)?.check().map(drop)
            }
            (Document::Webhook(wanted), _) => self.new_webhook(wanted, step),
            (Document::Subscription(wanted), _) => self.subscription(wanted, change),
        }
    }

    async fn member(&self, wanted: &MemberDocument, step: &mut Step) -> Result<(), OperatorError> {
        if let Some(user) = self.user(&wanted.email).await? {
            if self.may_run(&wanted.email) == Some(false)
                && let Some(workspace) = self.workspace
            {
                let losing = Losing::Member(workspace, user);
                let links = self.operator.live_links(losing).await?;
                step.ends.extend(links.iter().map(told_link));
            }
            return Ok(());
        }
        check_user(&wanted.email, wanted.name.as_ref().unwrap_or(&wanted.email))
    }

    async fn policy(&self, wanted: &PolicyDocument, step: &mut Step) -> Result<(), OperatorError> {
        let (mut accounts, mut deployed) = (Vec::new(), Vec::new());
        if let Some(workspace) = self.workspace {
            accounts = self.operator.accounts(workspace).await?;
            deployed = self.operator.deployed_actions(workspace).await?;
        }
        for document in self.wanted {
            let Document::Workflow(workflow) = document else {
                continue;
            };
            // Of one that stays what it is, the release that is live counts.
            if self.current.contains(document) {
                continue;
            }
            deployed.retain(|one| one.name != workflow.name);
            // A mistake in it has been told: workflows come before the policy.
            if workflow.state == WorkflowState::Deployed
                && let Ok(definition) = Definition::check(&workflow.definition.to_string())
            {
                let owner = self.user(&workflow.owner).await?;
                let owner = owner.unwrap_or_else(UserId::generate);
                deployed.push(DeployedActions::of(&workflow.name, owner, &definition));
            }
        }
        deployed.sort_by(|one, other| one.name.cmp(&other.name));
        let current = self.current.iter().find_map(|one| match one {
            Document::Policy(policy) => Some(policy.policy.to_string()),
            _ => None,
        });
        let (current, wanted) = (current.unwrap_or_default(), wanted.policy.to_string());
        let preview = compare_policies(&current, &wanted, &accounts, &deployed)?;
        step.warnings = preview.warnings;
        for ruling in preview.changes {
            let (before, after) = (ruling.before, ruling.after);
            let (workflow, action) = (ruling.workflow_name, ruling.action_id);
            // By name: a workflow of the same plan has another id when it is made.
            step.changes
                .push(format!("{action} of {workflow}: {before} -> {after}"));
        }
        Ok(())
    }

    /// `now` is the state of the workflow; `None` if it is new.
    async fn workflow(
        &self,
        wanted: &WorkflowDocument,
        now: Option<WorkflowState>,
        change: &Change,
        step: &mut Step,
    ) -> Result<(), OperatorError> {
        use WorkflowState::{Deleted, Draft};
        if wanted.state == Deleted {
            return Err(Reason::DeletedDocument(wanted.name.clone()).into());
        }
        check_name(&wanted.name)?;
        match self.may_run(&wanted.owner) {
            None => return Err(no_member(&wanted.owner).into()),
            Some(false) if change.is_in("owner") => return Err(Reason::OwnerMustRun.into()),
            Some(_) => {}
        }
        let is_other = change.is_in("definition");
        let is_deployed = wanted.state != Draft && (is_other || now == Some(Draft));
        let known = match (now, self.workspace) {
            (Some(_), Some(workspace)) => {
                Some(self.operator.id_by_name(workspace, &wanted.name).await?)
            }
            _ => None,
        };
        if let Some(workflow) = known {
            let links = self.operator.live_links(Losing::Workflow(workflow)).await?;
            step.ends.extend(links.iter().map(told_link));
        }
        if !is_deployed && !is_other {
            return Ok(());
        }
        let text = wanted.definition.to_string();
        let definition = Definition::check(&text).map_err(Reason::InvalidDefinition)?;
        if !is_deployed {
            return Ok(());
        }
        if let Some(workflow) = known {
            let changes = self
                .operator
                .plan_deploy(workflow, Some(&text))
                .await?
                .changes;
            step.changes.retain(|told| !told.starts_with("definition"));
            step.changes.extend(told("fields", &changes.fields));
            step.changes.extend(told("actions", &changes.actions));
        }
        // Of a new workspace, and of a new user, nothing is found.
        let workspace = self.workspace.unwrap_or_else(WorkspaceId::generate);
        let owner = self
            .user(&wanted.owner)
            .await?
            .unwrap_or_else(UserId::generate);
        step.warnings = self
            .operator
            .warnings(workspace, owner, &definition)
            .await?;
        Ok(())
    }

    fn new_webhook(&self, wanted: &WebhookDocument, step: &mut Step) -> Result<(), OperatorError> {
        step.changes.extend(match &wanted.secret {
            Some(SecretFrom::File(name)) => Some(format!("its secret is in {name}")),
            Some(SecretFrom::Environment(name)) => {
                Some(format!("its secret is in the environment, as {name}"))
            }
            _ => None,
        });
        check_name(&wanted.name)?;
        let secret = wanted.given_secret(self.secrets)?;
        wanted.sender(secret)?.check().map(drop)
    }

    fn subscription(
        &self,
        wanted: &SubscriptionDocument,
        change: &Change,
    ) -> Result<(), OperatorError> {
        if !change.is_new {
            let is_other = change.is_in("webhook") || change.is_in("signal_kind");
            return match is_other {
                true => Err(Reason::QueueTaken.into()),
                false => Ok(()),
            };
        }
        check_queue(&wanted.queue)?;
        let Some(Some(webhook)) = &wanted.webhook else {
            return Ok(());
        };
        let mut known = self.current.iter().chain(self.wanted);
        let is_it = |one: &Document| one.kind() == "webhook" && one.name() == webhook;
        match known.any(is_it) {
            true => Ok(()),
            false => Err(Reason::NotNamed {
                noun: "webhook",
                text: webhook.clone(),
            }
            .into()),
        }
    }

    /// The member of this address that there is already.
    async fn user(&self, email: &str) -> Result<Option<UserId>, OperatorError> {
        let Some(workspace) = self.workspace else {
            return Ok(None);
        };
        let members = self.operator.members(workspace).await?;
        let mut members = members.iter();
        let member = members.find(|one| one.email.eq_ignore_ascii_case(email));
        Ok(member.map(|member| member.user_id))
    }

    /// Whether the member of this address may run workflows then; `None` if there will be none.
    fn may_run(&self, email: &str) -> Option<bool> {
        let of = |documents: &[Document]| {
            documents.iter().find_map(|one| match one {
                Document::Member(one) if one.email.eq_ignore_ascii_case(email) => {
                    Some((one.role, one.is_deactivated))
                }
                _ => None,
            })
        };
        let (wanted, now) = (of(self.wanted), of(self.current));
        let (role, is_deactivated) = wanted.or(now)?;
        let is_deactivated = is_deactivated.or(now.and_then(|now| now.1));
        Some(role != MemberRole::Viewer && is_deactivated != Some(true))
    }
}

/// There is no member of this address.
pub(super) fn no_member(email: &str) -> Reason {
    Reason::NotNamed {
        noun: "member",
        text: email.to_owned(),
    }
}
