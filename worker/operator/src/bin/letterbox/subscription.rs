//! `letterbox signal subscribe …`: queues and URLs that get the signals of a workspace.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use letterbox_broker::BrokerTarget;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    sealing::Secret,
};
use letterbox_operator::{
    Named, NewSubscription, Operator, OperatorError, SubscriptionRow, Target, moment,
};
use serde_json::{Value, json};
use url::Url;

use crate::{
    Failure, Output, Result, confirm::confirm_loss, dashboard::Dashboard, in_workspace::InWorkspace,
};

const COLUMNS: &str = "target webhook_name signal_kind where lag_signals lag_seconds \
    published paused_at failing_since failure received";

#[derive(Subcommand)]
pub(crate) enum SubscriptionCommand {
    /// Have the signals of a workspace published to a queue of RabbitMQ, or posted to a URL, signed
    /// with a secret that is shown once
    Subscribe {
        #[command(flatten)]
        of: OfSubscription,
        /// Only those of this webhook, and of those that replace it
        #[arg(long)]
        webhook: Option<Named<WebhookId>>,
        #[command(flatten)]
        new: NewSubscription,
    },
    /// List the subscriptions of a workspace
    Subscriptions(InWorkspace),
    /// Hand nothing over until it is resumed; nothing is left out
    Pause(OfSubscription),
    /// Go on handing over
    Resume(OfSubscription),
    /// Hand over what was stored since a time, again
    Rewind {
        #[command(flatten)]
        of: OfSubscription,
        /// A time such as 2026-01-31T08:00:00Z, yesterday or 1h; some of the minute before comes,
        /// too
        #[arg(long, value_name = "TIME", value_parser = moment)]
        to: Timestamp,
    },
    /// End a subscription; the user that was made for it is deleted
    Unsubscribe {
        #[command(flatten)]
        of: OfSubscription,
        /// Delete the queue, too, with everything in it
        #[arg(long, requires = "queue")]
        delete_queue: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

/// Names a subscription.
#[derive(Debug, Clone, Args)]
pub(crate) struct OfSubscription {
    #[command(flatten)]
    workspace: InWorkspace,
    /// The queue, in the virtual host of AMQP_URL
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "url",
        conflicts_with = "url"
    )]
    queue: Option<String>,
    /// The URL: by https, unless LETTERBOX_EGRESS_ALLOW of the workers allows its network
    #[arg(long)]
    url: Option<Url>,
}

impl OfSubscription {
    fn target(&self) -> Result<Target, OperatorError> {
        Target::of(self.queue.clone(), self.url.clone())
    }
}

pub(crate) async fn run(operator: &Operator, verb: SubscriptionCommand) -> Result<Output> {
    Ok(match verb {
        SubscriptionCommand::Subscribe { of, webhook, new } => {
            let workspace = of.workspace.id_to_grant(operator).await?;
            let webhook = operator.id_in(Some(workspace), webhook.as_ref()).await?;
            let new = NewSubscription { webhook, ..new };
            subscribe(operator, workspace, &of.target()?, &new).await?
        }
        SubscriptionCommand::Subscriptions(workspace) => {
            let workspace = workspace.id(operator).await?;
            Output::many(&operator.subscriptions(workspace).await?, COLUMNS)
        }
        SubscriptionCommand::Pause(of) => pause(operator, &of, true).await?,
        SubscriptionCommand::Resume(of) => pause(operator, &of, false).await?,
        SubscriptionCommand::Rewind { of, to } => {
            let workspace = of.workspace.id(operator).await?;
            let target = of.target()?;
            let rewinding = operator.rewind_subscription(workspace, target.name(), to);
            Output::one(&rewinding.await?)
        }
        SubscriptionCommand::Unsubscribe {
            of,
            delete_queue,
            yes,
        } => unsubscribe(operator, &of, delete_queue, yes).await?,
    })
}

async fn unsubscribe(
    operator: &Operator,
    of: &OfSubscription,
    delete_queue: bool,
    yes: bool,
) -> Result<Output> {
    let workspace = of.workspace.id(operator).await?;
    let target = of.target()?;
    let Target::Queue(queue) = &target else {
        let ending = operator.remove_subscription(workspace, target.name());
        return Ok(Output::one(&ending.await?));
    };
    let broker = BrokerTarget::from_environment()?;
    if delete_queue {
        confirm_loss("the queue is deleted with everything in it", yes)?;
    }
    // First: a login that is left behind could read what it should not.
    let login = operator.subscription(workspace, queue).await?.login;
    if let Some(login) = &login {
        Dashboard::from_environment()?.delete_login(login).await?;
    }
    let ending = operator.unsubscribe(&broker, workspace, queue, delete_queue);
    Ok(Output::one(&ending.await?))
}

/// Makes the user of a queue first, so that no subscription names one that does not exist.
async fn subscribe(
    operator: &Operator,
    workspace: WorkspaceId,
    target: &Target,
    new: &NewSubscription,
) -> Result<Output> {
    let is_queue = matches!(target, Target::Queue(_));
    let broker = is_queue.then(BrokerTarget::from_environment).transpose()?;
    let broker = broker.as_ref();
    let Some(login) = &new.login else {
        let (subscription, secret) = operator.subscribe(broker, workspace, target, new).await?;
        return Ok(Output::One(shown(&subscription, secret.as_ref())));
    };
    let dashboard = Dashboard::from_environment()?;
    let password = dashboard.make_login(login, target.name()).await?;
    match operator.subscribe(broker, workspace, target, new).await {
        Ok((subscription, _)) if subscription.login.as_ref() == Some(login) => {
            let mut shown = json!(&subscription);
            shown["password"] = json!(password.expose());
            Ok(Output::one(&shown))
        }
        Ok(_) => {
            dashboard.delete_login(login).await?;
            Err(Failure::OtherLogin)
        }
        Err(error) => {
            dashboard.delete_login(login).await?;
            Err(error.into())
        }
    }
}

/// A subscription; one to a URL, when it is made, with its secret.
pub(crate) fn shown(subscription: &SubscriptionRow, secret: Option<&Secret>) -> Value {
    let mut shown = json!(subscription);
    if let Some(secret) = secret {
        shown["secret"] = json!(String::from_utf8_lossy(secret.expose()));
    }
    shown
}

async fn pause(operator: &Operator, of: &OfSubscription, pauses: bool) -> Result<Output> {
    let workspace = of.workspace.id(operator).await?;
    let target = of.target()?;
    let pausing = operator.pause_subscription(workspace, target.name(), pauses);
    let changed = pausing.await?;
    Ok(Output::one(&json!({
        "workspace_id": workspace, "queue": of.queue, "url": of.url, "is_paused": pauses,
        "changed": changed,
    })))
}
