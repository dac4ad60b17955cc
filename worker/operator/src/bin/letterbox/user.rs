//! `letterbox user …`

use clap::Subcommand;
use letterbox_common::ids::UserId;
use letterbox_operator::{Named, Operator};

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
    /// List all users
    List {
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: u32,
    },
    /// Show a user
    Show {
        /// Id or e-mail address
        user: Named<UserId>,
    },
}

pub(crate) async fn run(operator: &Operator, verb: UserCommand) -> Result<Output, Failure> {
    Ok(match verb {
        UserCommand::Create { email, name } => {
            Output::one(&operator.create_user(&email, &name).await?)
        }
        UserCommand::List { limit } => Output::many(
            &operator.users(limit).await?,
            &["user_id", "email", "name", "created_at"],
        ),
        UserCommand::Show { user } => Output::one(&operator.user(operator.id(&user).await?).await?),
    })
}
