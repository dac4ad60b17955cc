//! Writing a step: the state of the run, of one action, the question to a person, and the next
//! wake, in one transaction. Only the holder of the last lease may write.
//!
//! Rows are locked in the order run, action, approval, wake; whoever answers an approval locks the
//! last two in the same order.

use std::time::Duration;

use letterbox_common::{
    ids::{AccountId, ApprovalId},
    states::{ActionState, RunState, WakeState},
};
use letterbox_database::{
    BoundStatement, Database, DatabaseError, Transaction, Work, replace_nul, statements,
};
use letterbox_workflow::{
    Ruling, Taint,
    actions::{Action, Branch},
};
use uuid::Uuid;

use super::Lease;

statements! {
    /// Sets the state of a run, for the holder of its lease. $7: something is recorded that counts;
    /// else an attempt begins, and it must not where the run shall be cancelled, or is held.
    RENEW_RUN = renew_run "
UPDATE runs SET state = $4, failure = $5, failing = coalesce($8, failing),
    idle_turns = CASE WHEN $7 THEN 0 ELSE idle_turns END,
    lease_until = clock_timestamp() + $6::float8 * interval '1 second',
    finished_at = CASE WHEN $4 IN ('succeeded', 'failed', 'denied') THEN clock_timestamp() END
WHERE workspace_id = $1 AND run_id = $2 AND turn = $3
  AND state IN ('running', 'waiting_approval') AND ($7 OR cancel_reason IS NULL AND NOT is_held($1))
RETURNING cancel_reason IS NOT NULL AS is_cancelled";

    /// Sets the state of an action. What is said of an earlier state is cleared; its key stays.
    UPSERT_ACTION = upsert_action "
INSERT INTO run_actions (workspace_id, run_id, action_id, position, type, state, untrusted,
                         steered_by, idempotency_key, part_of, started_at, finished_at)
SELECT $1, $2, $3,
       (SELECT count(*) + 1 FROM run_actions WHERE workspace_id = $1 AND run_id = $2),
       $4, $5, $6, $7, $8, $9, statement_timestamp(),
       CASE WHEN $5 IN ('succeeded', 'failed', 'denied') THEN statement_timestamp() END
ON CONFLICT (workspace_id, run_id, action_id) DO UPDATE SET
    state = EXCLUDED.state, finished_at = EXCLUDED.finished_at,
    outcome = NULL, error = NULL, retry_at = NULL, answer_sealed = NULL
RETURNING idempotency_key";

    /// Adds what the policy said, and the request that it was asked about. The first request stays.
    /// $8 is 1 where an attempt begins: until it is answered, it may have been done.
    RECORD_RULING = record_ruling "
UPDATE run_actions SET decision = $4, decision_rule = $5, policy_version = $6,
    request = coalesce(request, $7), unanswered = unanswered + $8
WHERE workspace_id = $1 AND run_id = $2 AND action_id = $3";

    /// Adds what came of an action, and counts the attempt: $8 is of how many it is known now what
    /// came of them, null where none has ended.
    RECORD_RESULT = record_result "
UPDATE run_actions SET outcome = $4, error = $5, response_status = coalesce($6, response_status),
    attempts = attempts + CASE WHEN $8::int IS NULL THEN 0 ELSE 1 END,
    retry_at = clock_timestamp() + $7::float8 * interval '1 second',
    unanswered = greatest(unanswered - coalesce($8, 0), 0), answer_sealed = $9, is_told = $10
WHERE workspace_id = $1 AND run_id = $2 AND action_id = $3";

    /// Asks for an approval, once for each action, or again where the question was withdrawn.
    ASK_APPROVAL = ask_approval "
INSERT INTO approvals (workspace_id, approval_id, run_id, action_id, expires_at)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5::float8 * interval '1 second')
ON CONFLICT (workspace_id, run_id, action_id) DO UPDATE
SET state = 'pending', decided_at = NULL, expires_at = EXCLUDED.expires_at
WHERE approvals.state = 'withdrawn'";

    /// Closes the question of a run that is over.
    CLOSE_APPROVALS = close_approvals "
UPDATE approvals SET state = 'expired', decided_at = clock_timestamp()
WHERE workspace_id = $1 AND run_id = $2 AND state = 'pending'";

    /// Withdraws the question of an action that goes ahead, and says if it was denied meanwhile.
    GO_AHEAD = go_ahead "
UPDATE approvals SET state = CASE state WHEN 'pending' THEN 'withdrawn' ELSE state END,
    decided_at = coalesce(decided_at, clock_timestamp())
WHERE workspace_id = $1 AND run_id = $2 AND action_id = $3 AND state IN ('pending', 'denied')
RETURNING state = 'denied' AS is_denied";

    /// Wakes the run after this time. Where no account is given, the run calls the same one.
    SET_WAKE = set_wake "
INSERT INTO run_wakes AS w (workspace_id, run_id, due_at, state, account_id)
VALUES ($1, $2, clock_timestamp() + $3::float8 * interval '1 second', $4,
        coalesce($5::uuid, '00000000-0000-0000-0000-000000000000'))
ON CONFLICT (workspace_id, run_id) DO UPDATE SET due_at = EXCLUDED.due_at, state = EXCLUDED.state,
    handovers = 0, account_id = coalesce($5::uuid, w.account_id)";

    /// Lets a run that is over sleep.
    CLEAR_WAKE = clear_wake "
DELETE FROM run_wakes WHERE workspace_id = $1 AND run_id = $2";

    /// Wakes a run at once whose question was answered while it was being asked. A statement of its
    /// own, because only a new one sees the answer.
    WAKE_IF_ANSWERED = wake_if_answered "
UPDATE run_wakes w SET due_at = clock_timestamp(), state = 'scheduled'
FROM approvals p
WHERE w.workspace_id = $1 AND w.run_id = $2
  AND p.workspace_id = w.workspace_id AND p.run_id = w.run_id
  AND p.action_id = $3 AND p.state <> 'pending'";
}

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
    Succeed,
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
            Self::Succeed => RunState::Succeeded,
            Self::Fail(_) => RunState::Failed,
            Self::Deny(_) => RunState::Denied,
        }
    }

    /// Whether the run is over.
    pub(in crate::executor) fn is_end(&self) -> bool {
        matches!(self, Self::Succeed | Self::Fail(_) | Self::Deny(_))
    }

    fn failure(&self) -> Option<String> {
        match self {
            Self::Fail(reason) | Self::Deny(reason) => Some(replace_nul(reason)),
            Self::Continue(_)
            | Self::BeginFailing(..)
            | Self::Pause(_)
            | Self::AwaitAccount(_)
            | Self::AwaitApproval(_)
            | Self::Succeed => None,
        }
    }

    fn lease_seconds(&self) -> Option<f64> {
        match self {
            Self::Continue(lease) | Self::BeginFailing(lease, _) => Some(lease.as_secs_f64()),
            _ => None,
        }
    }

    /// When the run is looked at again; none for a run that is over.
    fn wake_seconds(&self) -> Option<f64> {
        match self {
            // Should the holder die, the end of its lease wakes the next one.
            Self::Continue(time)
            | Self::BeginFailing(time, _)
            | Self::Pause(time)
            | Self::AwaitApproval(time) => Some(time.as_secs_f64()),
            Self::AwaitAccount(_) => Some(0.0),
            Self::Succeed | Self::Fail(_) | Self::Deny(_) => None,
        }
    }

    /// Who has the wake from now on.
    fn wake_state(&self) -> WakeState {
        match self {
            Self::Continue(_) | Self::BeginFailing(..) => WakeState::HandedOver,
            _ => WakeState::Scheduled,
        }
    }

    /// Why it fails, where what follows a failure begins.
    fn failing(&self) -> Option<String> {
        match self {
            Self::BeginFailing(_, reason) => Some(replace_nul(reason)),
            _ => None,
        }
    }

    fn account(&self) -> Option<AccountId> {
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
    /// A request is about to be sent.
    pub(in crate::executor) begins_attempt: bool,
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
    /// Of how many attempts it is known what came of them.
    fn settled(self) -> i32 {
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
    /// Somebody has ordered to cancel the run.
    pub(in crate::executor) is_cancelled: bool,
    /// The key of the action; none for a step without one.
    pub(in crate::executor) idempotency_key: Option<Uuid>,
}

/// Writes a step of the holder of the lease. None when the lease is lost: somebody else has the
/// run, or it is over.
pub(in crate::executor) async fn write_step(
    database: &Database,
    lease: &Lease,
    update: Option<&ActionUpdate<'_>>,
    transition: &Transition,
) -> Result<Option<Written>, DatabaseError> {
    database
        .transaction(
            "write_step",
            &WriteStep {
                lease,
                update,
                transition,
            },
        )
        .await
}

struct WriteStep<'a> {
    lease: &'a Lease,
    update: Option<&'a ActionUpdate<'a>>,
    transition: &'a Transition,
}

impl Work for WriteStep<'_> {
    type Output = Written;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<Written>, DatabaseError> {
        let Self {
            lease,
            update,
            transition,
        } = *self;
        let begins = update.filter(|update| update.begins_attempt);
        let mut statements = vec![run_statement(lease, transition, begins.is_none())];
        if let Some(update) = update {
            statements.extend(action_statements(lease, update, transition));
        }
        let go_ahead = begins.map(|update| {
            statements.push(go_ahead_statement(lease, update));
            statements.len() - 1
        });
        statements.extend(approval_statement(lease, update, transition));
        statements.extend(wake_statements(lease, update, transition));
        let results = transaction.pipeline(&statements).await?;

        let question = go_ahead.and_then(|index| results.get(index)?.first());
        // Denied at the last moment: nothing of this is kept, and the next holder is told.
        if let Some(question) = question
            && question.try_get("is_denied")?
        {
            return Ok(None);
        }

        let mut first_rows = results.iter().map(|rows| rows.first());
        // Not the holder: everything else is rolled back.
        let Some(Some(run)) = first_rows.next() else {
            return Ok(None);
        };
        let is_cancelled = run.try_get("is_cancelled")?;
        let action = first_rows.next().flatten().filter(|_| update.is_some());
        let idempotency_key = action
            .map(|row| row.try_get("idempotency_key"))
            .transpose()?;
        Ok(Some(Written {
            is_cancelled,
            idempotency_key,
        }))
    }
}

fn run_statement<'p>(
    lease: &Lease,
    transition: &Transition,
    is_progress: bool,
) -> BoundStatement<'p> {
    BoundStatement::new(&RENEW_RUN)
        .bind(/* $1 workspace_id */ lease.workspace)
        .bind(/* $2 run_id */ lease.run)
        .bind(/* $3 fencing_token */ lease.fencing_token)
        .bind(/* $4 state */ transition.run_state())
        .bind(/* $5 failure */ transition.failure())
        .bind(/* $6 lease_seconds */ transition.lease_seconds())
        .bind(/* $7 is_progress */ is_progress)
        .bind(/* $8 failing */ transition.failing())
}

fn go_ahead_statement<'p>(lease: &Lease, update: &'p ActionUpdate<'_>) -> BoundStatement<'p> {
    BoundStatement::new(&GO_AHEAD)
        .bind(/* $1 workspace_id */ lease.workspace)
        .bind(/* $2 run_id */ lease.run)
        .bind(/* $3 action_id */ update.action.id.as_str())
}

/// The action's state, and what the policy said or what came of it, where there is something to
/// say.
fn action_statements<'p>(
    lease: &Lease,
    update: &'p ActionUpdate<'_>,
    transition: &Transition,
) -> Vec<BoundStatement<'p>> {
    let id = update.action.id.as_str();
    let upsert = BoundStatement::new(&UPSERT_ACTION)
        .bind(/* $1 workspace_id */ lease.workspace)
        .bind(/* $2 run_id */ lease.run)
        .bind(/* $3 action_id */ id)
        .bind(/* $4 type */ update.action.kind.name)
        .bind(/* $5 state */ update.state)
        .bind(/* $6 untrusted */ update.taint.kinds())
        .bind(/* $7 steered_by */ update.taint.steered.kinds())
        .bind(/* $8 idempotency_key */ Uuid::new_v4())
        .bind(/* $9 part_of */ update.part_of);
    let ruling = update.decided.map(
        |Decided {
             ruling,
             policy_version,
             request,
         }| {
            BoundStatement::new(&RECORD_RULING)
                .bind(/* $1 workspace_id */ lease.workspace)
                .bind(/* $2 run_id */ lease.run)
                .bind(/* $3 action_id */ id)
                .bind(/* $4 decision */ ruling.decision)
                .bind(/* $5 decision_rule */ ruling.rule)
                .bind(/* $6 policy_version */ policy_version)
                .bind(/* $7 request */ request)
                .bind(/* $8 begun */ i32::from(update.begins_attempt))
        },
    );
    let retries = matches!(update.state, ActionState::Retrying | ActionState::Waiting);
    let retry_seconds = transition.wake_seconds().filter(|_| retries);
    let says_something = retries
        || update.ended.is_some()
        || update.branch.is_some()
        || update.error.is_some()
        || update.answer.is_some()
        || update.status.is_some();
    let result = says_something.then(|| {
        BoundStatement::new(&RECORD_RESULT)
            .bind(/* $1 workspace_id */ lease.workspace)
            .bind(/* $2 run_id */ lease.run)
            .bind(/* $3 action_id */ id)
            .bind(/* $4 branch */ update.branch)
            .bind(/* $5 error */ update.error.as_deref().map(replace_nul))
            .bind(/* $6 response_status */ update.status.map(i32::from))
            .bind(/* $7 retry_in_seconds */ retry_seconds)
            .bind(/* $8 settled */ update.ended.map(AttemptEnd::settled))
            .bind(/* $9 answer_sealed */ update.answer.as_deref())
            .bind(/* $10 is_told */ update.is_told)
    });
    [Some(upsert), ruling, result]
        .into_iter()
        .flatten()
        .collect()
}

/// Asks, or closes what was asked when the run is over.
fn approval_statement<'p>(
    lease: &Lease,
    update: Option<&'p ActionUpdate<'_>>,
    transition: &Transition,
) -> Option<BoundStatement<'p>> {
    let action_id = update.map(|update| update.action.id.as_str());
    match transition {
        Transition::AwaitApproval(time_left) => {
            let ask = BoundStatement::new(&ASK_APPROVAL)
                .bind(/* $1 workspace_id */ lease.workspace)
                .bind(/* $2 approval_id */ ApprovalId::generate())
                .bind(/* $3 run_id */ lease.run)
                .bind(/* $4 action_id */ action_id)
                .bind(/* $5 expires_in_seconds */ time_left.as_secs_f64());
            Some(ask)
        }
        Transition::Continue(_)
        | Transition::BeginFailing(..)
        | Transition::Pause(_)
        | Transition::AwaitAccount(_) => None,
        Transition::Succeed | Transition::Fail(_) | Transition::Deny(_) => {
            let close = BoundStatement::new(&CLOSE_APPROVALS)
                .bind(/* $1 workspace_id */ lease.workspace)
                .bind(/* $2 run_id */ lease.run);
            Some(close)
        }
    }
}

fn wake_statements<'p>(
    lease: &Lease,
    update: Option<&'p ActionUpdate<'_>>,
    transition: &Transition,
) -> Vec<BoundStatement<'p>> {
    let of_run = |statement| {
        BoundStatement::new(statement)
            .bind(/* $1 workspace_id */ lease.workspace)
            .bind(/* $2 run_id */ lease.run)
    };
    let Some(seconds) = transition.wake_seconds() else {
        return vec![of_run(&CLEAR_WAKE)];
    };
    let set_wake = of_run(&SET_WAKE)
        .bind(/* $3 due_in_seconds */ seconds)
        .bind(/* $4 state */ transition.wake_state())
        .bind(/* $5 account_id */ transition.account());
    let mut statements = vec![set_wake];
    if let (Transition::AwaitApproval(_), Some(update)) = (transition, update) {
        let action_id = update.action.id.as_str();
        statements.push(of_run(&WAKE_IF_ANSWERED).bind(/* $3 action_id */ action_id));
    }
    statements
}
