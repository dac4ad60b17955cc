//! `letterbox member …`

use clap::Subcommand;
use letterbox_common::{ids::UserId, states::MemberRole};
use letterbox_operator::{Losing, Named, Operator};

use crate::{Failure, Output, confirm::confirm, in_workspace::InWorkspace};

#[derive(Subcommand)]
pub(crate) enum MemberCommand {
    /// Add a member, or change one
    Set {
        #[command(flatten)]
        workspace: InWorkspace,
        #[arg(long)]
        user: Named<UserId>,
        /// A viewer may not run workflows
        #[arg(long, value_name = "owner|editor|runner|viewer")]
        role: MemberRole,
        /// The member has no rights until it is set again without this
        #[arg(long)]
        deactivated: bool,
        /// Do not ask for confirmation before form links end
        #[arg(long)]
        yes: bool,
    },
    /// Remove a member
    Remove {
        #[command(flatten)]
        workspace: InWorkspace,
        #[arg(long)]
        user: Named<UserId>,
        /// Do not ask for confirmation before form links end
        #[arg(long)]
        yes: bool,
    },
    /// List the members of a workspace
    List {
        #[command(flatten)]
        workspace: InWorkspace,
    },
}

pub(crate) async fn run(operator: &Operator, verb: MemberCommand) -> Result<Output, Failure> {
    Ok(match verb {
        MemberCommand::Set {
            workspace,
            user,
            role,
            deactivated,
            yes,
        } => {
            let workspace = workspace.id_to_grant(operator).await?;
            let user = operator.id(&user).await?;
            if deactivated || role == MemberRole::Viewer {
                confirm(operator, Losing::Member(workspace, user), yes).await?;
            }
            let setting = operator.set_member(workspace, user, role, deactivated);
            Output::one(&setting.await?)
        }
        MemberCommand::Remove {
            workspace,
            user,
            yes,
        } => {
            let workspace = workspace.id_to_grant(operator).await?;
            let user = operator.id(&user).await?;
            confirm(operator, Losing::Member(workspace, user), yes).await?;
            Output::one(&operator.remove_member(workspace, user).await?)
        }
        MemberCommand::List { workspace } => Output::many(
            &operator.members(workspace.id(operator).await?).await?,
            &["user_id", "email", "name", "role", "deactivated_at"],
        ),
    })
}
