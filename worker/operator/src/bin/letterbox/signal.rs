//! `letterbox signal …`

use clap::Subcommand;
use letterbox_common::ids::{DeliveryId, WorkspaceId};
use letterbox_operator::{Named, Operator};

use crate::{Failure, Output};

const COLUMNS: [&str; 7] = [
    "signal_id",
    "received_at",
    "kind",
    "entity",
    "amount_value",
    "amount_currency",
    "generic_reason",
];

#[derive(Subcommand)]
pub(crate) enum SignalCommand {
    /// List the newest signals of a workspace
    List {
        #[arg(long)]
        workspace: Named<WorkspaceId>,
        /// Most signals to list
        #[arg(long, default_value_t = 100, value_parser =
            clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// Show one signal with its body
    Show { signal_id: Named<DeliveryId> },
}

pub(crate) async fn run(operator: &Operator, verb: SignalCommand) -> Result<Output, Failure> {
    Ok(match verb {
        SignalCommand::List { workspace, limit } => {
            let workspace = operator.id(&workspace).await?;
            Output::many(&operator.signals(workspace, limit).await?, &COLUMNS)
        }
        SignalCommand::Show { signal_id } => {
            Output::one(&operator.signal(operator.id(&signal_id).await?).await?)
        }
    })
}
