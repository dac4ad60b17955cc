//! Brings about what documents say, for each workspace in one transaction: all of it or nothing.
//! A plan is the same, rolled back: so it finds every mistake that the order itself would meet. It
//! touches settings only, never what has come in, waits for nobody and is short, since a gateway
//! waits for a form link that a plan ends, and readers of signals for all that writes.

use std::{collections::BTreeSet, time::Duration};

use letterbox_broker::BrokerTarget;
use letterbox_common::{
    ids::WorkspaceId,
    sealing::{Seal, Secret},
    webhook::WebhookAddress,
};
use letterbox_database::Whole;
use serde::Serialize;

use super::{Document, SecretFrom, change::Change};
use crate::{Operator, OperatorError, Reason, SubscriptionRow};

/// How long a plan may hold others up.
const PLAN_TIME: Duration = Duration::from_secs(10);
/// How long a statement of a plan waits for others.
const PLAN_PATIENCE: &str = "500ms";

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
    pub(super) made: Vec<SubscriptionRow>,
    /// All that a document names, whose queues are declared where they are missing.
    named: Vec<SubscriptionRow>,
    /// Subscriptions whose queues are to be unbound.
    pub(super) ended: Vec<SubscriptionRow>,
    /// The workspace whose runs are to be taken out of the search.
    unsearchable: Option<WorkspaceId>,
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
    pub async fn plan(
        &self,
        keys: &dyn Seal,
        secrets: &Secrets<'_>,
        set: &Set,
        prunes: bool,
    ) -> Result<Applied, OperatorError> {
        let patience = ("lock_timeout", PLAN_PATIENCE.to_owned());
        let whole = Whole::begin(&self.database.saying([patience])).await?;
        let inner = self.within(&whole);
        let planning = inner.bring_about(keys, secrets, set, prunes);
        let planned = tokio::time::timeout(PLAN_TIME, planning).await;
        planned.unwrap_or(Err(Reason::PlanTooLong(PLAN_TIME).into()))
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

    /// Deletes what a workspace was searched by, where that was switched off. It may take long, and
    /// is done after everything else.
    ///
    /// # Errors
    /// When not all of it is deleted.
    pub async fn apply_to_search(&self, applied: &Applied) -> Result<(), OperatorError> {
        let Some(workspace) = applied.unsearchable else {
            return Ok(());
        };
        let ending = self.end_search(workspace).await;
        ending.map_err(|error| Reason::SearchNotDeleted(error.to_string()).into())
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
            if let Document::Workspace(wanted) = document
                && wanted.is_searchable == Some(false)
                && change.is_in("is_searchable")
            {
                applied.unsearchable = Some(workspace);
            }
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
}

/// Reads the secret of a new webhook; an error says why it can't.
pub type Secrets<'a> = dyn Fn(&SecretFrom) -> Result<Secret, String> + Sync + 'a;

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
