//! `letterbox signal …`

use clap::Subcommand;
use letterbox_common::ids::{DeliveryId, WorkspaceId};
use letterbox_worker::owner::Owner;

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
pub enum Verb {
    /// List the newest signals of a workspace
    List {
        #[arg(long)]
        workspace: WorkspaceId,
        /// Most signals to list
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// Show one signal with its body
    Show { signal_id: DeliveryId },
}

pub async fn carry_out(owner: &Owner, verb: Verb) -> Result<Output, Failure> {
    Ok(match verb {
        Verb::List { workspace, limit } => {
            Output::many(&owner.signals(workspace, limit).await?, &COLUMNS)
        }
        Verb::Show { signal_id } => Output::one(&owner.signal(signal_id).await?),
    })
}
