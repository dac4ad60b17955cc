//! `letterbox user …`

use clap::Subcommand;
use letterbox_worker::owner::Owner;

use crate::{Failure, Output};

#[derive(Subcommand)]
pub enum Verb {
    /// Create a user
    Create {
        #[arg(long)]
        email: String,
        #[arg(long)]
        name: String,
    },
}

pub async fn carry_out(owner: &Owner, verb: Verb) -> Result<Output, Failure> {
    let Verb::Create { email, name } = verb;
    Ok(Output::one(&owner.create_user(&email, &name).await?))
}
