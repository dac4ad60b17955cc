//! Plans: what documents would change, and what ends by that. A plan only reads, in a read-only
//! transaction, so it can't write or lock anything.

use std::collections::BTreeSet;

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{Database, Whole};

use super::{
    Document, PolicyDocument, Set, Step, Verb,
    change::{DocumentChange, told_link},
    former,
    outlook::Outlook,
};
use crate::{
    Losing, Operator, Reason, Result, Secrets, SubscriptionRow, Workspace, WorkspaceSettings,
    names::only_one, policies::default_policy, workspaces::check_workspace,
};

/// A plan.
#[derive(Default)]
pub struct Plan<'d> {
    /// Nothing, if things are so already.
    pub steps: Vec<Step>,
    /// `None` where it is to be made.
    pub(super) workspace: Option<WorkspaceId>,
    /// The workspace's name.
    pub(super) name: String,
    /// The documents that change something.
    pub(super) wanted: Vec<(&'d Document, DocumentChange)>,
    /// What no document names.
    pub(super) doomed: Vec<Document>,
    /// Subscriptions that end.
    pub(super) ended: Vec<SubscriptionRow>,
}

impl Plan<'_> {
    /// The queues of new subscriptions, which must not exist yet.
    pub fn new_queues(&self) -> impl Iterator<Item = &str> {
        let new = self.wanted.iter().filter(|(_, change)| change.is_new);
        new.filter_map(|(document, _)| match document {
            Document::Subscription(new) => new.queue.as_deref(),
            _ => None,
        })
    }

    /// Users of the broker who were made for what ends.
    pub fn useless_logins(&self) -> impl Iterator<Item = &str> {
        self.ended.iter().filter_map(|one| one.login.as_deref())
    }

    /// Whether something is to be done at the broker, too.
    pub fn needs_broker(&self) -> bool {
        self.new_queues().next().is_some() || self.ended.iter().any(|one| one.queue.is_some())
    }

    fn step(&self, verb: Verb, document: &Document) -> Step {
        Step {
            workspace: self.name.clone(),
            verb,
            kind: document.kind(),
            name: document.name().to_owned(),
            changes: Vec::new(),
            ends: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// What a step before it ends is told there only.
    fn add(&mut self, mut step: Step) {
        let links = |one: &String| one.starts_with("the form link");
        let told: BTreeSet<_> = self.steps.iter().flat_map(|one| &one.ends).collect();
        step.ends.retain(|one| !links(one) || !told.contains(one));
        self.steps.push(step);
    }
}

impl Operator {
    /// Says what [`Self::apply`] would do. Nothing is stored, and nothing is locked.
    pub async fn plan<'d>(
        &self,
        secrets: &Secrets<'_>,
        set: &'d Set,
        prunes: bool,
    ) -> Result<Plan<'d>> {
        let reading = Whole::begin_reading(&self.database).await?;
        let reader = self.on(reading.database().clone());
        reader.foresee(secrets, set, prunes).await
    }

    /// The same operator, on this database.
    pub(super) fn on(&self, database: Database) -> Self {
        Self {
            database,
            orderer: self.orderer.clone(),
            person: self.person.clone(),
        }
    }

    pub(super) async fn foresee<'d>(
        &self,
        secrets: &Secrets<'_>,
        set: &'d Set,
        prunes: bool,
    ) -> Result<Plan<'d>> {
        let documents = &set.documents;
        check_single(documents)?;
        let workspace = self.find_workspace(set).await?;
        let current = match (workspace, documents.first()) {
            (Some(workspace), _) => self.documents(workspace).await?,
            (None, Some(Document::Workspace(new))) => new_workspace(&new.name)?,
            (None, _) => return Err(Reason::NoWorkspaceNamed.into()),
        };
        let name = current.first().map(Document::name).unwrap_or_default();
        let mut plan = Plan {
            workspace,
            name: name.to_owned(),
            ..Plan::default()
        };
        let outlook = Outlook {
            operator: self,
            secrets,
            workspace,
            current: &current,
            wanted: documents,
        };
        for document in in_order(documents) {
            let former = former(&current, document)?;
            let change = DocumentChange::between(former, document);
            let is_made = workspace.is_none() && document.kind() == "workspace";
            if !change.is_new && !is_made && change.members.is_empty() {
                continue;
            }
            let mut step = plan.step(Verb::Change, document);
            if change.is_new || is_made {
                step.verb = Verb::Create;
            } else {
                step.changes.clone_from(&change.told);
            }
            outlook
                .foresee(document, former, &change, &mut step)
                .await?;
            plan.wanted.push((document, change));
            plan.add(step);
        }
        // What was made just now holds nothing that no document names.
        let Some(workspace) = workspace.filter(|_| prunes) else {
            return Ok(plan);
        };
        for document in doomed(&current, documents) {
            let mut step = plan.step(Verb::Delete, document);
            step.ends = self.ends_with(workspace, document, &mut plan.ended).await?;
            plan.doomed.push(document.clone());
            plan.add(step);
        }
        Ok(plan)
    }

    /// What ends when the thing of this document is deleted.
    async fn ends_with(
        &self,
        workspace: WorkspaceId,
        document: &Document,
        ended: &mut Vec<SubscriptionRow>,
    ) -> Result<Vec<String>> {
        let losing = match document {
            Document::Member(member) => {
                let member = self.member_of(workspace, &member.email).await?;
                Losing::Member(workspace, member.user_id)
            }
            Document::Workflow(workflow) => {
                Losing::Workflow(self.id_by_name(workspace, &workflow.name).await?)
            }
            Document::Webhook(webhook) => {
                let webhooks = self.doomed_webhooks(workspace, &webhook.name).await?;
                let words = webhooks.iter().enumerate().map(|(number, _)| match number {
                    0 => "its address and its secret",
                    _ => "those of the webhook that it was to replace",
                });
                return Ok(words.map(str::to_owned).collect());
            }
            Document::Subscription(subscription) => {
                let one = self.subscription(workspace, subscription.name()).await?;
                let login = one.login.iter();
                let ends = login.map(|login| format!("the user {login} of RabbitMQ"));
                let secret = one.url.iter().map(|_| "its secret".to_owned());
                let ends = ends.chain(secret).collect();
                ended.push(one);
                return Ok(ends);
            }
            Document::Workspace(_) | Document::Policy(_) => return Ok(Vec::new()),
        };
        let links = self.live_links(losing).await?;
        Ok(links.iter().map(told_link).collect())
    }

    /// `None` if there is none of this name yet.
    pub(super) async fn find_workspace(&self, set: &Set) -> Result<Option<WorkspaceId>> {
        if set.workspace.is_some() {
            return Ok(set.workspace);
        }
        let Some(Document::Workspace(wanted)) = set.documents.first() else {
            return Ok(None);
        };
        let workspaces = self.workspaces().await?;
        let named = workspaces.into_iter().filter(|one| one.name == wanted.name);
        let named: Vec<_> = named.collect();
        if named.is_empty() {
            return Ok(None);
        }
        let id = |one: &Workspace| one.workspace_id.to_string();
        let only = only_one(named, "workspace", &wanted.name, id)?;
        Ok(Some(only.workspace_id))
    }
}

/// No two documents are about one thing.
fn check_single(documents: &[Document]) -> Result<(), Reason> {
    for (number, document) in documents.iter().enumerate() {
        if documents[..number].iter().any(|one| one.is_about(document)) {
            let about = format!("{} {:?}", document.kind(), document.name());
            return Err(Reason::TwoDocuments(about));
        }
    }
    Ok(())
}

/// What there is in a workspace that was made just now.
fn new_workspace(name: &str) -> Result<Vec<Document>> {
    check_workspace(name)?;
    let settings = WorkspaceSettings {
        name: name.to_owned(),
        ..WorkspaceSettings::default()
    };
    let policy = PolicyDocument {
        policy: default_policy(),
    };
    Ok(vec![
        Document::Workspace(settings),
        Document::Policy(policy),
    ])
}

/// In order of reference: members before their workflows, webhooks before their subscriptions.
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

/// What no document names, of each kind of which they name something; in reverse order of
/// reference.
fn doomed<'a>(current: &'a [Document], wanted: &[Document]) -> Vec<&'a Document> {
    let kinds: BTreeSet<_> = wanted.iter().map(Document::kind).collect();
    let mut doomed = in_order(current);
    doomed.retain(|one| {
        kinds.contains(one.kind()) && !wanted.iter().any(|document| document.is_about(one))
    });
    doomed.reverse();
    doomed
}
