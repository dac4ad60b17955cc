//! Subscriptions: queues and URLs that get the signals of a workspace, each from a cursor that is
//! set, held and given up here, and moved by workers. What names one is its target.

use jiff::Timestamp;
use letterbox_broker::{BrokerTarget, declare_subscription, end_subscription, has_queue};
use letterbox_common::{
    condition::Condition,
    ids::{DeliveryId, WebhookId, WorkspaceId},
    sealing::{Place, Seal, SealedColumn, Secret},
    states::SignalKind,
    webhook::{Tool, secret_for},
};
use letterbox_database::{FromRow, statements};
use serde::Serialize;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::{
    NewSubscription, Operator, PROGRAM, Reason, Result, Target, asking::Sought, error::Explain,
    subscription_settings::check_conditions,
};

statements! {
    /// The subscriptions of a workspace, or one of them.
    fn subscriptions(workspace: WorkspaceId, target: Option<&str>) -> Vec<SubscriptionRow> = "
SELECT s.subscription_id, s.workspace_id, s.target, s.queue, s.url, s.webhook_id,
    h.name AS webhook_name, s.signal_kind, s.conditions, s.login, s.in_flight,
    l.signals AS lag_signals, l.seconds AS lag_seconds, s.published, s.created_at, s.paused_at,
    s.failing_since, s.failure,
    s.received
FROM subscriptions s JOIN subscription_lags l USING (workspace_id, subscription_id)
LEFT JOIN webhooks h ON h.workspace_id = s.workspace_id AND h.webhook_id = s.webhook_id
WHERE s.workspace_id = $1 AND ($2::text IS NULL OR s.target = $2)
ORDER BY s.target";

    /// Whether a queue has a subscription, of whichever workspace.
    fn queue_is_taken(queue: &str) -> (bool,) = "
SELECT EXISTS (SELECT FROM subscriptions WHERE queue = $1) AS is_taken";

    /// Makes a subscription.
    fn subscribe(
        workspace: WorkspaceId, subscription: Uuid, target: &str, secret_sealed: Option<&[u8]>,
        webhook: Option<WebhookId>, signal_kind: Option<SignalKind>, login: Option<&str>,
        in_flight: i32, conditions: &[String], position: i64, signal: DeliveryId,
    ) = "
INSERT INTO subscriptions (workspace_id, subscription_id, queue, url, secret_sealed, webhook_id,
    signal_kind, login, in_flight, conditions, position, signal_id)
VALUES ($1, $2, CASE WHEN $4::bytea IS NULL THEN $3 END, CASE WHEN $4 IS NOT NULL THEN $3 END, $4,
    $5, $6, $7, $8, $9, $10, $11)";

    /// Sets how many requests of a subscription may wait for their answers.
    pub(crate) fn set_in_flight(workspace: WorkspaceId, target: &str, in_flight: i32) = "
UPDATE subscriptions SET in_flight = $3 WHERE workspace_id = $1 AND target = $2";

    /// Pauses a subscription, or lets it go on.
    fn pause_subscription(workspace: WorkspaceId, target: &str, pauses: bool) -> u64 = "
UPDATE subscriptions SET paused_at = CASE WHEN $3 THEN now() END, due_at = now(), failure = NULL,
    failing_since = NULL, received = NULL
WHERE workspace_id = $1 AND target = $2 AND (paused_at IS NOT NULL) <> $3";

    /// Sets the cursor. A worker that has just read from elsewhere does not move it.
    fn rewind_subscription(
        workspace: WorkspaceId, target: &str, position: i64, signal: DeliveryId,
    ) = "
UPDATE subscriptions SET position = $3, signal_id = $4, leased_by = NULL, leased_until = NULL,
    due_at = now(), failure = NULL, failing_since = NULL, received = NULL
WHERE workspace_id = $1 AND target = $2";

    /// Takes subscriptions from the workers for a few seconds: their rows stay as they are.
    pub(crate) fn hold_subscriptions(workspace: WorkspaceId, targets: &[&str], holder: Uuid) = "
UPDATE subscriptions
SET leased_by = $3, leased_until = clock_timestamp() + interval '10 seconds'
WHERE workspace_id = $1 AND target = ANY ($2)";

    /// Gives them back.
    pub(crate) fn let_go_of_subscriptions(workspace: WorkspaceId, holder: Uuid) = "
UPDATE subscriptions SET leased_by = NULL, leased_until = NULL
WHERE workspace_id = $1 AND leased_by = $2";

    /// Ends a subscription.
    fn unsubscribe(workspace: WorkspaceId, target: &str) = "
DELETE FROM subscriptions WHERE workspace_id = $1 AND target = $2";
}

/// A subscription.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct SubscriptionRow {
    /// The first word of the routing keys of its messages.
    pub subscription_id: Uuid,
    /// The workspace of the signals.
    pub workspace_id: WorkspaceId,
    /// The queue or the URL: what names it.
    pub target: String,
    /// The queue that gets them; `None` if it is to a URL.
    pub queue: Option<String>,
    /// The URL that they are posted to.
    pub url: Option<String>,
    /// Only those of this webhook, if it is given.
    pub webhook_id: Option<WebhookId>,
    /// Its name.
    pub webhook_name: Option<String>,
    /// Only those of this kind, if it is given.
    pub signal_kind: Option<SignalKind>,
    /// Only those whose bodies these hold for.
    #[serde(rename = "where")]
    pub conditions: Vec<String>,
    /// The broker's user that was made for it.
    pub login: Option<String>,
    /// How many requests may wait for their answers.
    pub in_flight: i32,
    /// Signals that it has not looked at, counted up to 10,000.
    pub lag_signals: i64,
    /// How long ago the first of them was stored.
    pub lag_seconds: f64,
    /// Messages that the broker has confirmed, or posts that the URL has taken.
    pub published: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it is paused; `None` if it goes on.
    pub paused_at: Option<Timestamp>,
    /// Since when nothing was taken; `None` if all is well.
    pub failing_since: Option<Timestamp>,
    /// Why.
    pub failure: Option<String>,
    /// The beginning of the answer that is the failure.
    pub received: Option<String>,
}

impl SubscriptionRow {
    /// Declares its queue, if it has one.
    pub(crate) async fn declare_queue(&self, broker: &BrokerTarget) -> Result<()> {
        match &self.queue {
            Some(queue) => declare(broker, self.subscription_id, queue).await,
            None => Ok(()),
        }
    }

    /// Ends what leads signals to its queue, which stays unless `deletes`.
    pub(crate) async fn unbind_queue(&self, broker: &BrokerTarget, deletes: bool) -> Result<()> {
        let Some(queue) = &self.queue else {
            return Ok(());
        };
        let id = self.subscription_id.to_string();
        Ok(end_subscription(broker, PROGRAM, &id, queue, deletes).await?)
    }
}

impl Operator {
    /// Lists the subscriptions of a workspace.
    pub async fn subscriptions(&self, workspace: WorkspaceId) -> Result<Vec<SubscriptionRow>> {
        self.need_workspace(workspace).await?;
        subscriptions(self, workspace, None).await
    }

    /// Gives one subscription.
    pub async fn subscription(
        &self,
        workspace: WorkspaceId,
        target: &str,
    ) -> Result<SubscriptionRow> {
        let found = subscriptions(self, workspace, Some(target)).await?.pop();
        found.found("subscription")
    }

    /// Subscribes, with a broker if it is a queue, which is declared and filled. Where the same
    /// subscription exists, only its queue is declared, if that is missing, or changes how many
    /// requests may wait for their answers. Gives the secret of a new one to a URL, which nobody
    /// sees again.
    ///
    /// # Errors
    /// When the target can't be subscribed, or has another subscription; for a URL when no worker
    /// runs.
    pub async fn subscribe(
        &self,
        broker: Option<&BrokerTarget>,
        workspace: WorkspaceId,
        to: &Target,
        new: &NewSubscription,
    ) -> Result<(SubscriptionRow, Option<Secret>)> {
        self.need_workspace(workspace).await?;
        let target = to.name();
        let conditions = texts(&new.conditions);
        let former = subscriptions(self, workspace, Some(target)).await?.pop();
        if let Some(former) = former {
            let other = (former.webhook_id, former.signal_kind) != (new.webhook, new.signal_kind);
            if other || former.conditions != conditions {
                return Err(Reason::QueueTaken.into());
            }
            if let Some(broker) = broker {
                former.declare_queue(broker).await?;
            }
            if let Some(in_flight) = new.in_flight {
                set_in_flight(self, workspace, target, in_flight).await?;
            }
            return Ok((self.subscription(workspace, target).await?, None));
        }
        let id = Uuid::new_v4();
        let Some(broker) = broker else {
            return self.add_subscription(workspace, id, to, new).await;
        };
        to.check()?;
        if !new.may_exist {
            self.need_new_queue(broker, target).await?;
        }
        // The queue first: what is published has its place from the first message on.
        declare(broker, id, target).await?;
        let made = self.add_subscription(workspace, id, to, new).await;
        if made.is_err() {
            let _ = end_subscription(broker, PROGRAM, &id.to_string(), target, false).await;
        }
        made
    }

    /// Checks that there is no such queue: it may hold signals of another workspace.
    pub async fn need_new_queue(&self, broker: &BrokerTarget, queue: &str) -> Result<()> {
        match has_queue(broker, PROGRAM, queue).await? {
            true => Err(Reason::QueueExists(queue.to_owned()).into()),
            false => Ok(()),
        }
    }

    /// Checks that a new subscription can be to this target, as far as the database knows.
    pub(crate) async fn check_target(&self, target: &Target) -> Result<()> {
        target.check()?;
        match target {
            Target::Queue(queue) if queue_is_taken(self, queue).await?.0 => {
                Err(Reason::QueueTaken.into())
            }
            Target::Queue(_) => Ok(()),
            Target::Url(_) => self
                .recipient(SealedColumn::SubscriptionSecret)
                .await
                .map(drop),
        }
    }

    /// Makes a subscription, whose queue is still to be declared. Gives the secret of a URL.
    pub(crate) async fn add_subscription(
        &self,
        workspace: WorkspaceId,
        id: Uuid,
        target: &Target,
        new: &NewSubscription,
    ) -> Result<(SubscriptionRow, Option<Secret>)> {
        target.check()?;
        check_conditions(&new.conditions)?;
        let secret = match target {
            Target::Queue(_) => None,
            Target::Url(url) => {
                // The workers sign with it.
                let worker = self.recipient(SealedColumn::SubscriptionSecret).await?;
                let rules = Tool::standard_webhooks().rules().found("tool")?;
                let secret = secret_for(&rules)?.found("secret")?;
                let place = Place::SubscriptionSecret {
                    workspace,
                    subscription: id,
                    url: url.as_str(),
                };
                Some((worker.seal(place, secret.expose())?, secret))
            }
        };
        let conditions = texts(&new.conditions);
        let cursor = self.signal_cursor(workspace, new.from).await?;
        let subscribed = subscribe(
            &self.database,
            workspace,
            id,
            target.name(),
            secret.as_ref().map(|(sealed, _)| sealed.as_slice()),
            new.webhook,
            new.signal_kind,
            new.login.as_deref(),
            new.in_flight.unwrap_or(1),
            &conditions,
            cursor.position,
            cursor.signal_id,
        );
        let subscribed = subscribed.await;
        subscribed.explain(&SqlState::UNIQUE_VIOLATION, Reason::QueueTaken)?;
        let made = self.subscription(workspace, target.name()).await?;
        Ok((made, secret.map(|(_, secret)| secret)))
    }

    /// Ends a subscription to a URL, or one whose queue is still bound.
    pub async fn remove_subscription(
        &self,
        workspace: WorkspaceId,
        target: &str,
    ) -> Result<SubscriptionRow> {
        let removed = self.subscription(workspace, target).await?;
        unsubscribe(self, workspace, target).await?;
        Ok(removed)
    }

    /// Ends a subscription of a queue. What is in the queue stays there unless `deletes`.
    pub async fn unsubscribe(
        &self,
        broker: &BrokerTarget,
        workspace: WorkspaceId,
        queue: &str,
        deletes: bool,
    ) -> Result<SubscriptionRow> {
        let ended = self.subscription(workspace, queue).await?;
        // The broker first: what is still stored can be ended once more.
        ended.unbind_queue(broker, deletes).await?;
        self.remove_subscription(workspace, queue).await
    }

    /// Pauses a subscription, or lets it go on. Returns `false` if it was so already.
    pub async fn pause_subscription(
        &self,
        workspace: WorkspaceId,
        target: &str,
        pauses: bool,
    ) -> Result<bool> {
        self.subscription(workspace, target).await?;
        Ok(pause_subscription(self, workspace, target, pauses).await? > 0)
    }

    /// Sets the cursor of a subscription to a time: what was stored since is published, again or
    /// never.
    pub async fn rewind_subscription(
        &self,
        workspace: WorkspaceId,
        target: &str,
        to: Timestamp,
    ) -> Result<SubscriptionRow> {
        self.subscription(workspace, target).await?;
        let to = self.signal_cursor(workspace, Some(to)).await?;
        rewind_subscription(self, workspace, target, to.position, to.signal_id).await?;
        self.subscription(workspace, target).await
    }
}

fn texts(conditions: &[Condition]) -> Vec<String> {
    conditions.iter().map(Condition::to_string).collect()
}

async fn declare(broker: &BrokerTarget, id: Uuid, queue: &str) -> Result<()> {
    let declared = declare_subscription(broker, PROGRAM, &id.to_string(), queue).await;
    declared.map_err(|error| match error.is_refusal() {
        true => Reason::OtherQueue(error.to_string()).into(),
        false => error.into(),
    })
}
