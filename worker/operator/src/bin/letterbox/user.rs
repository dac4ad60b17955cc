//! `letterbox user …`

use clap::Subcommand;
use letterbox_common::ids::UserId;
use letterbox_operator::{Losing, Named, Operator};

use crate::{Failure, Output, confirm::confirm};

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
    /// Take a user's rights in all workspaces: for somebody who leaves
    ///
    /// Workflows that the user owns take no more submissions; give them to somebody else with
    /// 'workflow transfer'. 'member set' gives rights back.
    Deactivate {
        /// Id or e-mail address
        user: Named<UserId>,
        /// Do not ask for confirmation before form links end
        #[arg(long)]
        yes: bool,
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
        UserCommand::Deactivate { user, yes } => {
            let user = operator.id(&user).await?;
            confirm(operator, Losing::User(user), yes).await?;
            Output::many(
                &operator.deactivate_user(user).await?,
                &["workspace_id", "email", "role", "deactivated_at"],
            )
        }
        UserCommand::Show { user } => Output::one(&operator.user(operator.id(&user).await?).await?),
    })
}
