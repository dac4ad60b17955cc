//! The orders that operators give: about workspaces, users and members, workflows and their form
//! links, accounts, policies and approvals, webhooks, runs and signals, dead letters, sealing keys.
//! The command line `letterbox` is one way to give them.
//!
//! Each file is a noun: its statements, its types and its orders. Each order is one transaction,
//! under the operator's role. Things are named by their id alone: where a key begins with a
//! workspace, the statement finds it through the workspaces.

mod account_settings;
mod account_trials;
mod accounts;
mod addresses;
mod answers;
mod approvals;
mod asking;
mod audit;
mod dead_letters;
mod demo;
mod deploys;
mod documents;
mod error;
pub mod escape;
mod form_links;
mod grants;
mod health;
mod lost_claims;
mod members;
mod moment;
mod names;
mod notices;
mod plans;
mod policies;
mod received;
mod recipients;
mod rehearsals;
mod run_detail;
mod runs;
mod sealing_keys;
mod sessions;
mod signals;
mod strict;
mod submission;
mod subscription_settings;
mod subscriptions;
mod users;
mod webhook_settings;
mod webhooks;
pub mod words;
mod workflows;
mod workspace_settings;
mod workspaces;

use letterbox_common::ids::UserId;
use letterbox_database::{
    Database, DatabaseSettings, DatabaseTarget, Role, Statement, connect_once,
    health::{OldSchema, schema_version},
    migrations, role_exists, stores,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tokio_postgres::error::SqlState;

pub use self::{
    account_settings::{AccountSecret, AccountSettings},
    account_trials::TrialRow,
    accounts::{AccountRow, AccountUse, LastAnswer},
    addresses::Addresses,
    answers::{Column, Csv, NewAnswers},
    approvals::{ApprovalDetail, ApprovalRow, SteeringAction, WaitingApproval},
    audit::{AuditEntry, AuditFilter, HistoryEntry},
    dead_letters::{
        DeadEntry, DeadLetterFilter, DeadLetterRow, Discarded, Redriven, part_of_a_reason,
    },
    demo::Demo,
    deploys::DeployedWorkflow,
    documents::{Applied, DOCUMENT_SCHEMA, Document, Plan, Set, Step, Verb},
    error::{OperatorError, Reason, Result},
    form_links::{Closing, FormLinkRow, LiveLink, Losing, NewFormLink},
    grants::GrantStatus,
    health::{
        BacklogKind, Behind, Deaf, Finding, Held, Part, Retrying, Status, Unconnected, Verdict,
        examine_broker,
    },
    members::{Invitation, Member, MemberSettings},
    moment::{moment, span},
    names::{Named, NamedId, Noun},
    notices::Notices,
    plans::{Changes, DeployPlan, ReleaseChanges, ReleaseRow},
    policies::{PolicyChange, PolicyRow, PolicyVersion, RulingChange},
    rehearsals::RehearsedAction,
    run_detail::{ActionApproval, RunAction, RunDetail},
    runs::{CancelOutcome, FormAnswer, NOT_ERASED, Ordered, RetryOutcome, RunFilter, RunRow},
    sealing_keys::{KeyRings, Rotation},
    sessions::{Browser, Issuer, LivingLink, Person, SignInLink, SignedOut, Vouched},
    signals::{SignalCursor, SignalDetail, SignalFilter, SignalRow},
    submission::Submission,
    subscription_settings::{NewSubscription, SubscriptionSettings, Target},
    subscriptions::SubscriptionRow,
    users::{Subject, User, UserDetail},
    webhook_settings::{SecretFrom, Secrets, WebhookSettings, rules_in, rules_of},
    webhooks::{NewWebhook, RefusalRow, SetWebhook, WebhookRow},
    workflows::{Move, WorkflowDetail, WorkflowRow},
    workspace_settings::{WorkspaceSettings, or_unlimited},
    workspaces::{Day, Usage, WebhookUsage, Workspace},
};
pub use letterbox_workflow::{DEFINITION_SCHEMA, POLICY_SCHEMA, Problem, rehearsal::SampledStep};

const PROGRAM: &str = "letterbox";

/// Every statement of the operator, for the test that prepares them under its role.
pub fn statements() -> impl Iterator<Item = &'static Statement> {
    let nouns = stores! {
        account_trials accounts grants answers approvals audit deploys form_links lost_claims
        members names notices plans policies recipients run_detail runs sealing_keys sessions
        signals subscriptions users webhook_settings webhooks workflows workspace_settings
        workspaces
    };
    nouns
        .chain(documents::STATEMENTS)
        .chain(health::STATEMENTS)
        .flatten()
        .copied()
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
pub async fn migrate(target: &DatabaseTarget) -> Result<Migrated> {
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

/// The most characters that a reason has, as the audit log keeps it.
pub const MAX_REASON: usize = 500;

/// Who gives an order, by which command, and why: written to the audit log with each change.
#[derive(Debug, Clone, Default)]
pub struct Orderer {
    /// The user who answers for it.
    pub by: Option<UserId>,
    /// The command, such as `run cancel`.
    pub command: Option<String>,
    /// The reason, in their own words.
    pub reason: Option<String>,
}

impl Orderer {
    /// The session settings of each transaction.
    fn said(&self) -> impl Iterator<Item = (&'static str, String)> {
        let by = self.by.map(|by| ("letterbox.ordered_by", by.to_string()));
        let said = |name, text: &Option<String>| text.clone().map(|text| (name, text));
        let command = said("letterbox.command", &self.command);
        by.into_iter()
            .chain(command)
            .chain(said("letterbox.reason", &self.reason))
    }
}

/// Carries out orders: an operator's, who sees everything, or a person's, who sees what is theirs.
pub struct Operator {
    database: Database,
    orderer: Orderer,
    person: Option<Person>,
}

impl Operator {
    /// Connects, and checks that this program knows the schema.
    pub async fn connect(target: &DatabaseTarget) -> Result<Self> {
        Self::connect_as(target, Orderer::default()).await
    }

    /// As [`Self::connect`], for orders that this orderer answers for.
    pub async fn connect_as(target: &DatabaseTarget, orderer: Orderer) -> Result<Self> {
        let reason = orderer.reason.as_deref().unwrap_or_default();
        if reason.chars().count() > MAX_REASON {
            return Err(Reason::LongReason.into());
        }
        let database = Database::new(target, &DatabaseSettings::SINGLE, Role::Operator, PROGRAM)?;
        let known = migrations::known_version();
        match schema_version(&database).await {
            Ok(version) if version < known => {
                return Err(Reason::from(OldSchema { version, known }).into());
            }
            Ok(_) => {}
            // Before the first migration there is no role to take.
            Err(error) => match role_exists(target, Role::Operator, PROGRAM).await {
                Ok(false) => return Err(Reason::NoRole(error.to_string()).into()),
                _ if error.code == Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
                    return Err(Reason::NoOperator.into());
                }
                _ => return Err(error.into()),
            },
        }
        Ok(Self {
            database: database.saying(orderer.said()),
            orderer,
            person: None,
        })
    }

    /// The same, for orders by this command and for this reason.
    #[must_use]
    pub fn ordering(self, command: String, reason: Option<String>) -> Self {
        let orderer = Orderer {
            command: Some(command),
            reason,
            ..self.orderer
        };
        Self {
            database: self.database.saying(orderer.said()),
            orderer,
            ..self
        }
    }

    /// The person whose orders these are; `None` where an operator gives them.
    pub fn person(&self) -> Option<&Person> {
        self.person.as_ref()
    }

    /// The user who answers for what is ordered.
    pub fn ordered_by(&self) -> Option<UserId> {
        self.orderer.by
    }
}

/// Checks the name of a workspace, user, webhook, account or workflow.
fn check_name(name: &str) -> Result<()> {
    let has_length = (1..=200).contains(&name.chars().count());
    if has_length && !name.trim().is_empty() && !name.contains(char::is_control) {
        Ok(())
    } else {
        Err(Reason::InvalidName.into())
    }
}

/// Reads a member that is there: `null` is something else than a missing one.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// Text that was stored; what is not UTF-8 is replaced.
fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
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
