//! The record of a run, as the executor reads and writes it. Pure: what is read says which columns
//! it comes from, and how it is stored is the concern of `store/`.
//!
//! What is written says what has happened, as an enum; which columns that changes follows from the
//! variant.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use letterbox_common::{
    ids::{AccountId, ReleaseId, RunId, UserId, WorkflowId, WorkspaceId},
    states::ActionState,
};
use letterbox_database::{DatabaseError, FromRow, Row, RowError};
use letterbox_workflow::{Ruling, Taint, actions::Branch};

use super::{
    approvals::ApprovalStatus,
    columns::{age, approval, length, now, seconds, status},
};

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

/// Which action of a run is written about.
#[derive(Debug, Clone)]
pub struct ActionKey {
    pub id: String,
    /// The name of its kind.
    pub kind: &'static str,
    /// The agent that it is a part of.
    pub part_of: Option<String>,
    pub taint: Taint,
    /// The latest attempts that had begun and were answered when the action was looked at: what is
    /// decided then is written only if that is still so.
    pub begun: i32,
    pub answered: i32,
}

/// What the policy said of a request.
#[derive(Debug, Clone)]
pub struct Decided {
    pub ruling: Ruling,
    pub policy_version: i32,
    /// JSON text.
    pub request: String,
}

/// The beginning of an attempt, with everything that it was decided by.
#[derive(Debug, Clone)]
pub struct Beginning {
    pub turn: Turn,
    pub action: ActionKey,
    pub account: AccountId,
    pub decided: Decided,
    /// A person was asked about it.
    pub was_asked: bool,
}

impl Beginning {
    /// The number of the attempt.
    pub fn attempt(&self) -> i32 {
        self.action.begun.saturating_add(1)
    }
}

/// What is written after something was done: of one action, and of the run.
#[derive(Debug, Clone)]
pub struct Step {
    pub turn: Turn,
    pub action: Option<(ActionKey, Change)>,
    /// What the action was answered, if that is kept.
    pub sealed: Option<Vec<u8>>,
    pub then: Then,
}

impl Step {
    /// Whether its worker goes on with the run.
    pub fn goes_on(&self) -> bool {
        matches!(self.then, Then::Continue | Then::BeginFailing(_))
    }

    /// Whether something has happened to its action otherwise than by an answer: then it counts
    /// only if no answer came meanwhile.
    pub fn is_changed(&self) -> bool {
        match &self.action {
            None | Some((_, Change::Answered { .. } | Change::Retry { .. })) => false,
            Some((_, Change::Failed(failure))) => failure.answer.is_none(),
            Some(_) => true,
        }
    }

    /// A step that says nothing of any action.
    pub fn of_run(turn: Turn, then: Then) -> Self {
        Self {
            turn,
            action: None,
            sealed: None,
            then,
        }
    }
}

/// What has happened to an action.
#[derive(Debug, Clone)]
pub enum Change {
    /// An agent has begun; what it does are actions of their own.
    Opened,
    /// A condition chose a branch.
    Chose(Branch),
    /// A delay waits for this time.
    Waiting(Duration),
    /// A delay is over.
    Waited,
    /// An agent is done; its last message is kept as its answer.
    Concluded {
        status: u16,
        body: Option<Vec<u8>>,
    },
    /// A person must approve it.
    AwaitsApproval(Decided),
    /// It was answered, and succeeded.
    Answered {
        answer: Answer,
        branch: Option<Branch>,
    },
    /// Another attempt follows after a pause.
    Retry {
        answer: Answer,
        error: String,
        pause: Duration,
    },
    Failed(Failure),
    /// The policy or a person denied it.
    Denied(Failure, Decided),
}

impl Change {
    /// The answer that it keeps.
    pub fn body(&mut self) -> Option<&mut Option<Vec<u8>>> {
        match self {
            Self::Concluded { body, .. } => Some(body),
            Self::Answered { answer, .. } => Some(&mut answer.body),
            Self::Failed(failure) => failure.answer.as_mut().map(|answer| &mut answer.body),
            _ => None,
        }
    }

    /// The record of its action, whose worker goes on behind it. It takes the answer.
    pub fn record(&mut self) -> ActionRecord {
        let answer = self.body().and_then(Option::take);
        let record = match self {
            Self::Chose(branch) => ActionRecord::done(Some(*branch)),
            Self::Waited => ActionRecord::done(None),
            Self::Concluded { status, .. } => ActionRecord {
                status: Some(*status),
                ..ActionRecord::done(None)
            },
            Self::Answered { answer, branch } => ActionRecord {
                status: answer.status,
                ..ActionRecord::done(*branch)
            },
            Self::Failed(failure) => ActionRecord {
                is_done: failure.is_told,
                status: failure.answer.as_ref().and_then(|answer| answer.status),
                // An answer is an answer: the model is told what it says.
                refused: (failure.is_told && answer.is_none()).then(|| failure.reason.clone()),
                ..ActionRecord::default()
            },
            Self::Denied(failure, _) if failure.is_told => ActionRecord {
                is_done: true,
                state: Some(ActionState::Denied),
                refused: Some(failure.reason.clone()),
                ..ActionRecord::default()
            },
            _ => ActionRecord::default(),
        };
        ActionRecord { answer, ..record }
    }
}

/// What came of an attempt.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The number of the attempt: it counts if this is the latest one, and once.
    pub attempt: i32,
    pub end: AttemptEnd,
    pub status: Option<u16>,
    /// Its body, if it is kept.
    pub body: Option<Vec<u8>>,
}

/// Why an action failed or was denied.
#[derive(Debug, Clone)]
pub struct Failure {
    pub reason: String,
    /// The answer that it failed with; `None` if it failed before anything was sent.
    pub answer: Option<Answer>,
    /// The agent that called it is told, and the run goes on.
    pub is_told: bool,
}

impl Failure {
    /// A failure before anything was sent.
    pub fn unsent(reason: String, is_told: bool) -> Self {
        Self {
            reason,
            answer: None,
            is_told,
        }
    }
}

/// What is known at the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptEnd {
    /// Nothing: it may have been done.
    Unknown,
    /// It was not done; earlier attempts under the same key may have been.
    NotDone,
    /// A definite answer; by the idempotency key it settles earlier attempts, too.
    Answered,
}

impl AttemptEnd {
    /// How many of these attempts, this one the last of them, may still have taken effect.
    pub fn left_unanswered(self, attempts: i32) -> i32 {
        attempts.saturating_sub(self.settled()).max(0)
    }

    /// Of how many attempts the outcome is known now.
    pub fn settled(self) -> i32 {
        match self {
            Self::Unknown => 0,
            Self::NotDone => 1,
            Self::Answered => i32::MAX,
        }
    }
}

/// What becomes of a run after a step.
#[derive(Debug, Clone)]
pub enum Then {
    /// This worker goes on with it.
    Continue,
    /// This worker goes on with the actions that follow a failure, which has this reason.
    BeginFailing(String),
    /// Any worker may take it after this time, to call this account if one is named.
    Release(Duration, Option<AccountId>),
    /// It waits for a person, at most for this time.
    AwaitApproval(Duration),
    End(End),
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Succeeded,
    Failed(String),
    Denied(String),
}

impl Then {
    /// Any worker may take the run at once.
    pub fn let_go() -> Self {
        Self::Release(Duration::ZERO, None)
    }
}

/// What a stage comes to: what is written of its action, if something is, and what becomes of the
/// run.
#[derive(Debug)]
pub enum Outcome {
    /// The run goes on behind the action, and ends if that was the last one.
    GoOn(ActionKey, Change),
    /// The run fails for this reason: what follows a failure comes next, once.
    Fail(Option<(ActionKey, Change)>, String),
    /// This worker lets go of the run, or ends it.
    Leave(Option<(ActionKey, Change)>, Then),
}

impl Outcome {
    /// Any worker may take the run at once.
    pub fn let_go() -> Self {
        Self::Leave(None, Then::let_go())
    }

    /// An action has failed, and the run with it, unless an agent is told.
    pub fn failed(key: ActionKey, failure: Failure) -> Self {
        if failure.is_told {
            return Self::GoOn(key, Change::Failed(failure));
        }
        let why = format!("{}: {}", key.id, failure.reason);
        Self::Fail(Some((key, Change::Failed(failure))), why)
    }
}

/// What came of writing a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All of it is recorded.
    Recorded,
    /// The same, but the run is cancelled now, because that was ordered.
    Cancelled,
    /// Another turn decides about the run. An answer was recorded if it still counted.
    NotOurs,
}
