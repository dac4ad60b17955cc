//! What statements are told about runs and their actions, as rows of the types `run_change` and
//! `action_change`: what a row says follows from what has happened.

use std::time::Duration;

use letterbox_common::{
    ids::{AccountId, ApprovalId, RunId, WorkspaceId},
    states::{ActionState, RunState},
};
use letterbox_database::replace_nul;
use letterbox_workflow::{Decision, Steering, Untrusted, actions::Branch};
use postgres_types::ToSql;

use crate::executor::{
    record::Turn,
    transition::{
        ActionKey, Answer, AttemptEnd, Beginning, Change, Decided, End, Failure, Then, Transition,
    },
};

/// Maximum characters of a reason.
const MAX_REASON: usize = 1_000;

/// What becomes of a run. Each statement reads some of it.
#[derive(Debug, Clone, ToSql)]
#[postgres(name = "run_change")]
pub(super) struct RunRow<'s> {
    workspace_id: WorkspaceId,
    run_id: RunId,
    /// `None`: whoever has the run.
    turn: Option<i64>,
    action_id: Option<&'s str>,
    approval_id: Option<ApprovalId>,
    account_id: Option<AccountId>,
    /// Until the run, or the question, is due.
    seconds: Option<f64>,
    state: Option<RunState>,
    reason: Option<String>,
}

impl<'s> RunRow<'s> {
    /// A run that calls an account next.
    pub(super) fn of_run(
        (workspace_id, run_id): (WorkspaceId, RunId),
        account_id: Option<AccountId>,
    ) -> Self {
        Self {
            workspace_id,
            run_id,
            turn: None,
            action_id: None,
            approval_id: None,
            account_id,
            seconds: None,
            state: None,
            reason: None,
        }
    }

    pub(super) fn of_turn(turn: Turn) -> Self {
        Self {
            turn: Some(turn.token),
            ..Self::of_run(turn.key(), None)
        }
    }

    pub(super) fn of_action(turn: Turn, key: &'s ActionKey) -> Self {
        Self {
            action_id: Some(&key.id),
            ..Self::of_turn(turn)
        }
    }

    /// A run whose worker goes on with it.
    pub(super) fn kept(transition: &'s Transition) -> Option<Self> {
        transition.goes_on().then(|| Self::of_turn(transition.turn))
    }

    /// An action that a person is asked about, and how long that person may take.
    pub(super) fn asked(transition: &'s Transition) -> Option<Self> {
        match (&transition.action, &transition.then) {
            (Some((key, Change::AwaitsApproval(_))), Then::AwaitApproval(limit)) => Some(Self {
                approval_id: Some(ApprovalId::generate()),
                seconds: Some(limit.as_secs_f64()),
                ..Self::of_action(transition.turn, key)
            }),
            _ => None,
        }
    }

    /// An action that failed or was denied, after which its run goes on.
    pub(super) fn closed(transition: &'s Transition) -> Option<Self> {
        match &transition.action {
            Some((key, Change::Denied(..) | Change::Failed(_))) if transition.goes_on() => {
                Some(Self::of_action(transition.turn, key))
            }
            _ => None,
        }
    }

    /// A run whose actions that follow a failure begin.
    pub(super) fn failing(transition: &'s Transition) -> Option<Self> {
        match &transition.then {
            Then::BeginFailing(reason) => Some(Self {
                reason: Some(reason_of(reason)),
                ..Self::of_turn(transition.turn)
            }),
            _ => None,
        }
    }

    /// A run that its worker lets go of.
    pub(super) fn released(transition: &'s Transition) -> Option<Self> {
        let (after, account_id) = match &transition.then {
            Then::Release(after, account) => (*after, *account),
            Then::AwaitApproval(limit) => (*limit, None),
            _ => return None,
        };
        Some(Self {
            account_id,
            ..Self::due_in(transition.turn, after)
        })
    }

    /// A run that is due after a time.
    pub(super) fn due_in(turn: Turn, after: Duration) -> Self {
        Self {
            seconds: Some(after.as_secs_f64()),
            ..Self::of_turn(turn)
        }
    }

    pub(super) fn ended(transition: &'s Transition) -> Option<Self> {
        let Then::End(end) = &transition.then else {
            return None;
        };
        let (state, reason) = match end {
            End::Succeeded => (RunState::Succeeded, None),
            End::Failed(reason) => (RunState::Failed, Some(reason)),
            End::Denied(reason) => (RunState::Denied, Some(reason)),
        };
        Some(Self {
            state: Some(state),
            reason: reason.map(|reason| reason_of(reason)),
            ..Self::of_turn(transition.turn)
        })
    }

    /// A run that is cancelled. Its row is locked, and may have been released: the turn does not
    /// matter any more.
    pub(super) fn cancelled(turn: Turn) -> Self {
        Self {
            turn: None,
            state: Some(RunState::Cancelled),
            ..Self::of_turn(turn)
        }
    }
}

/// What is written about an action. Each statement reads some of it.
#[derive(Debug, ToSql)]
#[postgres(name = "action_change")]
pub(super) struct ActionRow<'s> {
    workspace_id: WorkspaceId,
    run_id: RunId,
    turn: i64,
    action_id: &'s str,
    kind: &'s str,
    part_of: Option<&'s str>,
    untrusted: Vec<Untrusted>,
    steered_by: Vec<Steering>,
    begun: i32,
    answered: i32,
    /// The attempt that has ended, by its number, whether it counts as one, and of how many the
    /// outcome is known now.
    attempt: Option<i32>,
    /// It may not have begun in this turn: then another turn's may have its number.
    is_unseen: bool,
    counts: bool,
    settled: Option<i32>,
    state: Option<ActionState>,
    branch: Option<Branch>,
    error: Option<String>,
    is_told: bool,
    answer_sealed: Option<&'s [u8]>,
    failed_with: Option<&'s str>,
    response_status: Option<i32>,
    retry_in: Option<f64>,
    decision: Option<Decision>,
    decision_rule: Option<i32>,
    policy_version: Option<i32>,
    request: Option<&'s str>,
    account_id: Option<AccountId>,
    was_asked: bool,
    /// Seconds that the exchange takes at most.
    lasts: f64,
}

impl<'s> ActionRow<'s> {
    fn new(turn: Turn, key: &'s ActionKey) -> Self {
        Self {
            workspace_id: turn.workspace,
            run_id: turn.run,
            turn: turn.token,
            action_id: &key.id,
            kind: key.kind,
            part_of: key.part_of.as_deref(),
            untrusted: key.taint.kinds(),
            steered_by: key.taint.steered.kinds(),
            begun: key.begun,
            answered: key.answered,
            attempt: None,
            is_unseen: false,
            counts: false,
            settled: None,
            state: None,
            branch: None,
            error: None,
            is_told: false,
            answer_sealed: None,
            failed_with: None,
            response_status: None,
            retry_in: None,
            decision: None,
            decision_rule: None,
            policy_version: None,
            request: None,
            account_id: None,
            was_asked: false,
            lasts: 0.0,
        }
    }

    /// An attempt that begins.
    pub(super) fn begun(beginning: &'s Beginning) -> Self {
        let row = Self {
            account_id: Some(beginning.account),
            was_asked: beginning.was_asked,
            lasts: beginning.timeout.as_secs_f64(),
            ..Self::new(beginning.turn, &beginning.action)
        };
        row.decided(&beginning.decided)
    }

    /// What came of an attempt, if that is what a transition says.
    pub(super) fn answered(transition: &'s Transition) -> Option<Self> {
        Self::of(transition).filter(|row| row.attempt.is_some())
    }

    /// What has happened to an action otherwise, if that is what a transition says.
    pub(super) fn changed(transition: &'s Transition) -> Option<Self> {
        Self::of(transition).filter(|row| row.attempt.is_none())
    }

    pub(super) fn run(&self) -> (WorkspaceId, RunId) {
        (self.workspace_id, self.run_id)
    }

    fn of(transition: &'s Transition) -> Option<Self> {
        Some(Self {
            answer_sealed: transition.sealed.as_deref(),
            ..Self::happened(transition.turn, &transition.action)?
        })
    }

    /// What has happened to an action, if something has.
    pub(super) fn happened(turn: Turn, action: &'s Option<(ActionKey, Change)>) -> Option<Self> {
        let (key, change) = action.as_ref()?;
        let row = Self::new(turn, key);
        Some(match change {
            Change::Opened => row.state(ActionState::Running),
            Change::Chose(branch) => Self {
                branch: Some(*branch),
                ..row.state(ActionState::Succeeded)
            },
            Change::Waiting(time) => Self {
                retry_in: Some(time.as_secs_f64()),
                ..row.state(ActionState::Waiting)
            },
            Change::Waited => row.state(ActionState::Succeeded),
            Change::Concluded { status, .. } => Self {
                response_status: Some(i32::from(*status)),
                ..row.state(ActionState::Succeeded)
            },
            Change::AwaitsApproval(decided) => {
                row.state(ActionState::WaitingApproval).decided(decided)
            }
            Change::Answered { answer, branch } => Self {
                branch: *branch,
                ..row.state(ActionState::Succeeded).with(answer)
            },
            Change::Retry {
                answer,
                error,
                pause,
            } => Self {
                error: Some(reason_of(error)),
                retry_in: Some(pause.as_secs_f64()),
                ..row.state(ActionState::Retrying).with(answer)
            },
            Change::Withdrawn(attempt) | Change::WithdrawnUnseen(attempt) => Self {
                attempt: Some(*attempt),
                is_unseen: matches!(change, Change::WithdrawnUnseen(_)),
                settled: Some(AttemptEnd::NotDone.settled()),
                ..row.state(ActionState::Retrying)
            },
            Change::Failed(failure) => row.state(ActionState::Failed).because_of(failure),
            Change::Denied(failure, decided) => {
                let denied = row.state(ActionState::Denied).because_of(failure);
                denied.decided(decided)
            }
        })
    }

    fn state(self, state: ActionState) -> Self {
        Self {
            state: Some(state),
            ..self
        }
    }

    fn with(self, answer: &'s Answer) -> Self {
        Self {
            attempt: Some(answer.attempt),
            counts: true,
            settled: Some(answer.end.settled()),
            response_status: answer.status.map(i32::from),
            failed_with: answer.failed_with.as_deref(),
            ..self
        }
    }

    fn because_of(self, failure: &'s Failure) -> Self {
        let answered = match &failure.answer {
            Some(answer) => self.with(answer),
            None => self,
        };
        Self {
            error: Some(reason_of(&failure.reason)),
            is_told: failure.is_told,
            ..answered
        }
    }

    fn decided(self, decided: &'s Decided) -> Self {
        Self {
            decision: Some(decided.ruling.decision),
            decision_rule: decided.ruling.rule,
            policy_version: Some(decided.policy_version),
            request: Some(&decided.request),
            ..self
        }
    }
}

/// A reason as its column takes it: bounded, because other people's words may be in it.
fn reason_of(reason: &str) -> String {
    let beginning: String = reason.chars().take(MAX_REASON).collect();
    replace_nul(&beginning)
}
