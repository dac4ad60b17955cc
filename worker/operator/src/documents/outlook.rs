//! Checks, kind by kind, what a document asks for, and finds out what comes of it: in the light of
//! what there is, and of what the other documents ask for. Nothing here writes.

use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::{MemberRole, WorkflowState},
};
use letterbox_workflow::Definition;

use super::{
    Document, MemberSettings, PolicyDocument, Step, SubscriptionSettings, WorkflowDocument,
    change::{DocumentChange, told, told_link},
};
use crate::{
    Losing, Operator, Reason, Result, SecretFrom, Secrets, WebhookSettings, check_name,
    deploys::warnings,
    policies::{DeployedActions, compare_policies},
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
        change: &DocumentChange,
        step: &mut Step,
    ) -> Result<()> {
        match (document, former) {
            (Document::Workspace(wanted), _) => Ok(wanted.check()?),
            (Document::Member(wanted), _) => self.member(wanted, change, step).await,
            (Document::Policy(wanted), _) => self.policy(wanted, step).await,
            (Document::Workflow(wanted), former) => {
                let deploys = deploys_anew(wanted, former, change);
                self.workflow(wanted, deploys, change, step).await
            }
            (Document::Webhook(wanted), Some(Document::Webhook(former))) => {
                // Its sender signs by these, and what it has sent is remembered by them.
                for member in ["tool", "rules", "same_by"] {
                    if change.is_in(member) {
                        return Err(Reason::FixedMember(wanted.name.clone(), member).into());
                    }
                }
                wanted.over(former).check(None).map(drop)
            }
            (Document::Webhook(wanted), _) => self.new_webhook(wanted, step),
            (Document::Subscription(wanted), _) => self.subscription(wanted, change).await,
        }
    }

    async fn member(
        &self,
        wanted: &MemberSettings,
        change: &DocumentChange,
        step: &mut Step,
    ) -> Result<()> {
        if change.is_new {
            return check_user(&wanted.email, wanted.name.as_ref().unwrap_or(&wanted.email));
        }
        if self.may_run(&wanted.email) == Some(false)
            && let Some(workspace) = self.workspace
        {
            let losing = Losing::Member(workspace, self.user(&wanted.email).await?);
            let links = self.operator.live_links(losing).await?;
            step.ends.extend(links.iter().map(told_link));
        }
        Ok(())
    }

    async fn policy(&self, wanted: &PolicyDocument, step: &mut Step) -> Result<()> {
        let mut accounts = Vec::new();
        let mut deployed = Vec::new();
        if let Some(workspace) = self.workspace {
            accounts = self.operator.accounts(workspace).await?;
            deployed = self.operator.deployed_actions(workspace).await?;
        }
        for document in self.wanted {
            let Document::Workflow(workflow) = document else {
                continue;
            };
            let former = self.current.iter().find(|one| one.is_about(document));
            let change = DocumentChange::between(former, document);
            let deploys = deploys_anew(workflow, former, &change);
            let is_deployed = workflow.state == WorkflowState::Deployed;
            let owner = self.user(&workflow.owner).await?;
            let mut known = deployed.iter_mut().filter(|one| one.name == workflow.name);
            match known.next() {
                // What is not deployed anew stays as it is live, also if it would not be taken now.
                Some(live) if is_deployed && !deploys => live.owner_id = owner,
                _ => {
                    deployed.retain(|one| one.name != workflow.name);
                    // A mistake in it has been told: workflows come before the policy.
                    let definition = Definition::check(&workflow.definition.to_string());
                    if let Some(definition) = definition.ok().filter(|_| is_deployed) {
                        deployed.push(DeployedActions::of(&workflow.name, owner, &definition));
                    }
                }
            }
        }
        deployed.sort_by(|one, other| one.name.cmp(&other.name));
        let current = self.current.iter().find_map(|one| match one {
            Document::Policy(policy) => Some(policy.policy.to_string()),
            _ => None,
        });
        let current = current.unwrap_or_default();
        let wanted = wanted.policy.to_string();
        let preview = compare_policies(&current, &wanted, &accounts, &deployed)?;
        step.warnings = preview.warnings;
        for ruling in preview.changes {
            let before = ruling.before;
            let after = ruling.after;
            let workflow = ruling.workflow_name;
            let action = ruling.action_id;
            // By name: a workflow of the same plan has another id when it is made.
            step.changes
                .push(format!("{action} of {workflow}: {before} -> {after}"));
        }
        Ok(())
    }

    async fn workflow(
        &self,
        wanted: &WorkflowDocument,
        deploys: bool,
        change: &DocumentChange,
        step: &mut Step,
    ) -> Result<()> {
        if wanted.state == WorkflowState::Deleted {
            return Err(Reason::DeletedDocument(wanted.name.clone()).into());
        }
        check_name(&wanted.name)?;
        match self.may_run(&wanted.owner) {
            None => return Err(Reason::not_named("member", &wanted.owner).into()),
            // An owner who lost the right since keeps the workflow until it is given to another.
            Some(false) if change.is_in("owner") => return Err(Reason::OwnerMustRun.into()),
            Some(_) => {}
        }
        let known = match self.workspace.filter(|_| !change.is_new) {
            Some(workspace) => Some(self.operator.id_by_name(workspace, &wanted.name).await?),
            None => None,
        };
        if let Some(workflow) = known {
            let links = self.operator.live_links(Losing::Workflow(workflow)).await?;
            step.ends.extend(links.iter().map(told_link));
        }
        if !deploys && !change.is_in("definition") {
            return Ok(());
        }
        let text = wanted.definition.to_string();
        let definition = Definition::check(&text).map_err(Reason::InvalidDefinition)?;
        if !deploys {
            return Ok(());
        }
        if let Some(workflow) = known {
            let changes = self
                .operator
                .plan_deploy(workflow, Some(&text))
                .await?
                .changes;
            step.changes.retain(|told| !told.starts_with("definition"));
            step.changes.extend(told("texts", &changes.texts));
            step.changes.extend(told("fields", &changes.fields));
            step.changes.extend(told("actions", &changes.actions));
        }
        // Of a new workspace nothing is found.
        let workspace = self.workspace.unwrap_or_else(WorkspaceId::generate);
        let owner = self.user(&wanted.owner).await?;
        step.warnings = warnings(self.operator, workspace, owner, &definition).await?;
        Ok(())
    }

    fn new_webhook(&self, wanted: &WebhookSettings, step: &mut Step) -> Result<()> {
        step.changes.extend(match &wanted.secret {
            Some(SecretFrom::File(name)) => Some(format!("its secret is in {name}")),
            Some(SecretFrom::Environment(name)) => {
                Some(format!("its secret is in the environment, as {name}"))
            }
            _ => None,
        });
        check_name(&wanted.name)?;
        wanted.check(wanted.given_secret(self.secrets)?).map(drop)
    }

    async fn subscription(
        &self,
        wanted: &SubscriptionSettings,
        change: &DocumentChange,
    ) -> Result<()> {
        let target = wanted.target()?;
        if !change.is_new {
            let fixed = ["webhook", "signal_kind", "where"];
            let is_other = fixed.iter().any(|member| change.is_in(member));
            return match is_other {
                true => Err(Reason::QueueTaken.into()),
                false => Ok(()),
            };
        }
        self.operator.check_target(&target).await?;
        let Some(Some(webhook)) = &wanted.webhook else {
            return Ok(());
        };
        let is_it = |one: &&Document| one.kind() == "webhook" && one.name() == webhook;
        let now = self.current.iter().filter(is_it).count();
        match (now, self.wanted.iter().any(|one| is_it(&one))) {
            (1, _) | (0, true) => Ok(()),
            (0, false) => Err(Reason::not_named("webhook", webhook).into()),
            _ => Err(Reason::SameName("webhook", webhook.clone()).into()),
        }
    }

    /// The user of this address; one of whom nothing is found if there is none yet.
    async fn user(&self, email: &str) -> Result<UserId> {
        let user = self.operator.user_by_email(email).await?;
        Ok(user.unwrap_or_else(UserId::generate))
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
        let wanted = of(self.wanted);
        let now = of(self.current);
        let (role, is_deactivated) = wanted.or(now)?;
        let is_deactivated = is_deactivated.or(now.and_then(|now| now.1));
        Some(role != MemberRole::Viewer && is_deactivated != Some(true))
    }
}

/// Whether another release of a workflow becomes live.
fn deploys_anew(
    wanted: &WorkflowDocument,
    former: Option<&Document>,
    change: &DocumentChange,
) -> bool {
    let was_draft = match former {
        Some(Document::Workflow(former)) => former.state == WorkflowState::Draft,
        _ => true,
    };
    wanted.state != WorkflowState::Draft && (change.is_in("definition") || was_draft)
}
