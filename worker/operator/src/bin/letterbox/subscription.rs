//! `letterbox signal subscribe …`: queues that get the signals of a workspace.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use letterbox_broker::BrokerTarget;
use letterbox_common::{
    ids::{WebhookId, WorkspaceId},
    states::SignalKind,
};
use letterbox_operator::{Named, NewSubscription, Operator, moment};
use serde_json::json;

use crate::{
    Failure, Output, confirm::confirm_loss, dashboard::Dashboard, in_workspace::InWorkspace, output,
};

const COLUMNS: [&str; 9] = [
    "queue",
    "webhook_name",
    "signal_kind",
    "lag_signals",
    "lag_seconds",
    "published",
    "paused_at",
    "failing_since",
    "failure",
];

#[derive(Subcommand)]
pub(crate) enum SubscriptionCommand {
    /// Have the signals of a workspace published to a queue of RabbitMQ
    Subscribe {
        #[command(flatten)]
        of: OfSubscription,
        /// Only those of this webhook, and of those that replace it
        #[arg(long)]
        webhook: Option<Named<WebhookId>>,
        /// Only those of this kind: generic, or the type of the event
        #[arg(long)]
        signal_kind: Option<SignalKind>,
        /// Also those stored since a time, such as 2026-01-31T08:00:00Z, yesterday or 1h
        #[arg(long, value_name = "TIME", value_parser = moment)]
        from: Option<Timestamp>,
        /// Make a user of RabbitMQ who reads this queue and nothing else; the password is shown
        /// once
        #[arg(long, value_name = "NAME")]
        login: Option<String>,
        /// The queue may exist: whoever reads it may read what it holds
        #[arg(long)]
        existing: bool,
    },
    /// List the subscriptions of a workspace
    Subscriptions(InWorkspace),
    /// Publish nothing to a queue until it is resumed; nothing is left out
    Pause(OfSubscription),
    /// Go on publishing to a queue
    Resume(OfSubscription),
    /// Publish to a queue what was stored since a time, again
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
        #[arg(long)]
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
    #[arg(long, value_name = "NAME")]
    queue: String,
}

pub(crate) async fn run(operator: &Operator, verb: SubscriptionCommand) -> Result<Output, Failure> {
    Ok(match verb {
        SubscriptionCommand::Subscribe {
            of,
            webhook,
            signal_kind,
            from,
            login,
            existing,
        } => {
            let workspace = of.workspace.id_to_grant(operator).await?;
            let webhook = operator.id_in(Some(workspace), webhook.as_ref()).await?;
            let new = NewSubscription {
                queue: of.queue,
                webhook,
                signal_kind,
                from,
                login,
                may_exist: existing,
            };
            subscribe(operator, workspace, &new).await?
        }
        SubscriptionCommand::Subscriptions(workspace) => {
            let workspace = workspace.id(operator).await?;
            Output::many(&operator.subscriptions(workspace).await?, &COLUMNS)
        }
        SubscriptionCommand::Pause(of) => pause(operator, &of, true).await?,
        SubscriptionCommand::Resume(of) => pause(operator, &of, false).await?,
        SubscriptionCommand::Rewind { of, to } => {
            let workspace = of.workspace.id(operator).await?;
            let rewinding = operator.rewind_subscription(workspace, &of.queue, to);
            Output::one(&rewinding.await?)
        }
        SubscriptionCommand::Unsubscribe {
            of,
            delete_queue,
            yes,
        } => {
            let broker = BrokerTarget::from_environment()?;
            let workspace = of.workspace.id(operator).await?;
            if delete_queue {
                confirm_loss("the queue is deleted with everything in it", yes)?;
            }
            // First: a login that is left behind could read what it should not.
            let login = operator.subscription(workspace, &of.queue).await?.login;
            if let Some(login) = &login {
                Dashboard::from_environment()?.delete_login(login).await?;
            }
            let ending = operator.unsubscribe(&broker, workspace, &of.queue, delete_queue);
            Output::one(&ending.await?)
        }
    })
}

/// Makes the user first, so that no subscription names one that does not exist.
async fn subscribe(
    operator: &Operator,
    workspace: WorkspaceId,
    new: &NewSubscription,
) -> Result<Output, Failure> {
    let broker = BrokerTarget::from_environment()?;
    let Some(login) = &new.login else {
        let subscription = operator.subscribe(&broker, workspace, new).await?;
        return Ok(Output::one(&subscription));
    };
    let dashboard = Dashboard::from_environment()?;
    let password = dashboard.make_login(login, &new.queue).await?;
    match operator.subscribe(&broker, workspace, new).await {
        Ok(subscription) if subscription.login.as_ref() == Some(login) => {
            let mut shown = output::value(&subscription);
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

async fn pause(operator: &Operator, of: &OfSubscription, pauses: bool) -> Result<Output, Failure> {
    let workspace = of.workspace.id(operator).await?;
    let pausing = operator.pause_subscription(workspace, &of.queue, pauses);
    let changed = pausing.await?;
    Ok(Output::one(&json!({
        "workspace_id": workspace, "queue": of.queue, "is_paused": pauses, "changed": changed,
    })))
}
