//! The record of a run, as the executor reads it: each field says which column it comes from.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use letterbox_common::{
    ids::{AccountId, ReleaseId, RunId, UserId, WorkflowId, WorkspaceId},
    states::{ActionState, ApprovalState},
};
use letterbox_database::{DatabaseError, FromRow, Row, RowError};
use letterbox_workflow::actions::Branch;

use super::approvals::ApprovalStatus;

/// One worker's turn at a run. It ends when the worker lets go of the run, or some time after its
/// lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct Turn {
    #[row(name = workspace_id)]
    pub workspace: WorkspaceId,
    #[row(name = run_id)]
    pub run: RunId,
    /// Fences: only the latest turn decides what becomes of the run.
    #[row(name = turn)]
    pub token: i64,
}

impl Turn {
    /// The key of its run.
    pub fn key(&self) -> (WorkspaceId, RunId) {
        (self.workspace, self.run)
    }
}

/// A run that this worker has taken.
#[derive(Debug, Clone, Copy, FromRow)]
pub struct TakenRun {
    #[row(flatten)]
    pub turn: Turn,
    /// Its first one: nothing has been done yet.
    pub is_first: bool,
    /// Consecutive turns, this one included, that have recorded nothing that counts.
    pub idle_turns: i32,
    /// Its cancellation was ordered.
    pub is_cancelled: bool,
    /// The account that it may call; the limit of requests to an account counts on it.
    #[row(name = account_id)]
    pub account: Option<AccountId>,
}

/// What is known of a run, its actions aside.
#[derive(Debug, FromRow)]
pub struct RunFacts {
    /// The user as whom it runs.
    #[row(name = run_as)]
    pub owner: UserId,
    #[row(name = workflow_id)]
    pub workflow: WorkflowId,
    #[row(name = release_id)]
    pub release: ReleaseId,
    pub received_at: Timestamp,
    /// JSON text that a stranger wrote; never missing while a run is not over.
    pub input: Vec<u8>,
    /// Why it fails, once the actions that follow a failure have begun.
    pub failing: Option<String>,
    /// The context of its submission, if its trace is followed.
    pub traceparent: Option<String>,
    /// The bytes of the requests and answers that it has stored, as far as they are kept.
    #[row(default)]
    pub stored: usize,
    /// What holds now, for an action that calls the account of the turn.
    #[row(flatten)]
    pub circumstances: Circumstances,
}

/// What has been done of one action.
#[derive(Debug, Clone, Default, FromRow)]
pub struct ActionRecord {
    /// It succeeded, or its agent was told that it did not.
    pub is_done: bool,
    /// `None` before its first step.
    pub state: Option<ActionState>,
    pub branch: Option<Branch>,
    /// JSON text of the rendered request, until the action is over.
    pub request: Option<String>,
    /// Attempts whose end is known.
    pub attempts: i32,
    /// The number of the latest attempt that has begun.
    pub begun: i32,
    /// The number of the latest attempt whose end is recorded.
    pub answered: i32,
    /// Attempts under the present key that may have taken effect.
    pub unanswered: i32,
    /// Time until the next attempt.
    #[row(with = seconds)]
    pub retry_in: Option<Duration>,
    #[row(from = approval)]
    pub approval: Option<ApprovalStatus>,
    /// HTTP status of the last answer.
    #[row(name = response_status, with = status)]
    pub status: Option<u16>,
    /// The body of its answer, if it is kept and in hand; sealed as it is loaded.
    #[row(name = answer_sealed)]
    pub answer: Option<Vec<u8>>,
    /// How many bytes of it the database has, sealed.
    #[row(with = length)]
    pub answer_length: usize,
    /// What its agent was told instead of an answer.
    pub refused: Option<String>,
    /// Why it failed, if the run has not failed with it yet.
    pub failed: Option<String>,
    /// How long ago it began.
    #[row(with = age)]
    pub age: Duration,
}

impl ActionRecord {
    /// The record of an action that succeeded.
    pub fn done(branch: Option<Branch>) -> Self {
        Self {
            is_done: true,
            branch,
            ..Self::default()
        }
    }
}

/// An account of the owner, its credential still sealed.
#[derive(Debug, Clone, FromRow)]
pub struct Account {
    #[row(name = account_id)]
    pub id: AccountId,
    pub name: String,
    pub base_url: String,
    #[row(name = header_name)]
    pub header: String,
    /// From whom its e-mail is; `None` if it sends none.
    pub sender: Option<String>,
    pub credential_sealed: Vec<u8>,
    /// It is not called: it waits for a token, or for its owner.
    pub waits: bool,
}

impl Account {
    /// The account of a row, if there is one.
    fn connected(row: &Row) -> Result<Option<Self>, RowError> {
        let id: Option<AccountId> = row.try_get("account_id")?;
        id.map(|_| Self::from_row(row)).transpose()
    }
}

/// Why a run, or one of its actions, can't be executed.
#[derive(Debug)]
pub enum Hindrance {
    /// Whoever tries: it fails, for this reason.
    Lasting(String),
    /// This worker lacks what another one has, or will have: the run is let go of.
    Local(String),
    Database(DatabaseError),
}

impl From<String> for Hindrance {
    fn from(reason: String) -> Self {
        Self::Lasting(reason)
    }
}

impl From<DatabaseError> for Hindrance {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

/// How often a workspace wants an action to be tried; `None` if it leaves that to the worker.
#[derive(Debug, Clone, Copy, Default, FromRow)]
pub struct Retries {
    #[row(name = retry_attempts)]
    pub attempts: Option<i32>,
    /// Doubled after each further attempt.
    #[row(name = retry_first_pause, with = seconds)]
    pub first_pause: Option<Duration>,
}

/// What holds at the moment of an action. It may change at once: an attempt begins only if what it
/// was decided by still holds then.
#[derive(Debug, Clone, FromRow)]
pub struct Circumstances {
    pub owner_may_run: bool,
    /// Actions of the workspace must wait.
    pub is_held: bool,
    #[row(flatten)]
    pub retries: Retries,
    /// `None` if the owner has not connected it.
    #[row(from = Account::connected)]
    pub account: Option<Account>,
    /// 0 if the default policy applies.
    pub policy_version: i32,
    #[row(from = now)]
    pub since: Instant,
}

// Columns that are not read as they are.

fn approval(row: &Row) -> Result<Option<ApprovalStatus>, RowError> {
    let Some(state) = row.try_get::<_, Option<ApprovalState>>("approval_state")? else {
        return Ok(None);
    };
    let has_lapsed: Option<bool> = row.try_get("approval_lapsed")?;
    let time_left = seconds(row.try_get("approval_expires_in")?);
    Ok(Some(match (state, time_left) {
        (ApprovalState::Approved, _) if has_lapsed == Some(true) => ApprovalStatus::Lapsed,
        (ApprovalState::Approved, _) => ApprovalStatus::Approved,
        (ApprovalState::Withdrawn, _) => ApprovalStatus::Withdrawn,
        (ApprovalState::Denied, _) => ApprovalStatus::Denied,
        (ApprovalState::Pending, Some(time_left)) => ApprovalStatus::Pending(time_left),
        (ApprovalState::Pending, None) | (ApprovalState::Expired, _) => ApprovalStatus::Expired,
    }))
}

/// `None` if it is null, or its time has passed.
fn seconds(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

fn age(age: Option<f64>) -> Duration {
    seconds(age).unwrap_or_default()
}

fn status(status: Option<i32>) -> Option<u16> {
    status.and_then(|status| u16::try_from(status).ok())
}

fn length(length: i32) -> usize {
    usize::try_from(length).unwrap_or_default()
}

/// When the row was read.
fn now(_: &Row) -> Result<Instant, RowError> {
    Ok(Instant::now())
}
