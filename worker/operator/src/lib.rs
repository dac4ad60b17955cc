//! What operators order: workspaces, users and members, workflows and their form links, accounts,
//! policies and approvals, webhooks, a look at runs and signals, dead letters, new sealing keys.
//! The command line `letterbox` is one way to order it.
//!
//! Each file holds the orders about one noun; `store/` has a file of the same name with their
//! statements. Each order is one transaction, under the operator's role.

mod accounts;
mod approvals;
mod dead_letters;
mod demo;
mod error;
mod form_links;
mod members;
mod policies;
mod runs;
mod sealing_keys;
mod signals;
mod store;
mod users;
mod webhooks;
mod workflows;
mod workspaces;

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{
    Database, DatabaseTarget, Role, Statement, connect_once, health, migrations, role_exists,
};
use serde::Serialize;

pub use self::{
    accounts::NewAccount,
    dead_letters::Redriven,
    demo::Demo,
    error::{OperatorError, Reason},
    form_links::NewFormLink,
    policies::{PolicyChange, RulingChange},
    sealing_keys::{KeyRings, Rotation},
    store::{
        AccountRow, ActionApproval, Allowance, ApprovalRow, Member, PolicyRow, RunAction,
        RunDetail, RunRow, SignalDetail, SignalRow, User, WebhookRow, WorkflowDetail, WorkflowRow,
        Workspace,
    },
    webhooks::NewWebhook,
    workflows::{DeployedWorkflow, Move},
};

const PROGRAM: &str = "letterbox";

/// Every statement of the operator, for the test that prepares them under its role.
pub fn statements() -> impl Iterator<Item = &'static Statement> {
    store::statements()
}

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Migrated {
    /// The version of the schema now.
    pub version: i32,
    /// The migrations that were applied.
    pub applied: Vec<String>,
}

/// Brings the schema up to date.
///
/// # Errors
/// When the database can't be reached or a migration fails.
pub async fn migrate(target: &DatabaseTarget) -> Result<Migrated, OperatorError> {
    let mut client = connect_once(target, Role::Login, PROGRAM).await?;
    let applied = migrations::migrate(&mut client).await?;
    let applied = applied
        .into_iter()
        .map(|one| format!("V{} {}", one.version, one.name));
    Ok(Migrated {
        version: migrations::known_version(),
        applied: applied.collect(),
    })
}

/// Takes orders.
pub struct Operator {
    database: Database,
}

impl Operator {
    /// Connects, and checks that this program knows the schema.
    ///
    /// # Errors
    /// When the database can't be reached, or has no schema or an older one.
    pub async fn connect(target: &DatabaseTarget) -> Result<Self, OperatorError> {
        let database = Database::single(target, Role::Operator, PROGRAM)?;
        let version = match health::schema_version(&database).await {
            Ok(version) => version,
            // Before the first migration there is no role to take.
            Err(error) => match role_exists(target, Role::Operator, PROGRAM).await {
                Ok(false) => return Err(Reason::NoRole(error.to_string()).into()),
                _ => return Err(error.into()),
            },
        };
        let known = migrations::known_version();
        if version < known {
            return Err(Reason::from(health::OldSchema { version, known }).into());
        }
        Ok(Self { database })
    }

    async fn need_workspace(&self, workspace: WorkspaceId) -> Result<(), OperatorError> {
        match store::workspace_exists(&self.database, workspace).await? {
            true => Ok(()),
            false => Err(Reason::NotFound("workspace").into()),
        }
    }
}

/// Checks the name of a workspace, user, webhook, account or workflow.
fn check_name(name: &str) -> Result<(), OperatorError> {
    let has_length = (1..=200).contains(&name.chars().count());
    if has_length && !name.trim().is_empty() && !name.contains('\0') {
        Ok(())
    } else {
        Err(Reason::InvalidName.into())
    }
}
