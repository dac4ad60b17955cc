//! What is written about an action, as columns: which ones, follows from what has happened to it.

use std::time::Duration;

use letterbox_common::states::ActionState;
use letterbox_database::{BoundStatement, replace_nul};
use letterbox_workflow::actions::Branch;

use crate::executor::record::{
    ActionKey, Answer, AttemptEnd, Change, Decided, Failure, Step, Turn,
};

/// The columns of an action that a step writes.
pub(super) struct ActionRow<'s> {
    pub(super) turn: Turn,
    pub(super) key: &'s ActionKey,
    /// The attempt that has ended, by its number.
    pub(super) attempt: Option<(i32, AttemptEnd)>,
    state: ActionState,
    branch: Option<Branch>,
    error: Option<&'s str>,
    is_told: bool,
    sealed: Option<&'s [u8]>,
    status: Option<u16>,
    retry_in: Option<Duration>,
    decided: Option<&'s Decided>,
}

impl<'s> ActionRow<'s> {
    /// What a step writes about an action; `None` if it is about none.
    pub(super) fn of(step: &'s Step) -> Option<Self> {
        let (key, change) = step.action.as_ref()?;
        let in_state = |state| Self {
            turn: step.turn,
            key,
            attempt: None,
            state,
            branch: None,
            error: None,
            is_told: false,
            sealed: None,
            status: None,
            retry_in: None,
            decided: None,
        };
        Some(match change {
            Change::Opened => in_state(ActionState::Running),
            Change::Chose(branch) => Self {
                branch: Some(*branch),
                ..in_state(ActionState::Succeeded)
            },
            Change::Waiting(time) => Self {
                retry_in: Some(*time),
                ..in_state(ActionState::Waiting)
            },
            Change::Waited => in_state(ActionState::Succeeded),
            Change::Concluded { status, sealed } => Self {
                status: Some(*status),
                sealed: sealed.as_deref(),
                ..in_state(ActionState::Succeeded)
            },
            Change::AwaitsApproval(decided) => Self {
                decided: Some(decided),
                ..in_state(ActionState::WaitingApproval)
            },
            Change::Answered { answer, branch } => Self {
                branch: *branch,
                ..in_state(ActionState::Succeeded).with(answer)
            },
            Change::Retry {
                answer,
                error,
                pause,
            } => Self {
                error: Some(error),
                retry_in: Some(*pause),
                ..in_state(ActionState::Retrying).with(answer)
            },
            Change::Failed(failure) => in_state(ActionState::Failed).because_of(failure),
            Change::Denied(failure, decided) => Self {
                decided: Some(decided),
                ..in_state(ActionState::Denied).because_of(failure)
            },
        })
    }

    fn with(self, answer: &'s Answer) -> Self {
        Self {
            attempt: Some((answer.attempt, answer.end)),
            status: answer.status,
            sealed: answer.sealed.as_deref(),
            ..self
        }
    }

    fn because_of(self, failure: &'s Failure) -> Self {
        let answered = match &failure.answer {
            Some(answer) => self.with(answer),
            None => self,
        };
        Self {
            error: Some(&failure.reason),
            is_told: failure.is_told,
            ..answered
        }
    }

    /// Adds the columns that say what came of actions, in the order of both statements.
    pub(super) fn outcomes<'p>(
        statement: BoundStatement<'p>,
        rows: &[ActionRow<'p>],
    ) -> BoundStatement<'p> {
        statement
            .column(/* state */ rows.iter().map(|row| row.state))
            .column(/* branch */ rows.iter().map(|row| row.branch))
            .column(
                /* error */ rows.iter().map(|row| row.error.map(replace_nul)),
            )
            .column(/* is_told */ rows.iter().map(|row| row.is_told))
            .column(/* answer_sealed */ rows.iter().map(|row| row.sealed))
            .column(
                /* response_status */ rows.iter().map(|row| row.status.map(i32::from)),
            )
            .column(
                /* retry_in_seconds */
                rows.iter()
                    .map(|row| row.retry_in.map(|time| time.as_secs_f64())),
            )
    }

    /// Adds the columns that say what the policy decided.
    pub(super) fn rulings<'p>(
        statement: BoundStatement<'p>,
        rows: &[ActionRow<'p>],
    ) -> BoundStatement<'p> {
        let decided = || rows.iter().map(|row| row.decided);
        let ruling = || decided().map(|one| one.map(|decided| decided.ruling));
        statement
            .column(
                /* decision */ ruling().map(|one| one.map(|ruling| ruling.decision)),
            )
            .column(
                /* decision_rule */ ruling().map(|one| one.and_then(|ruling| ruling.rule)),
            )
            .column(
                /* policy_version */ decided().map(|one| one.map(|one| one.policy_version)),
            )
            .column(
                /* request */ decided().map(|one| one.map(|one| one.request.as_str())),
            )
    }
}
