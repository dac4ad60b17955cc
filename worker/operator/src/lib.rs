//! What operators order: workspaces, users and members, workflows and their form links, accounts,
//! policies and approvals, webhooks, a look at runs and signals, dead letters, new sealing keys.
//! The command line `letterbox` is one way to order it.
//!
//! Each file holds the orders about one noun; `store/` has a file of the same name with their
//! statements. Each order is one transaction, under the operator's role.

mod accounts;
mod approvals;
mod audit;
mod dead_letters;
mod demo;
mod error;
mod form_links;
mod members;
mod names;
mod policies;
mod runs;
mod sealing_keys;
mod signals;
mod status;
mod store;
mod users;
mod webhooks;
mod workflows;
mod workspaces;

use letterbox_common::ids::{UserId, WorkspaceId};
use letterbox_database::{
    Database, DatabaseTarget, Role, Statement, connect_once, health, migrations, role_exists,
};
use serde::Serialize;

pub use self::{
    accounts::NewAccount,
    approvals::{ApprovalDetail, SteeringAction},
    dead_letters::{DeadEntry, DeadLetterFilter, DeadLetterRow, Discarded, Redriven},
    demo::Demo,
    error::{OperatorError, Reason},
    form_links::{Losing, NewFormLink},
    names::{Named, NamedId},
    policies::{PolicyChange, RulingChange},
    runs::{Cancelled, Retried},
    sealing_keys::{KeyRings, Rotation},
    status::{BacklogKind, Held, Part, Status},
    store::{
        AccountRow, ActionApproval, Allowance, ApprovalRow, AuditEntry, AuditFilter, CancelOutcome,
        Closing, FormAnswer, LiveLink, Member, Noun, PolicyRow, PolicyVersion, RefusalRow, Retries,
        RetryOutcome, RunAction, RunDetail, RunFilter, RunRow, Sender, SignalDetail, SignalFilter,
        SignalReader, SignalRow, Usage, User, WaitingApproval, WebhookRow, WebhookUsage,
        WorkflowDetail, WorkflowRow, Workspace,
    },
    webhooks::{NewWebhook, rules_of},
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

/// Who orders, by what, and why: what the audit log says beside what was changed.
#[derive(Debug, Clone, Default)]
pub struct Orderer {
    /// The user who answers for it.
    pub by: Option<UserId>,
    /// The command, such as `run cancel`.
    pub command: Option<String>,
    /// In their own words.
    pub reason: Option<String>,
}

/// Takes orders.
pub struct Operator {
    database: Database,
    orderer: Orderer,
}

impl Operator {
    /// Connects, and checks that this program knows the schema.
    ///
    /// # Errors
    /// When the database can't be reached, or has no schema or an older one.
    pub async fn connect(target: &DatabaseTarget) -> Result<Self, OperatorError> {
        Self::connect_as(target, Orderer::default()).await
    }

    /// As [`Self::connect`], for orders that this orderer answers for.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_as(
        target: &DatabaseTarget,
        orderer: Orderer,
    ) -> Result<Self, OperatorError> {
        let by = orderer.by.map(|by| by.to_string());
        let said = [
            ("letterbox.ordered_by", by.as_ref()),
            ("letterbox.command", orderer.command.as_ref()),
            ("letterbox.reason", orderer.reason.as_ref()),
        ];
        let said = said
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let session = said.fold(target.clone(), |target, (name, value)| {
            target.with_session_setting(name, value)
        });
        let database = Database::single(&session, Role::Operator, PROGRAM)?;
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
        Ok(Self { database, orderer })
    }

    /// The user who answers for what is ordered.
    #[must_use]
    pub fn ordered_by(&self) -> Option<UserId> {
        self.orderer.by
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
