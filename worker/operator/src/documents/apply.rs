//! Applies documents, for each workspace in one transaction: all or nothing.

use std::time::Duration;

use letterbox_broker::BrokerTarget;
use letterbox_common::{
    ids::WorkspaceId,
    sealing::{Seal, Secret},
};
use letterbox_database::Whole;
use uuid::Uuid;

use super::{Document, Plan, Set, Step};
use crate::{
    NewWebhook, Operator, OperatorError, Reason, Result, Secrets, SubscriptionRow,
    subscriptions::{hold_subscriptions, let_go_of_subscriptions},
};

/// Pauses before another try after a conflict.
const PAUSES: [Duration; 10] = [Duration::from_millis(100); 10];

/// The outcome, and what is left to do at the broker.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// The webhooks that were made.
    pub webhooks: Vec<NewWebhook>,
    /// The subscriptions to URLs that were made, with their secrets, which are shown only now.
    pub subscriptions: Vec<(SubscriptionRow, Secret)>,
    /// All subscriptions that a document names, whose queues are declared where they are missing.
    named: Vec<SubscriptionRow>,
    /// Subscriptions whose queues are to be unbound.
    ended: Vec<SubscriptionRow>,
    /// The workspace whose runs are to be taken out of the search.
    unsearchable: Option<WorkspaceId>,
}

impl Applied {
    /// Declares the queues of the subscriptions that are named, and takes those of ended ones back.
    /// A failure keeps it from nothing else; the last one is given, and the same order mends it.
    pub async fn settle_at_broker(&self, broker: &BrokerTarget) -> Result<()> {
        let mut done = Ok(());
        for named in &self.named {
            done = named.declare_queue(broker).await.and(done);
        }
        for ended in &self.ended {
            done = ended.unbind_queue(broker, false).await.and(done);
        }
        done
    }
}

impl Operator {
    /// Applies the documents of one workspace: all or nothing. `prunes` deletes what they don't
    /// name, of each kind of which they name something.
    pub async fn apply(
        &self,
        keys: &dyn Seal,
        secrets: &Secrets<'_>,
        set: &Set,
        prunes: bool,
        planned: &[Step],
    ) -> Result<Applied> {
        // Workers move cursors all the time, which is nothing that the plan is about.
        let workspace = self.find_workspace(set).await?;
        let holder = Uuid::new_v4();
        let targets = planned.iter().filter(|step| step.kind == "subscription");
        let targets: Vec<&str> = targets.map(|step| step.name.as_str()).collect();
        let held = workspace.filter(|_| !targets.is_empty());
        let mut pauses = PAUSES.into_iter();
        loop {
            if let Some(workspace) = held {
                hold_subscriptions(self, workspace, &targets, holder).await?;
            }
            let trying = async {
                let whole = Whole::begin(&self.database).await?;
                let inner = self.on(whole.database().clone());
                let plan = inner.foresee(secrets, set, prunes).await?;
                // Nothing is done that nobody has seen.
                if plan.steps != planned {
                    return Err(Reason::PlanConflict.into());
                }
                let applied = inner.carry_out_all(keys, secrets, set, plan).await?;
                whole.commit().await?;
                Ok(applied)
            };
            let applied = trying.await;
            if let Some(workspace) = held {
                // Otherwise they are free soon.
                let _ = let_go_of_subscriptions(self, workspace, holder).await;
            }
            match (applied, pauses.next()) {
                // Another order was faster. What it has changed is found by planning again.
                (Err(OperatorError::Database(error)), Some(pause)) if error.asks_for_retry() => {
                    tokio::time::sleep(pause).await;
                }
                (applied, _) => return applied,
            }
        }
    }

    async fn carry_out_all(
        &self,
        keys: &dyn Seal,
        secrets: &Secrets<'_>,
        set: &Set,
        plan: Plan<'_>,
    ) -> Result<Applied> {
        let workspace = match plan.workspace {
            Some(workspace) => workspace,
            None => self.create_workspace(&plan.name, None).await?.workspace_id,
        };
        let mut applied = Applied {
            ended: plan.ended,
            ..Applied::default()
        };
        for (document, change) in &plan.wanted {
            let applying = &mut applied;
            self.carry_out(keys, secrets, workspace, document, change, applying)
                .await?;
            if let Document::Workspace(wanted) = document
                && wanted.is_searchable == Some(false)
                && change.is_in("is_searchable")
            {
                applied.unsearchable = Some(workspace);
            }
        }
        // Also of those that are there already: their queues may be gone.
        for document in &set.documents {
            if let Document::Subscription(named) = document {
                let named = self.subscription(workspace, named.name()).await?;
                applied.named.push(named);
            }
        }
        // Last: what goes may have been the owner of what was changed.
        for document in &plan.doomed {
            self.prune(workspace, document).await?;
        }
        Ok(applied)
    }

    /// Deletes what a workspace was searched by, where that was switched off. It may take long, and
    /// is done after everything else.
    pub async fn apply_to_search(&self, applied: &Applied) -> Result<()> {
        let Some(workspace) = applied.unsearchable else {
            return Ok(());
        };
        let ending = self.end_search(workspace).await;
        ending.map_err(|error| Reason::SearchNotDeleted(error.to_string()).into())
    }
}
