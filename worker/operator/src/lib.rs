//! The orders that operators give: about workspaces, users and members, workflows and their form
//! links, accounts, policies and approvals, webhooks, runs and signals, dead letters, sealing keys.
//! The command line `letterbox` is one way to give them.
//!
//! Each file is a noun: its statements, its types and its orders. Each order is one transaction,
//! under the operator's role. Things are named by their id alone: where a key begins with a
//! workspace, the statement finds it through the workspaces.

mod accounts;
mod approvals;
mod audit;
mod dead_letters;
mod demo;
mod error;
mod form_links;
mod lost_claims;
mod members;
mod names;
mod plans;
mod policies;
mod run_detail;
mod runs;
mod sealing_keys;
mod signals;
mod status;
mod submission;
mod users;
mod webhooks;
mod workflows;
mod workspaces;

use letterbox_common::ids::UserId;
use letterbox_database::{
    Database, DatabaseTarget, Role, Statement, connect_once, health, migrations, role_exists,
};
use serde::Serialize;
use serde_json::Value;

pub use self::{
    accounts::{AccountRow, NewAccount},
    approvals::{ApprovalDetail, ApprovalRow, SteeringAction, WaitingApproval},
    audit::{AuditEntry, AuditFilter},
    dead_letters::{DeadEntry, DeadLetterFilter, DeadLetterRow, Discarded, Redriven},
    demo::Demo,
    error::{OperatorError, Reason},
    form_links::{Closing, LiveLink, Losing, NewFormLink},
    members::Member,
    names::{Named, NamedId, Noun},
    plans::{Changes, DeployPlan},
    policies::{PolicyChange, PolicyRow, PolicyVersion, RulingChange},
    run_detail::{ActionApproval, RunAction, RunDetail},
    runs::{CancelOutcome, Cancelled, FormAnswer, Retried, RetryOutcome, RunFilter, RunRow},
    sealing_keys::{KeyRings, Rotation},
    signals::{SignalDetail, SignalFilter, SignalReader, SignalRow},
    status::{BacklogKind, Held, Part, Retrying, Status},
    submission::Submission,
    users::User,
    webhooks::{NewWebhook, RefusalRow, Sender, WebhookRow, rules_of},
    workflows::{DeployedWorkflow, Move, WorkflowDetail, WorkflowRow},
    workspaces::{Allowance, Retries, Usage, WebhookUsage, Workspace},
};

const PROGRAM: &str = "letterbox";

/// Every statement of the operator, for the test that prepares them under its role.
pub fn statements() -> impl Iterator<Item = &'static Statement> {
    let nouns = [
        accounts::STATEMENTS,
        approvals::STATEMENTS,
        audit::STATEMENTS,
        form_links::STATEMENTS,
        lost_claims::STATEMENTS,
        members::STATEMENTS,
        names::STATEMENTS,
        plans::STATEMENTS,
        policies::STATEMENTS,
        run_detail::STATEMENTS,
        runs::STATEMENTS,
        sealing_keys::STATEMENTS,
        signals::STATEMENTS,
        status::STATEMENTS,
        users::STATEMENTS,
        webhooks::STATEMENTS,
        workflows::STATEMENTS,
        workspaces::STATEMENTS,
    ];
    nouns.into_iter().flatten().copied()
}

/// The result of a migration.
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

/// Who gives an order, by which command, and why: the audit log tells it beside the change.
#[derive(Debug, Clone, Default)]
pub struct Orderer {
    /// The user who answers for it.
    pub by: Option<UserId>,
    /// The command, such as `run cancel`.
    pub command: Option<String>,
    /// The reason, in their own words.
    pub reason: Option<String>,
}

/// Carries out orders.
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
}

/// Checks the name of a workspace, user, webhook, account or workflow.
fn check_name(name: &str) -> Result<(), OperatorError> {
    let has_length = (1..=200).contains(&name.chars().count());
    if has_length && !name.trim().is_empty() && !name.contains(char::is_control) {
        Ok(())
    } else {
        Err(Reason::InvalidName.into())
    }
}

/// JSON text that was stored, as a value. What is not JSON is shown as a text: an operator must be
/// able to look at it, and to repair it.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// As [`json`], of a column that may be null.
fn optional_json(text: Option<&str>) -> Option<Value> {
    text.map(json)
}
