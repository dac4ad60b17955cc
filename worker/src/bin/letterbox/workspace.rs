//! `letterbox workspace …`

use clap::Subcommand;
use letterbox_worker::owner::Owner;

use crate::{Failure, Output};

#[derive(Subcommand)]
pub enum Verb {
    /// Create a workspace
    Create {
        #[arg(long)]
        name: String,
    },
    /// List all workspaces
    List,
}

pub async fn carry_out(owner: &Owner, verb: Verb) -> Result<Output, Failure> {
    Ok(match verb {
        Verb::Create { name } => Output::one(&owner.create_workspace(&name).await?),
        Verb::List => Output::many(&owner.workspaces().await?, &["workspace_id", "name", "created_at"]),
    })
}
