//! What an owner or operator can order: workspaces, people, workflows and their form links,
//! accounts, policies and approvals, webhooks, a look at runs and signals, new sealing keys. The
//! command line is one way to order it. Each order is one transaction.

mod accounts;
mod approvals;
mod lifecycle;
mod rotation;
mod runs;
mod store;
mod webhooks;

use letterbox_common::{
    database::{DatabaseError, DatabaseTarget, Role, connect_once, migrations},
    ids::{UserId, WorkspaceId},
};
use serde::Serialize;
use tokio_postgres::{Client, error::SqlState};

pub use accounts::NewAccount;
pub use lifecycle::{
    Deployed, Move, NewFormLink, STATEMENTS as LIFECYCLE_STATEMENTS, WorkflowDetail, WorkflowRow,
};
pub use rotation::Rotation;
pub use store::{
    AccountRow, ActionApproval, Allowance, ApprovalRow, Member, PolicyRow, RunAction, RunDetail,
    RunRow, STATEMENTS, SignalDetail, SignalRow, User, WebhookRow, Workspace,
};
pub use webhooks::NewWebhook;

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// It can't be, as things are; in words for the one who ordered.
    #[error("{0}")]
    Refused(String),
    #[error("the database: {0}")]
    Database(#[from] DatabaseError),
    #[error("the schema: {0}")]
    Migration(#[from] migrations::MigrationError),
}

impl From<tokio_postgres::Error> for OwnerError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error.into())
    }
}

impl OwnerError {
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }

    /// Puts a broken constraint into words; everything else stays a database error.
    fn explain(error: tokio_postgres::Error, broken: &SqlState, why: &str) -> Self {
        if error.code() == Some(broken) {
            Self::refused(why)
        } else {
            error.into()
        }
    }
}

/// What a migration run did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Migrated {
    pub version: i32,
    pub applied: Vec<String>,
}

/// Brings the schema up to date.
///
/// # Errors
/// When the database can't be reached or a migration fails.
pub async fn migrate(target: &DatabaseTarget) -> Result<Migrated, OwnerError> {
    let mut client = connect_once(target, Role::Login, "letterbox").await?;
    let applied = migrations::migrate(&mut client).await?;
    let applied = applied
        .into_iter()
        .map(|one| format!("V{} {}", one.version, one.name))
        .collect();
    Ok(Migrated {
        version: migrations::known_version(),
        applied,
    })
}

/// Takes orders. Works under the operator's role.
pub struct Owner {
    client: Client,
}

impl Owner {
    /// Connects, and checks that the schema is one that this program knows.
    ///
    /// # Errors
    /// When the database can't be reached, or has no schema or an older one.
    pub async fn connect(target: &DatabaseTarget) -> Result<Self, OwnerError> {
        let client = connect_once(target, Role::Operator, "letterbox")
            .await
            .map_err(|error| {
                // Before the first migration there is no such role.
                if error.to_string().contains("letterbox_operator") {
                    OwnerError::refused(format!("{error}: run 'letterbox migrate' first"))
                } else {
                    error.into()
                }
            })?;
        let (version, known) = (
            migrations::database_version(&client).await?,
            migrations::known_version(),
        );
        if version < known {
            let why = format!(
                "the schema has version {version}, this program needs {known}: run 'letterbox migrate'"
            );
            return Err(OwnerError::refused(why));
        }
        Ok(Self { client })
    }

    /// Creates a workspace that may start `run_allowance` runs in a calendar month; `None` is
    /// without limit.
    ///
    /// # Errors
    /// When the name is empty or too long.
    pub async fn create_workspace(
        &self,
        name: &str,
        run_allowance: Option<u32>,
    ) -> Result<Workspace, OwnerError> {
        check_name(name)?;
        let allowance = runs::allowance(run_allowance)?;
        Ok(store::create_workspace(&self.client, WorkspaceId::generate(), name, allowance).await?)
    }

    /// # Errors
    /// When the database can't be asked.
    pub async fn workspaces(&self) -> Result<Vec<Workspace>, OwnerError> {
        Ok(store::workspaces(&self.client).await?)
    }

    /// # Errors
    /// When the e-mail address is none, or another user has it.
    pub async fn create_user(&self, email: &str, name: &str) -> Result<User, OwnerError> {
        check_name(name)?;
        let characters = email.chars().count();
        if !email.contains('@')
            || !(3..=200).contains(&characters)
            || email.contains(char::is_control)
        {
            return Err(OwnerError::refused(
                "that is not an e-mail address of 3 to 200 characters",
            ));
        }
        store::create_user(&self.client, UserId::generate(), email, name)
            .await
            .map_err(|error| {
                OwnerError::explain(
                    error,
                    &SqlState::UNIQUE_VIOLATION,
                    "another user has this e-mail address",
                )
            })
    }

    /// Adds a member, or changes one. A deactivated member may do nothing.
    ///
    /// # Errors
    /// When there is no such workspace or user.
    pub async fn set_member(
        &self,
        workspace: WorkspaceId,
        user: UserId,
        role: &str,
        deactivated: bool,
    ) -> Result<Member, OwnerError> {
        store::set_member(&self.client, workspace, user, role, deactivated)
            .await
            .map_err(|error| {
                OwnerError::explain(
                    error,
                    &SqlState::FOREIGN_KEY_VIOLATION,
                    "there is no such workspace or no such user",
                )
            })
    }

    /// # Errors
    /// When the user is no member.
    pub async fn remove_member(
        &self,
        workspace: WorkspaceId,
        user: UserId,
    ) -> Result<Member, OwnerError> {
        let removed = store::remove_member(&self.client, workspace, user).await?;
        removed.ok_or_else(|| OwnerError::refused("the user is no member of this workspace"))
    }

    /// # Errors
    /// When there is no such workspace.
    pub async fn members(&self, workspace: WorkspaceId) -> Result<Vec<Member>, OwnerError> {
        self.need_workspace(workspace).await?;
        Ok(store::members(&self.client, workspace).await?)
    }

    /// The newest signals of a workspace, at most `limit`.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn signals(
        &self,
        workspace: WorkspaceId,
        limit: u32,
    ) -> Result<Vec<SignalRow>, OwnerError> {
        self.need_workspace(workspace).await?;
        Ok(store::signals(&self.client, workspace, limit).await?)
    }

    /// One signal with its body.
    ///
    /// # Errors
    /// When there is no such signal.
    pub async fn signal(
        &self,
        id: letterbox_common::ids::DeliveryId,
    ) -> Result<SignalDetail, OwnerError> {
        let signal = store::signal(&self.client, id).await?;
        signal.ok_or_else(|| OwnerError::refused("there is no such signal"))
    }

    async fn need_workspace(&self, workspace: WorkspaceId) -> Result<(), OwnerError> {
        match store::workspace_exists(&self.client, workspace).await? {
            true => Ok(()),
            false => Err(OwnerError::refused("there is no such workspace")),
        }
    }
}

fn check_name(name: &str) -> Result<(), OwnerError> {
    if (1..=200).contains(&name.chars().count()) && !name.trim().is_empty() && !name.contains('\0')
    {
        Ok(())
    } else {
        Err(OwnerError::refused(
            "a name has 1 to 200 characters and is not blank",
        ))
    }
}
