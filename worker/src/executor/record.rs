//! The record of a run, as the executor reads and writes it. Pure: how it is stored is the concern
//! of `store/`.
//!
//! What is written says what has happened, as an enum; which columns that changes follows from the
//! variant.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use letterbox_common::{
    ids::{AccountId, ReleaseId, RunId, UserId, WorkflowId, WorkspaceId},
    states::ActionState,
};
use letterbox_database::DatabaseError;
use letterbox_workflow::{Ruling, Taint, actions::Branch};

use super::approvals::ApprovalStatus;

/// One worker's turn at a run. It ends when the worker lets go of the run, or some time after its
/// lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) workspace: WorkspaceId,
    pub(super) run: RunId,
    /// Fences: only the latest turn decides what becomes of the run.
    pub(super) token: i64,
}

impl Turn {
    /// The key of its run.
    pub(super) fn key(&self) -> (WorkspaceId, RunId) {
        (self.workspace, self.run)
    }
}

/// A run that this worker has taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct TakenRun {
    pub(super) turn: Turn,
    /// Its first one: nothing has been done yet.
    pub(super) is_first: bool,
    /// Consecutive turns, this one included, that have recorded nothing that counts.
    pub(super) idle_turns: i32,
    /// Its cancellation was ordered.
    pub(super) is_cancelled: bool,
    /// The account that it may call; the limit of requests to an account counts on it.
    pub(super) account: Option<AccountId>,
}

/// What is known of a run, its actions aside.
#[derive(Debug)]
pub(super) struct RunFacts {
    /// The user as whom it runs.
    pub(super) owner: UserId,
    pub(super) workflow: WorkflowId,
    pub(super) release: ReleaseId,
    pub(super) received_at: Timestamp,
    /// JSON text that a stranger wrote; never missing while a run is not over.
    pub(super) input: Vec<u8>,
    /// Why it fails, once the actions that follow a failure have begun.
    pub(super) failing: Option<String>,
    /// The context of its submission, if its trace is followed.
    pub(super) traceparent: Option<String>,
    /// The bytes of the requests and answers that it has stored, as far as they are kept.
    pub(super) stored: usize,
    /// What holds now, for an action that calls the account of the turn.
    pub(super) circumstances: Circumstances,
}

/// What has been done of one action.
#[derive(Debug, Clone, Default)]
pub(super) struct ActionRecord {
    /// It succeeded, or its agent was told that it did not.
    pub(super) is_done: bool,
    /// `None` before its first step.
    pub(super) state: Option<ActionState>,
    pub(super) branch: Option<Branch>,
    /// JSON text of the rendered request, until the action is over.
    pub(super) request: Option<String>,
    /// Attempts whose end is known.
    pub(super) attempts: i32,
    /// The number of the latest attempt that has begun.
    pub(super) begun: i32,
    /// The number of the latest attempt whose end is recorded.
    pub(super) answered: i32,
    /// Attempts under the present key that may have taken effect.
    pub(super) unanswered: i32,
    /// Time until the next attempt.
    pub(super) retry_in: Option<Duration>,
    pub(super) approval: Option<ApprovalStatus>,
    /// HTTP status of the last answer.
    pub(super) status: Option<u16>,
    /// The body of its answer, if it is kept and in hand; sealed as it is loaded.
    pub(super) answer: Option<Vec<u8>>,
    /// How many bytes of it the database has, sealed.
    pub(super) answer_length: usize,
    /// What its agent was told instead of an answer.
    pub(super) refused: Option<String>,
    /// Why it failed, if the run has not failed with it yet.
    pub(super) failed: Option<String>,
    /// How long ago it began.
    pub(super) age: Duration,
}

impl ActionRecord {
    /// The record of an action that succeeded.
    pub(super) fn done(branch: Option<Branch>) -> Self {
        Self {
            is_done: true,
            branch,
            ..Self::default()
        }
    }
}

/// An account of the owner, its credential still sealed.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) id: AccountId,
    pub(super) name: String,
    pub(super) base_url: String,
    pub(super) header: String,
    pub(super) credential_sealed: Vec<u8>,
    /// It is not called: it waits for a token, or for its owner.
    pub(super) waits: bool,
}

/// Why a run, or one of its actions, can't be executed.
#[derive(Debug)]
pub(super) enum Hindrance {
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
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Retries {
    pub(super) attempts: Option<i32>,
    /// Doubled after each further attempt.
    pub(super) first_pause: Option<Duration>,
}

/// What holds at the moment of an action. It may change at once: an attempt begins only if what it
/// was decided by still holds then.
#[derive(Debug, Clone)]
pub(super) struct Circumstances {
    pub(super) owner_may_run: bool,
    /// Actions of the workspace must wait.
    pub(super) is_held: bool,
    pub(super) retries: Retries,
    /// `None` if the owner has not connected it.
    pub(super) account: Option<Account>,
    /// 0 if the default policy applies.
    pub(super) policy_version: i32,
    pub(super) since: Instant,
}

/// Which action of a run is written about.
#[derive(Debug, Clone)]
pub(super) struct ActionKey {
    pub(super) id: String,
    /// The name of its kind.
    pub(super) kind: &'static str,
    /// The agent that it is a part of.
    pub(super) part_of: Option<String>,
    pub(super) taint: Taint,
    /// The latest attempts that had begun and were answered when the action was looked at: what is
    /// decided then is written only if that is still so.
    pub(super) begun: i32,
    pub(super) answered: i32,
}

/// What the policy said of a request.
#[derive(Debug, Clone)]
pub(super) struct Decided {
    pub(super) ruling: Ruling,
    pub(super) policy_version: i32,
    /// JSON text.
    pub(super) request: String,
}

/// The beginning of an attempt, with everything that it was decided by.
#[derive(Debug, Clone)]
pub(super) struct Beginning {
    pub(super) turn: Turn,
    pub(super) action: ActionKey,
    pub(super) account: AccountId,
    pub(super) decided: Decided,
    /// A person was asked about it.
    pub(super) was_asked: bool,
}

impl Beginning {
    /// The number of the attempt.
    pub(super) fn attempt(&self) -> i32 {
        self.action.begun.saturating_add(1)
    }
}

/// What is written after something was done: of one action, and of the run.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) turn: Turn,
    pub(super) action: Option<(ActionKey, Change)>,
    pub(super) then: Then,
}

impl Step {
    /// Whether its worker goes on with the run.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self.then, Then::Continue | Then::BeginFailing(_))
    }

    /// Whether something has happened to its action otherwise than by an answer: then it counts
    /// only if no answer came meanwhile.
    pub(super) fn is_changed(&self) -> bool {
        match &self.action {
            None | Some((_, Change::Answered { .. } | Change::Retry { .. })) => false,
            Some((_, Change::Failed(failure))) => failure.answer.is_none(),
            Some(_) => true,
        }
    }

    /// A step that says nothing of any action.
    pub(super) fn of_run(turn: Turn, then: Then) -> Self {
        Self {
            turn,
            action: None,
            then,
        }
    }
}

/// What has happened to an action.
#[derive(Debug, Clone)]
pub(super) enum Change {
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
        sealed: Option<Vec<u8>>,
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

/// What came of an attempt.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// The number of the attempt: it counts if this is the latest one, and once.
    pub(super) attempt: i32,
    pub(super) end: AttemptEnd,
    pub(super) status: Option<u16>,
    /// Its body, if it is kept.
    pub(super) sealed: Option<Vec<u8>>,
}

/// Why an action failed or was denied.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// The answer that it failed with; `None` if it failed before anything was sent.
    pub(super) answer: Option<Answer>,
    /// The agent that called it is told, and the run goes on.
    pub(super) is_told: bool,
}

/// What is known at the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    /// Nothing: it may have been done.
    Unknown,
    /// It was not done; earlier attempts under the same key may have been.
    NotDone,
    /// A definite answer; by the idempotency key it settles earlier attempts, too.
    Answered,
}

impl AttemptEnd {
    /// How many of these attempts, this one the last of them, may still have taken effect.
    pub(super) fn left_unanswered(self, attempts: i32) -> i32 {
        attempts.saturating_sub(self.settled()).max(0)
    }

    /// Of how many attempts the outcome is known now.
    pub(super) fn settled(self) -> i32 {
        match self {
            Self::Unknown => 0,
            Self::NotDone => 1,
            Self::Answered => i32::MAX,
        }
    }
}

/// What becomes of a run after a step.
#[derive(Debug, Clone)]
pub(super) enum Then {
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
pub(super) enum End {
    Succeeded,
    Failed(String),
    Denied(String),
}

impl Then {
    /// Any worker may take the run at once.
    pub(super) fn let_go() -> Self {
        Self::Release(Duration::ZERO, None)
    }
}

/// What a stage comes to: what is written of its action, if something is, and what becomes of the
/// run.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The run goes on behind this record of the action, and ends if that was the last one.
    GoOn(ActionKey, Change, ActionRecord),
    /// The run fails for this reason: what follows a failure comes next, once. `record` is of the
    /// action then.
    Fail {
        change: Option<(ActionKey, Change)>,
        why: String,
        record: (String, ActionRecord),
    },
    /// This worker lets go of the run, or ends it.
    Leave(Option<(ActionKey, Change)>, Then),
}

impl Outcome {
    /// Any worker may take the run at once.
    pub(super) fn let_go() -> Self {
        Self::Leave(None, Then::let_go())
    }

    /// An action has failed, with this answer if there was one, and the run with it.
    pub(super) fn failed(
        key: ActionKey,
        reason: String,
        answer: Option<(Answer, Vec<u8>)>,
    ) -> Self {
        let (answer, body) = answer.unzip();
        let record = ActionRecord {
            status: answer.as_ref().and_then(|answer| answer.status),
            answer: body,
            ..ActionRecord::default()
        };
        let (id, why) = (key.id.clone(), format!("{}: {reason}", key.id));
        let failure = Failure {
            reason,
            answer,
            is_told: false,
        };
        Self::Fail {
            change: Some((key, Change::Failed(failure))),
            why,
            record: (id, record),
        }
    }
}

/// What came of writing a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// All of it is recorded.
    Recorded,
    /// The same, but the run is cancelled now, because that was ordered.
    Cancelled,
    /// Another turn decides about the run. An answer was recorded if it still counted.
    NotOurs,
}
