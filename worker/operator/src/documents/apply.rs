//! Brings about what documents say, for each workspace in one transaction: all of it or nothing.
//! A plan is the same, rolled back: so it finds every mistake that the order itself would meet.

use std::collections::BTreeSet;

use letterbox_broker::BrokerTarget;
use letterbox_common::{
    ids::{UserId, WorkflowId, WorkspaceId},
    sealing::{Seal, Secret},
    states::WorkflowState,
    webhook::{Scheme, WebhookAddress},
};
use letterbox_database::{Whole, statements};
use letterbox_workflow::Definition;
use serde::Serialize;
use serde_json::Value;

use super::{
    Document, MemberDocument, SameBy, SecretFrom, SubscriptionDocument, WebhookDocument,
    WorkflowDocument, WorkspaceDocument,
};
use crate::{
    Changes, LiveLink, Losing, Member, Move, NewSubscription, Operator, OperatorError, Reason,
    Retries, Sender, SubscribedTo, SubscriptionRow, WebhookRow,
};

statements! {
    /// Sets the definition that the next deploy uses.
    SET_DRAFT = set_draft "
UPDATE workflows SET draft = $2 WHERE workflow_id = $1 AND state <> 'deleted'";
}

/// The documents of one workspace.
#[derive(Debug, Clone, Default)]
pub struct Set {
    /// Which one they are about; `None` is that which the first of them names, or a new one.
    pub workspace: Option<WorkspaceId>,
    /// In the order in which they were given.
    pub documents: Vec<Document>,
}

/// What becomes of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// It is made.
    Create,
    /// It is another afterwards.
    Change,
    /// It ends for good.
    Delete,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The workspace's name.
    pub workspace: String,
    /// What becomes of it.
    pub verb: Verb,
    /// The kind of the document.
    pub kind: &'static str,
    /// The name of the thing.
    pub name: String,
    /// What is another: members with their values before and after, where these are short.
    pub changes: Vec<String>,
    /// What ends by this, for everybody who has it.
    pub ends: Vec<String>,
    /// What the owner may want to fix.
    pub warnings: Vec<String>,
}

/// A webhook that was made, with its secret, which is shown only now.
#[derive(Debug, Clone)]
pub struct MadeWebhook {
    /// Its name.
    pub name: String,
    /// Where its tool sends to.
    pub address: WebhookAddress,
    /// `None` where it was given, or is set later.
    pub secret: Option<Secret>,
}

/// What was done, or would be.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// Nothing, if things are so already.
    pub steps: Vec<Step>,
    /// The webhooks that were made.
    pub webhooks: Vec<MadeWebhook>,
    /// New subscriptions, whose queues must not exist yet.
    made: Vec<SubscriptionRow>,
    /// All that a document names, whose queues are declared where they are missing.
    named: Vec<SubscriptionRow>,
    /// Subscriptions whose queues are to be unbound.
    ended: Vec<SubscriptionRow>,
}

impl Applied {
    /// Users of the broker who were made for what has ended.
    pub fn useless_logins(&self) -> impl Iterator<Item = &str> {
        self.ended.iter().filter_map(|one| one.login.as_deref())
    }

    /// Whether something is to be done at the broker, too.
    #[must_use]
    pub fn needs_broker(&self) -> bool {
        !self.made.is_empty() || !self.ended.is_empty()
    }

    /// Whether queues are named, which may be missing.
    #[must_use]
    pub fn names_queues(&self) -> bool {
        !self.named.is_empty()
    }
}

impl Operator {
    /// Says what [`Self::apply`] would do. Nothing is stored.
    ///
    /// # Errors
    /// When something can't be brought about.
    pub async fn plan(
        &self,
        keys: &dyn Seal,
        secrets: &Secrets<'_>,
        set: &Set,
        prunes: bool,
    ) -> Result<Applied, OperatorError> {
        let whole = Whole::begin(&self.database).await?;
        self.within(&whole)
            .bring_about(keys, secrets, set, prunes)
            .await
    }

    /// Brings about what the documents of one workspace say: all of it, or nothing. `prunes`
    /// deletes what they do not name, of those kinds of which they name something.
    ///
    /// # Errors
    /// When something can't be brought about, or would not be what was planned.
    pub async fn apply(
        &self,
        keys: &dyn Seal,
        secrets: &Secrets<'_>,
        set: &Set,
        prunes: bool,
        planned: &[Step],
    ) -> Result<Applied, OperatorError> {
        let whole = Whole::begin(&self.database).await?;
        let inner = self.within(&whole);
        let applied = inner.bring_about(keys, secrets, set, prunes).await?;
        if applied.steps != planned {
            return Err(Reason::PlanConflict.into());
        }
        whole.commit().await?;
        Ok(applied)
    }

    /// Checks before anything is done that the queues of new subscriptions can be made.
    ///
    /// # Errors
    /// When one exists, or the broker fails.
    pub async fn check_at_broker(
        &self,
        broker: &BrokerTarget,
        planned: &Applied,
    ) -> Result<(), OperatorError> {
        for made in &planned.made {
            self.need_new_queue(broker, &made.queue).await?;
        }
        Ok(())
    }

    /// Declares the queues of the subscriptions that are named, and takes those of ended ones back.
    /// A failure keeps it from nothing else.
    ///
    /// # Errors
    /// The last failure: the same order mends it.
    pub async fn apply_at_broker(
        &self,
        broker: &BrokerTarget,
        applied: &Applied,
    ) -> Result<(), OperatorError> {
        let mut done = Ok(());
        for named in &applied.named {
            let declared = self.declare_queue(broker, named).await;
            done = declared.and(done);
        }
        for ended in &applied.ended {
            let unbound = self.unbind_queue(broker, ended, false).await;
            done = unbound.and(done);
        }
        done
    }

    /// The same operator, whose orders are part of one transaction.
    fn within(&self, whole: &Whole) -> Self {
        Self {
            database: whole.database().clone(),
            orderer: self.orderer.clone(),
            person: self.person.clone(),
        }
    }

    async fn bring_about(
        &self,
        keys: &dyn Seal,
        secrets: &Secrets<'_>,
        set: &Set,
        prunes: bool,
    ) -> Result<Applied, OperatorError> {
        for (number, document) in set.documents.iter().enumerate() {
            if set.documents[..number]
                .iter()
                .any(|one| one.is_about(document))
            {
                return Err(Reason::TwoDocuments(named(document)).into());
            }
        }
        let (workspace, mut applied) = (self.find_workspace(set).await?, Applied::default());
        let workspace = match (workspace, set.documents.first()) {
            (Some(workspace), _) => workspace,
            (None, Some(Document::Workspace(new))) => {
                let made = self.create_workspace(&new.name, None).await?;
                applied
                    .steps
                    .push(step(&new.name, Verb::Create, &set.documents[0]));
                made.workspace_id
            }
            (None, _) => return Err(Reason::NoWorkspaceNamed.into()),
        };
        let is_new = !applied.steps.is_empty();
        let current = self.documents(workspace).await?;
        let name = current.first().map(Document::name).unwrap_or_default();
        for document in in_order(&set.documents) {
            let mut same = current.iter().filter(|one| one.is_about(document));
            let former = same.next();
            if same.next().is_some() {
                let (kind, name) = (document.kind(), document.name().to_owned());
                return Err(Reason::SameName(kind, name).into());
            }
            let mut change = Change::between(former, document);
            // The policy that nobody has set, and a workspace of this plan, are there already.
            let verb = match former {
                None => Verb::Create,
                Some(_) if change.members.is_empty() => {
                    self.note_named(workspace, document, &mut applied).await?;
                    continue;
                }
                Some(_) => Verb::Change,
            };
            self.carry_out(
                keys,
                secrets,
                workspace,
                document,
                &mut change,
                &mut applied,
            )
            .await?;
            self.note_named(workspace, document, &mut applied).await?;
            if is_new && document.kind() == "workspace" {
                continue;
            }
            applied.steps.push(Step {
                changes: change.told,
                ends: change.ends,
                warnings: change.warnings,
                ..step(name, verb, document)
            });
        }
        if prunes {
            let doomed = doomed(&current, &set.documents);
            for document in doomed {
                let ends = self.prune(workspace, document, &mut applied).await?;
                applied.steps.push(Step {
                    ends,
                    ..step(name, Verb::Delete, document)
                });
            }
        }
        Ok(applied)
    }

    /// Notes the subscription that a document names.
    async fn note_named(
        &self,
        workspace: WorkspaceId,
        document: &Document,
        applied: &mut Applied,
    ) -> Result<(), OperatorError> {
        if let Document::Subscription(named) = document {
            let named = self.subscription(workspace, &named.queue).await?;
            applied.named.push(named);
        }
        Ok(())
    }

    /// `None` if there is none of this name yet.
    async fn find_workspace(&self, set: &Set) -> Result<Option<WorkspaceId>, OperatorError> {
        if set.workspace.is_some() {
            return Ok(set.workspace);
        }
        let Some(Document::Workspace(wanted)) = set.documents.first() else {
            return Ok(None);
        };
        let workspaces = self.workspaces().await?;
        let mut found = workspaces.iter().filter(|one| one.name == wanted.name);
        match (found.next(), found.next()) {
            (Some(one), Some(other)) => Err(Reason::Ambiguous {
                text: wanted.name.clone(),
                meant: vec![one.workspace_id.to_string(), other.workspace_id.to_string()],
            }
            .into()),
            (found, _) => Ok(found.map(|one| one.workspace_id)),
        }
    }

    async fn carry_out(
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
                    let (workflow, action) = (ruling.workflow_id, ruling.action_id);
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
            self.set_search(workspace, searches).await?;
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
            self.database
                .execute(&SET_DRAFT, &[&workflow, &definition])
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
    async fn prune(
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

/// Reads the secret of a new webhook; an error says why it can't.
pub type Secrets<'a> = dyn Fn(&SecretFrom) -> Result<Secret, String> + Sync + 'a;

/// What is another than before.
struct Change {
    is_new: bool,
    /// Members.
    members: Vec<String>,
    /// The same, in words.
    told: Vec<String>,
    ends: Vec<String>,
    warnings: Vec<String>,
}

impl Change {
    fn between(former: Option<&Document>, wanted: &Document) -> Self {
        let known = former.map(Document::members).unwrap_or_default();
        let mut change = Self {
            is_new: former.is_none(),
            members: Vec::new(),
            told: Vec::new(),
            ends: Vec::new(),
            warnings: Vec::new(),
        };
        for (member, after) in wanted.members() {
            // By these it was found; a secret is a new webhook's, a name a new user's.
            let is_name = match wanted {
                Document::Member(_) => ["email", "name"].contains(&&*member),
                _ => member == "name" || member == "secret" || member == "queue",
            };
            let before = known.get(&member);
            if is_name || member == "kind" || is_same(&member, before, &after) {
                continue;
            }
            if former.is_some() {
                let short = |value: Option<&Value>| match value {
                    Some(Value::Object(_)) => "…".to_owned(),
                    Some(value) => value.to_string(),
                    None => "null".to_owned(),
                };
                change.told.push(match &after {
                    Value::Object(_) => member.clone(),
                    after => format!("{member}: {} -> {}", short(before), short(Some(after))),
                });
            }
            change.members.push(member);
        }
        change
    }

    fn is_in(&self, member: &str) -> bool {
        self.is_new || self.members.iter().any(|one| one == member)
    }
}

/// Whether a member says what is so already. An address is the same in any case.
fn is_same(member: &str, before: Option<&Value>, after: &Value) -> bool {
    match (before, after) {
        (Some(Value::String(before)), Value::String(after)) if member == "owner" => {
            before.eq_ignore_ascii_case(after)
        }
        (None, after) => after.is_null(),
        (Some(before), after) => before == after,
    }
}

fn told(what: &str, changes: &Changes) -> Option<String> {
    let marked = |sign: char, names: &[String]| -> Vec<String> {
        names.iter().map(|name| format!("{sign}{name}")).collect()
    };
    let all = [
        marked('+', &changes.added),
        marked('~', &changes.changed),
        marked('-', &changes.removed),
    ]
    .concat();
    (!all.is_empty()).then(|| format!("{what}: {}", all.join(" ")))
}

fn told_link(link: &LiveLink) -> String {
    let (workflow, made) = (&link.workflow_name, link.created_at);
    format!("the form link of {workflow} made {made}")
}

fn named(document: &Document) -> String {
    format!("{} {:?}", document.kind(), document.name())
}

fn step(workspace: &str, verb: Verb, document: &Document) -> Step {
    Step {
        workspace: workspace.to_owned(),
        verb,
        kind: document.kind(),
        name: document.name().to_owned(),
        changes: Vec::new(),
        ends: Vec::new(),
        warnings: Vec::new(),
    }
}

/// What others are about comes first: members before their workflows, webhooks before who
/// subscribes to them.
fn in_order(documents: &[Document]) -> Vec<&Document> {
    let mut ordered: Vec<&Document> = documents.iter().collect();
    ordered.sort_by_key(|document| match document {
        Document::Workspace(_) => 0,
        Document::Member(_) => 1,
        Document::Workflow(_) => 2,
        // Its warnings are about accounts of the deployed workflows.
        Document::Policy(_) => 3,
        Document::Webhook(_) => 4,
        Document::Subscription(_) => 5,
    });
    ordered
}

/// What there is and no document names, of the kinds of which they name something; what refers to
/// others first.
fn doomed<'a>(current: &'a [Document], wanted: &[Document]) -> Vec<&'a Document> {
    let kinds: BTreeSet<_> = wanted.iter().map(Document::kind).collect();
    let mut doomed = in_order(current);
    doomed.retain(|one| {
        kinds.contains(one.kind()) && !wanted.iter().any(|document| document.is_about(one))
    });
    doomed.reverse();
    doomed
}
