//! What is written about a run. It says what has happened, as an enum: which columns that changes
//! follows from the variant, in `store/`.

use std::{sync::Arc, time::Duration};

use letterbox_common::{ids::AccountId, states::ActionState};
use letterbox_workflow::{Ruling, Taint, actions::Branch};

use super::record::{ActionRecord, Turn};

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
    /// How long the exchange takes at most: the lease outlasts it.
    pub timeout: Duration,
    /// A person was asked about it.
    pub was_asked: bool,
    /// What has happened before, and is not written yet.
    pub before: Option<(ActionKey, Change)>,
}

impl Beginning {
    /// The number of the attempt.
    pub fn attempt(&self) -> i32 {
        self.action.begun.saturating_add(1)
    }
}

/// What is written after something was done: of one action, and of the run.
#[derive(Debug, Clone)]
pub struct Transition {
    pub turn: Turn,
    /// What has happened before, and is not written yet.
    pub before: Option<(ActionKey, Change)>,
    pub action: Option<(ActionKey, Change)>,
    /// What the action was answered, if that is kept.
    pub sealed: Option<Vec<u8>>,
    pub then: Then,
}

impl Transition {
    /// What becomes of a run, and at most what has happened to an action.
    pub fn of_run(turn: Turn, action: Option<(ActionKey, Change)>, then: Then) -> Arc<Self> {
        Arc::new(Self {
            turn,
            before: None,
            action,
            sealed: None,
            then,
        })
    }

    /// Whether its worker goes on with the run.
    pub fn goes_on(&self) -> bool {
        matches!(self.then, Then::Continue | Then::BeginFailing(_))
    }

    /// Whether something has happened to its action otherwise than by an answer: then it counts
    /// only if no answer came meanwhile.
    pub fn is_changed(&self) -> bool {
        match &self.action {
            None => false,
            Some((_, Change::Answered { .. } | Change::Retry { .. })) => false,
            Some((_, Change::Withdrawn(_) | Change::WithdrawnUnseen(_))) => false,
            Some((_, Change::Failed(failure))) => failure.answer.is_none(),
            Some(_) => true,
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
    /// Nothing was sent in the attempt of this number, which does not count as one.
    Withdrawn(i32),
    /// The same of one that may not have begun, because its commit was not seen.
    WithdrawnUnseen(i32),
    Failed(Failure),
    /// The policy or a person denied it.
    Denied(Failure, Decided),
}

impl Change {
    /// Whether it may be written with what comes next. A turn that never knew of it decides the
    /// same.
    pub fn may_wait(&self) -> bool {
        matches!(self, Self::Opened | Self::Chose(_) | Self::Waited)
    }

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
    /// JSON text of its type and the beginning of its body, if it was a failure.
    pub failed_with: Option<String>,
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

/// What becomes of a run.
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

/// What came of writing a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All of it is recorded.
    Recorded,
    /// The same, but the run is cancelled now, because that was ordered.
    Cancelled,
    /// Another turn decides about the run. An answer was recorded if it still counted.
    NotOurs,
}
