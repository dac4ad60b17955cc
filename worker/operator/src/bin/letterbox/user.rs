//! `letterbox user …`

use clap::Subcommand;
use letterbox_operator::Operator;

use crate::{Failure, Output};

#[derive(Subcommand)]
pub(crate) enum UserCommand {
    /// Create a user
    Create {
        #[arg(long)]
        email: String,
        #[arg(long)]
        name: String,
    },
}

pub(crate) async fn run(operator: &Operator, verb: UserCommand) -> Result<Output, Failure> {
    let UserCommand::Create { email, name } = verb;
    Ok(Output::one(&operator.create_user(&email, &name).await?))
}
