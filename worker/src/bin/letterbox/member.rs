//! `letterbox member …`

use clap::{Subcommand, builder::PossibleValuesParser};
use letterbox_common::ids::{UserId, WorkspaceId};
use letterbox_worker::owner::Owner;

use crate::{Failure, Output};

#[derive(Subcommand)]
pub enum Verb {
    /// Add a member, or change one
    Set {
        #[arg(long)]
        workspace: WorkspaceId,
        #[arg(long)]
        user: UserId,
        /// A viewer may not run workflows
        #[arg(long, value_parser = PossibleValuesParser::new(["owner", "editor", "runner", "viewer"]))]
        role: String,
        /// The member may do nothing until it is set again without this
        #[arg(long)]
        deactivated: bool,
    },
    /// Remove a member
    Remove {
        #[arg(long)]
        workspace: WorkspaceId,
        #[arg(long)]
        user: UserId,
    },
    /// List the members of a workspace
    List {
        #[arg(long)]
        workspace: WorkspaceId,
    },
}

pub async fn carry_out(owner: &Owner, verb: Verb) -> Result<Output, Failure> {
    Ok(match verb {
        Verb::Set {
            workspace,
            user,
            role,
            deactivated,
        } => Output::one(
            &owner
                .set_member(workspace, user, &role, deactivated)
                .await?,
        ),
        Verb::Remove { workspace, user } => {
            Output::one(&owner.remove_member(workspace, user).await?)
        }
        Verb::List { workspace } => Output::many(
            &owner.members(workspace).await?,
            &["user_id", "email", "name", "role", "deactivated_at"],
        ),
    })
}
