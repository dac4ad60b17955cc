//! Subscriptions: queues that get the signals of a workspace, each from a cursor that is set, held
//! and given up here, and moved by workers.

use jiff::Timestamp;
use letterbox_broker::{BrokerTarget, declare_subscription, end_subscription, has_queue};
use letterbox_common::{
    ids::{DeliveryId, WebhookId, WorkspaceId},
    states::SignalKind,
};
use letterbox_database::{FromRow, statements};
use serde::{Deserialize, Serialize};
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::{
    Operator, OperatorError, PROGRAM, Reason, asking::Sought, error::Explain, given,
    workspace_settings::Nullable,
};

statements! {
    /// The subscriptions of a workspace, or one of them.
    fn subscriptions(workspace: WorkspaceId, queue: Option<&str>) -> Vec<SubscriptionRow> = "
SELECT s.subscription_id, s.workspace_id, s.queue, s.webhook_id, h.name AS webhook_name,
    s.signal_kind, s.login, l.signals AS lag_signals, l.seconds AS lag_seconds, s.published,
    s.created_at, s.paused_at, s.failing_since, s.failure
FROM subscriptions s JOIN subscription_lags l USING (workspace_id, subscription_id)
LEFT JOIN webhooks h ON h.workspace_id = s.workspace_id AND h.webhook_id = s.webhook_id
WHERE s.workspace_id = $1 AND ($2::text IS NULL OR s.queue = $2)
ORDER BY s.queue";

    /// Whether a queue has a subscription, of whichever workspace.
    fn queue_is_taken(queue: &str) -> (bool,) = "
SELECT EXISTS (SELECT FROM subscriptions WHERE queue = $1) AS is_taken";

    /// Makes a subscription.
    fn subscribe(
        workspace: WorkspaceId, subscription: Uuid, queue: &str, webhook: Option<WebhookId>,
        signal_kind: Option<SignalKind>, login: Option<&str>, position: i64, signal: DeliveryId,
    ) = "
INSERT INTO subscriptions (workspace_id, subscription_id, queue, webhook_id, signal_kind, login,
    position, signal_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

    /// Pauses a subscription, or lets it go on.
    fn pause_subscription(workspace: WorkspaceId, queue: &str, pauses: bool) -> u64 = "
UPDATE subscriptions SET paused_at = CASE WHEN $3 THEN now() END, due_at = now()
WHERE workspace_id = $1 AND queue = $2 AND (paused_at IS NOT NULL) <> $3";

    /// Sets the cursor. A worker that has just read from elsewhere does not move it.
    fn rewind_subscription(
        workspace: WorkspaceId, queue: &str, position: i64, signal: DeliveryId,
    ) = "
UPDATE subscriptions SET position = $3, signal_id = $4, leased_by = NULL, leased_until = NULL,
    due_at = now()
WHERE workspace_id = $1 AND queue = $2";

    /// Takes subscriptions from the workers for a few seconds: their rows stay as they are.
    pub(crate) fn hold_subscriptions(workspace: WorkspaceId, queues: &[&str], holder: Uuid) = "
UPDATE subscriptions
SET leased_by = $3, leased_until = clock_timestamp() + interval '10 seconds'
WHERE workspace_id = $1 AND queue = ANY ($2)";

    /// Gives them back.
    pub(crate) fn let_go_of_subscriptions(workspace: WorkspaceId, holder: Uuid) = "
UPDATE subscriptions SET leased_by = NULL, leased_until = NULL
WHERE workspace_id = $1 AND leased_by = $2";

    /// Ends a subscription.
    fn unsubscribe(workspace: WorkspaceId, queue: &str) = "
DELETE FROM subscriptions WHERE workspace_id = $1 AND queue = $2";
}

/// The settings of a subscription, as a document gives them. What is `None` is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionSettings {
    /// The queue that gets the signals.
    pub queue: String,
    /// Only those of the webhook of this name.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "given")]
    pub webhook: Option<Nullable<String>>,
    /// Only those of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "given")]
    pub signal_kind: Option<Nullable<SignalKind>>,
    /// Whether it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_paused: Option<bool>,
}

/// A new subscription.
#[derive(Debug, Clone, Default)]
pub struct NewSubscription {
    /// The queue that it gets.
    pub queue: String,
    /// Only signals of this webhook, and of those that replace it.
    pub webhook: Option<WebhookId>,
    /// Only signals of this kind.
    pub signal_kind: Option<SignalKind>,
    /// From when on; `None` from now on. Some of the minute before may come, too.
    pub from: Option<Timestamp>,
    /// The broker's user that reads the queue, if one was made for it.
    pub login: Option<String>,
    /// Whether the queue may exist, with what is in it.
    pub may_exist: bool,
}

/// A subscription.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct SubscriptionRow {
    /// The first word of the routing keys of its messages.
    pub subscription_id: Uuid,
    /// The workspace of the signals.
    pub workspace_id: WorkspaceId,
    /// The queue that gets them.
    pub queue: String,
    /// Only those of this webhook, if it is given.
    pub webhook_id: Option<WebhookId>,
    /// Its name.
    pub webhook_name: Option<String>,
    /// Only those of this kind, if it is given.
    pub signal_kind: Option<SignalKind>,
    /// The broker's user that was made for it.
    pub login: Option<String>,
    /// Signals that it has not looked at, counted up to 10,000.
    pub lag_signals: i64,
    /// How long ago the first of them was stored.
    pub lag_seconds: f64,
    /// Messages that the broker has confirmed.
    pub published: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it is paused; `None` if it goes on.
    pub paused_at: Option<Timestamp>,
    /// Since when nothing was confirmed; `None` if all is well.
    pub failing_since: Option<Timestamp>,
    /// Why.
    pub failure: Option<String>,
}

impl SubscriptionRow {
    /// Declares its queue.
    pub(crate) async fn declare_queue(&self, broker: &BrokerTarget) -> Result<(), OperatorError> {
        declare(broker, self.subscription_id, &self.queue).await
    }

    /// Ends what leads signals to its queue, which stays unless `deletes`.
    pub(crate) async fn unbind_queue(
        &self,
        broker: &BrokerTarget,
        deletes: bool,
    ) -> Result<(), OperatorError> {
        let id = self.subscription_id.to_string();
        Ok(end_subscription(broker, PROGRAM, &id, &self.queue, deletes).await?)
    }
}

impl Operator {
    /// Lists the subscriptions of a workspace.
    pub async fn subscriptions(
        &self,
        workspace: WorkspaceId,
    ) -> Result<Vec<SubscriptionRow>, OperatorError> {
        self.need_workspace(workspace).await?;
        subscriptions(self, workspace, None).await
    }

    /// Gives one subscription.
    pub async fn subscription(
        &self,
        workspace: WorkspaceId,
        queue: &str,
    ) -> Result<SubscriptionRow, OperatorError> {
        let found = subscriptions(self, workspace, Some(queue)).await?.pop();
        found.found("subscription")
    }

    /// Subscribes: declares the queue and has it filled. Where the same subscription exists, only
    /// the queue is declared, if it is missing.
    ///
    /// # Errors
    /// When the queue can't have this name, has other arguments or another subscription.
    pub async fn subscribe(
        &self,
        broker: &BrokerTarget,
        workspace: WorkspaceId,
        new: &NewSubscription,
    ) -> Result<SubscriptionRow, OperatorError> {
        let former = self.subscriptions(workspace).await?;
        let former = former.into_iter().find(|one| one.queue == new.queue);
        if let Some(former) = former {
            if (former.webhook_id, former.signal_kind) != (new.webhook, new.signal_kind) {
                return Err(Reason::QueueTaken.into());
            }
            former.declare_queue(broker).await?;
            return Ok(former);
        }
        check_queue(&new.queue)?;
        if !new.may_exist {
            self.need_new_queue(broker, &new.queue).await?;
        }
        // The queue first: what is published has its place from the first message on.
        let id = Uuid::new_v4();
        declare(broker, id, &new.queue).await?;
        let made = self.add_subscription(workspace, id, new).await;
        if made.is_err() {
            let _ = end_subscription(broker, PROGRAM, &id.to_string(), &new.queue, false).await;
        }
        made
    }

    /// Checks that there is no such queue: it may hold signals of another workspace.
    pub async fn need_new_queue(
        &self,
        broker: &BrokerTarget,
        queue: &str,
    ) -> Result<(), OperatorError> {
        match has_queue(broker, PROGRAM, queue).await? {
            true => Err(Reason::QueueExists(queue.to_owned()).into()),
            false => Ok(()),
        }
    }

    /// Checks that a new subscription can have this queue, as far as the database knows.
    pub(crate) async fn check_queue(&self, queue: &str) -> Result<(), OperatorError> {
        check_queue(queue)?;
        match queue_is_taken(self, queue).await? {
            (true,) => Err(Reason::QueueTaken.into()),
            (false,) => Ok(()),
        }
    }

    /// Makes a subscription, whose queue is still to be declared.
    pub(crate) async fn add_subscription(
        &self,
        workspace: WorkspaceId,
        id: Uuid,
        new: &NewSubscription,
    ) -> Result<SubscriptionRow, OperatorError> {
        check_queue(&new.queue)?;
        let cursor = self.signal_cursor(workspace, new.from).await?;
        let subscribed = subscribe(
            &self.database,
            workspace,
            id,
            &new.queue,
            new.webhook,
            new.signal_kind,
            new.login.as_deref(),
            cursor.position,
            cursor.signal_id,
        );
        let subscribed = subscribed.await;
        subscribed.explain(&SqlState::UNIQUE_VIOLATION, Reason::QueueTaken)?;
        self.subscription(workspace, &new.queue).await
    }

    /// Deletes a subscription, whose queue is still bound.
    pub(crate) async fn remove_subscription(
        &self,
        workspace: WorkspaceId,
        queue: &str,
    ) -> Result<SubscriptionRow, OperatorError> {
        let removed = self.subscription(workspace, queue).await?;
        unsubscribe(self, workspace, queue).await?;
        Ok(removed)
    }

    /// Ends a subscription. What is in the queue stays there unless `deletes`.
    pub async fn unsubscribe(
        &self,
        broker: &BrokerTarget,
        workspace: WorkspaceId,
        queue: &str,
        deletes: bool,
    ) -> Result<SubscriptionRow, OperatorError> {
        let ended = self.subscription(workspace, queue).await?;
        // The broker first: what is still stored can be ended once more.
        ended.unbind_queue(broker, deletes).await?;
        self.remove_subscription(workspace, queue).await
    }

    /// Pauses a subscription, or lets it go on. Returns `false` if it was so already.
    pub async fn pause_subscription(
        &self,
        workspace: WorkspaceId,
        queue: &str,
        pauses: bool,
    ) -> Result<bool, OperatorError> {
        self.subscription(workspace, queue).await?;
        Ok(pause_subscription(self, workspace, queue, pauses).await? > 0)
    }

    /// Sets the cursor of a subscription to a time: what was stored since is published, again or
    /// never.
    pub async fn rewind_subscription(
        &self,
        workspace: WorkspaceId,
        queue: &str,
        to: Timestamp,
    ) -> Result<SubscriptionRow, OperatorError> {
        self.subscription(workspace, queue).await?;
        let to = self.signal_cursor(workspace, Some(to)).await?;
        rewind_subscription(self, workspace, queue, to.position, to.signal_id).await?;
        self.subscription(workspace, queue).await
    }
}

async fn declare(broker: &BrokerTarget, id: Uuid, queue: &str) -> Result<(), OperatorError> {
    let declared = declare_subscription(broker, PROGRAM, &id.to_string(), queue).await;
    declared.map_err(|error| match error.is_refusal() {
        true => Reason::OtherQueue(error.to_string()).into(),
        false => error.into(),
    })
}

/// Checks that a queue of this name can be subscribed: letters, digits and `_ . : -`, none of the
/// broker's names, and none of Letterbox's.
fn check_queue(name: &str) -> Result<(), Reason> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    let is_good = (1..=200).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with("amq.")
        && !name.starts_with("letterbox.");
    is_good.then_some(()).ok_or(Reason::InvalidQueue)
}
