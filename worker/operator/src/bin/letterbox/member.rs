//! `letterbox member …`

use clap::Subcommand;
use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::MemberRole,
};
use letterbox_operator::{Named, Operator};

use crate::{Failure, Output};

#[derive(Subcommand)]
pub(crate) enum MemberCommand {
    /// Add a member, or change one
    Set {
        #[arg(long)]
        workspace: Named<WorkspaceId>,
        #[arg(long)]
        user: Named<UserId>,
        /// A viewer may not run workflows
        #[arg(long, value_name = "owner|editor|runner|viewer")]
        role: MemberRole,
        /// The member may do nothing until it is set again without this
        #[arg(long)]
        deactivated: bool,
    },
    /// Remove a member
    Remove {
        #[arg(long)]
        workspace: Named<WorkspaceId>,
        #[arg(long)]
        user: Named<UserId>,
    },
    /// List the members of a workspace
    List {
        #[arg(long)]
        workspace: Named<WorkspaceId>,
    },
}

pub(crate) async fn run(operator: &Operator, verb: MemberCommand) -> Result<Output, Failure> {
    Ok(match verb {
        MemberCommand::Set {
            workspace,
            user,
            role,
            deactivated,
        } => {
            let (workspace, user) = (operator.id(&workspace).await?, operator.id(&user).await?);
            let setting = operator.set_member(workspace, user, role, deactivated);
            Output::one(&setting.await?)
        }
        MemberCommand::Remove { workspace, user } => {
            let (workspace, user) = (operator.id(&workspace).await?, operator.id(&user).await?);
            Output::one(&operator.remove_member(workspace, user).await?)
        }
        MemberCommand::List { workspace } => Output::many(
            &operator.members(operator.id(&workspace).await?).await?,
            &["user_id", "email", "name", "role", "deactivated_at"],
        ),
    })
}
