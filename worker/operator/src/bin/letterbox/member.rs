//! `letterbox member …`

use clap::{Args, Subcommand};
use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::MemberRole,
};
use letterbox_operator::{Losing, MemberSettings, Named, Operator};

use crate::{Output, Result, confirm::confirm, in_workspace::InWorkspace};

#[derive(Subcommand)]
pub(crate) enum MemberCommand {
    /// Add a member, or change one
    Set {
        #[command(flatten)]
        of: OfMember,
        #[command(flatten)]
        settings: MemberSettings,
    },
    /// Remove a member
    Remove(OfMember),
    /// List the members of a workspace
    List(InWorkspace),
}

/// Names a member.
#[derive(Args)]
pub(crate) struct OfMember {
    #[command(flatten)]
    workspace: InWorkspace,
    #[arg(long)]
    user: Named<UserId>,
    /// Do not ask for confirmation before form links end
    #[arg(long)]
    yes: bool,
}

impl OfMember {
    /// The ids of the workspace and the user.
    async fn ids(&self, operator: &Operator) -> Result<(WorkspaceId, UserId)> {
        let workspace = self.workspace.id_to_grant(operator).await?;
        Ok((workspace, operator.id(&self.user).await?))
    }
}

pub(crate) async fn run(operator: &Operator, verb: MemberCommand) -> Result<Output> {
    Ok(match verb {
        MemberCommand::Set { of, settings } => {
            let (workspace, user) = of.ids(operator).await?;
            let role = settings.role;
            let deactivated = settings.is_deactivated;
            if deactivated == Some(true) || role == MemberRole::Viewer {
                // Only who may run workflows keeps the links of their forms alive.
                confirm(operator, Losing::Member(workspace, user), of.yes).await?;
            }
            let setting = operator.set_member(workspace, user, role, deactivated);
            Output::one(&setting.await?)
        }
        MemberCommand::Remove(of) => {
            let (workspace, user) = of.ids(operator).await?;
            confirm(operator, Losing::Member(workspace, user), of.yes).await?;
            Output::one(&operator.remove_member(workspace, user).await?)
        }
        MemberCommand::List(workspace) => Output::many(
            &operator.members(workspace.id(operator).await?).await?,
            "user_id email name role deactivated_at",
        ),
    })
}
