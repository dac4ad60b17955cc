//! What a step records: what becomes of the run, and what is known of one action.

use std::time::Duration;

use letterbox_common::{
    ids::AccountId,
    states::{ActionState, RunState, WakeState},
};
use letterbox_database::replace_nul;
use letterbox_workflow::{
    Ruling, Taint,
    actions::{Action, Branch},
};
use uuid::Uuid;

/// What becomes of a run by a step.
#[derive(Debug, Clone)]
pub(in crate::executor) enum Transition {
    /// Continues, under a lease of this length.
    Continue(Duration),
    /// Continues under a lease of this length with what follows a failure. The reason is of that.
    BeginFailing(Duration, String),
    /// Continues after this time, with any worker.
    Pause(Duration),
    /// Continues when it is its turn to call this account.
    AwaitAccount(AccountId),
    /// Waits for a person, at most for this time.
    AwaitApproval(Duration),
    Succeed {
        /// Answers are kept that nothing needs any more.
        has_answers: bool,
    },
    /// Failed, for this reason.
    Fail(String),
    /// Denied, for this reason.
    Deny(String),
}

impl Transition {
    pub(in crate::executor) fn run_state(&self) -> RunState {
        match self {
            Self::Continue(_) | Self::BeginFailing(..) | Self::Pause(_) | Self::AwaitAccount(_) => {
                RunState::Running
            }
            Self::AwaitApproval(_) => RunState::WaitingApproval,
            Self::Succeed { .. } => RunState::Succeeded,
            Self::Fail(_) => RunState::Failed,
            Self::Deny(_) => RunState::Denied,
        }
    }

    /// Whether the run is over.
    pub(in crate::executor) fn is_end(&self) -> bool {
        matches!(self, Self::Succeed { .. } | Self::Fail(_) | Self::Deny(_))
    }

    pub(super) fn failure(&self) -> Option<String> {
        match self {
            Self::Fail(reason) | Self::Deny(reason) => Some(replace_nul(reason)),
            Self::Continue(_)
            | Self::BeginFailing(..)
            | Self::Pause(_)
            | Self::AwaitAccount(_)
            | Self::AwaitApproval(_)
            | Self::Succeed { .. } => None,
        }
    }

    pub(super) fn lease_seconds(&self) -> Option<f64> {
        match self {
            Self::Continue(lease) | Self::BeginFailing(lease, _) => Some(lease.as_secs_f64()),
            _ => None,
        }
    }

    /// When the run is looked at again; none for a run that is over.
    pub(super) fn wake_seconds(&self) -> Option<f64> {
        match self {
            // Should the holder die, the end of its lease wakes the next one.
            Self::Continue(time)
            | Self::BeginFailing(time, _)
            | Self::Pause(time)
            | Self::AwaitApproval(time) => Some(time.as_secs_f64()),
            Self::AwaitAccount(_) => Some(0.0),
            Self::Succeed { .. } | Self::Fail(_) | Self::Deny(_) => None,
        }
    }

    /// Who has the wake from now on.
    pub(super) fn wake_state(&self) -> WakeState {
        match self {
            Self::Continue(_) | Self::BeginFailing(..) => WakeState::HandedOver,
            _ => WakeState::Scheduled,
        }
    }

    /// Why it fails, where what follows a failure begins.
    pub(super) fn failing(&self) -> Option<String> {
        match self {
            Self::BeginFailing(_, reason) => Some(replace_nul(reason)),
            _ => None,
        }
    }

    pub(super) fn account(&self) -> Option<AccountId> {
        match self {
            Self::AwaitAccount(account) => Some(*account),
            _ => None,
        }
    }
}

/// What the policy said of a request.
#[derive(Debug, Clone, Copy)]
pub(in crate::executor) struct Decided<'a> {
    pub(in crate::executor) ruling: Ruling,
    pub(in crate::executor) policy_version: i32,
    /// JSON text.
    pub(in crate::executor) request: &'a str,
}

/// What is recorded of an action.
#[derive(Debug, Clone)]
pub(in crate::executor) struct ActionUpdate<'a> {
    pub(in crate::executor) action: &'a Action,
    /// The agent that it is a part of.
    pub(in crate::executor) part_of: Option<&'a str>,
    pub(in crate::executor) taint: Taint,
    pub(in crate::executor) state: ActionState,
    pub(in crate::executor) decided: Option<Decided<'a>>,
    /// A request is about to be sent by this account.
    pub(in crate::executor) begins: Option<AccountId>,
    /// A person was asked about it.
    pub(in crate::executor) was_asked: bool,
    /// The attempt is over.
    pub(in crate::executor) ended: Option<AttemptEnd>,
    pub(in crate::executor) branch: Option<Branch>,
    pub(in crate::executor) status: Option<u16>,
    pub(in crate::executor) error: Option<String>,
    /// What it was answered, sealed.
    pub(in crate::executor) answer: Option<Vec<u8>>,
    /// It failed or was denied, and its agent is told.
    pub(in crate::executor) is_told: bool,
}

/// What is known at the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::executor) enum AttemptEnd {
    /// Nothing: it may have been done.
    Unknown,
    /// It was not done; earlier ones under the same key may have been.
    NotDone,
    /// It was answered, and with it the earlier ones: whoever keeps keys would have said so.
    Answered,
}

impl AttemptEnd {
    /// Of how many of these attempts, this one the last of them, it is still not known what came of
    /// them.
    pub(in crate::executor) fn left_unanswered(self, attempts: i32) -> i32 {
        attempts.saturating_sub(self.settled()).max(0)
    }

    /// Of how many attempts it is known what came of them.
    pub(super) fn settled(self) -> i32 {
        match self {
            Self::Unknown => 0,
            Self::NotDone => 1,
            Self::Answered => i32::MAX,
        }
    }
}

/// A step that was written.
#[derive(Debug, Clone, Copy)]
pub(in crate::executor) struct Written {
    /// The run is cancelled now: somebody had ordered it.
    pub(in crate::executor) is_cancelled: bool,
    /// The key of the action; none for a step without one.
    pub(in crate::executor) idempotency_key: Option<Uuid>,
}
