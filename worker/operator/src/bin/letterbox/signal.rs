//! `letterbox signal …`

use clap::Subcommand;
use letterbox_common::ids::{DeliveryId, WebhookId};
use letterbox_operator::{Named, SignalFilter, SignalRow};

use crate::{
    Output, Result, follow, in_workspace::InWorkspace, settings::CliSettings, story::word,
    subscription, times::to_second,
};

const COLUMNS: &str =
    "signal_id received_at webhook_name kind entity source_tool event_id event_type";

#[derive(Subcommand)]
pub(crate) enum SignalCommand {
    /// List the newest signals of a workspace
    List {
        #[command(flatten)]
        workspace: InWorkspace,
        /// Only of this webhook
        #[arg(long)]
        webhook: Option<Named<WebhookId>>,
        #[command(flatten)]
        filter: SignalFilter,
        /// Only those before this signal, the last one of the previous page
        #[arg(long, value_name = "SIGNAL_ID")]
        before: Option<Named<DeliveryId>>,
        /// Most signals to list
        #[arg(long, default_value_t = 100, value_parser =
            clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
        /// Go on until interrupted: print new signals as they come
        #[arg(long, conflicts_with = "before")]
        follow: bool,
    },
    /// Show one signal with its body
    Show { signal_id: Named<DeliveryId> },
    #[command(flatten)]
    Subscription(subscription::SubscriptionCommand),
}

pub(crate) async fn run(settings: &CliSettings, verb: SignalCommand) -> Result<Output> {
    let operator = &settings.operator().await?;
    Ok(match verb {
        SignalCommand::List {
            workspace,
            webhook,
            filter,
            before,
            limit,
            follow,
        } => {
            let workspace = workspace.id(operator).await?;
            let webhook = operator.id_in(Some(workspace), webhook.as_ref()).await?;
            let filter = SignalFilter { webhook, ..filter };
            if follow {
                let read = async |limit| operator.signals(workspace, &filter, None, limit).await;
                let known = |signal: &SignalRow| (signal.signal_id, ());
                return follow::follow(limit, settings.json, read, known, one_line).await;
            }
            let before = operator.id_in(None, before.as_ref()).await?;
            let signals = operator.signals(workspace, &filter, before, limit).await?;
            Output::many(&signals, COLUMNS)
        }
        SignalCommand::Show { signal_id } => {
            Output::one(&operator.signal(operator.id(&signal_id).await?).await?)
        }
        SignalCommand::Subscription(command) => return subscription::run(operator, command).await,
    })
}

fn one_line(signal: &SignalRow) -> String {
    let about = signal.entity.as_deref().or(signal.event_type.as_deref());
    format!(
        "{}  {}  {}  {:<16}  {}",
        signal.signal_id,
        to_second(signal.received_at),
        word(&signal.webhook_name),
        signal.kind.as_str(),
        word(about.unwrap_or_default())
    )
}
