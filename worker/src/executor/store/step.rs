//! Writing a step: the state of the run, of one action, the question to a person, and the next
//! wake, in one transaction. Only the holder of the last lease may write.
//!
//! Rows are locked in the order run, action, approval, wake; whoever answers an approval locks the
//! last two in the same order. Cancelling a run locks its approval again behind its wake: should
//! that meet an answer, the database ends one of the two, and it is repeated.

use letterbox_common::{
    ids::{AccountId, ApprovalId},
    states::ActionState,
};
use letterbox_database::{
    BoundStatement, Database, DatabaseError, Statement, Transaction, Work, replace_nul, statements,
};
use letterbox_workflow::Decision;
use uuid::Uuid;

use super::{
    Lease,
    change::{ActionUpdate, AttemptEnd, Decided, Transition, Written},
};

statements! {
    /// Sets the state of a run, for the holder of its lease.
    RENEW_RUN = renew_run "
UPDATE runs SET state = $4, failure = $5, failing = coalesce($7, failing), idle_turns = 0,
    lease_until = clock_timestamp() + $6::float8 * interval '1 second',
    finished_at = CASE WHEN $4 IN ('succeeded', 'failed', 'denied') THEN clock_timestamp() END
WHERE workspace_id = $1 AND run_id = $2 AND turn = $3 AND state IN ('running', 'waiting_approval')
RETURNING cancel_reason IS NOT NULL AS is_cancelled";

    /// Renews the lease of a run whose next attempt begins, if everything that it was decided by
    /// still holds: nobody has cancelled or held it, its user may run and has the account, the
    /// policy is the same, and whoever has approved it, where $7 wants that, still may.
    BEGIN_ATTEMPT = begin_attempt "
UPDATE runs r
SET state = 'running', lease_until = clock_timestamp() + $4::float8 * interval '1 second'
WHERE r.workspace_id = $1 AND r.run_id = $2 AND r.turn = $3
  AND r.state IN ('running', 'waiting_approval') AND r.cancel_reason IS NULL
  AND NOT EXISTS (SELECT FROM held_workspaces h WHERE h.workspace_id = $1)
  AND EXISTS (SELECT FROM members m
              WHERE m.workspace_id = $1 AND m.user_id = r.run_as AND m.may_run)
  AND EXISTS (SELECT FROM connected_accounts a
              WHERE a.workspace_id = $1 AND a.account_id = $5 AND a.user_id = r.run_as
                AND a.disconnected_at IS NULL)
  AND $6 = coalesce((SELECT max(version) FROM policies WHERE workspace_id = $1), 0)
  AND (NOT $7 OR EXISTS (
      SELECT FROM approvals p
      WHERE p.workspace_id = $1 AND p.run_id = $2 AND p.action_id = $8 AND p.state = 'approved'
        AND approval_stands($1, p.decided_by, r.run_as)))
RETURNING false AS is_cancelled";

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
    branch = NULL, error = NULL, retry_at = NULL, answer_sealed = NULL
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
UPDATE run_actions SET branch = $4, error = $5, response_status = coalesce($6, response_status),
    attempts = attempts + CASE WHEN $8::int IS NULL THEN 0 ELSE 1 END,
    retry_at = clock_timestamp() + $7::float8 * interval '1 second',
    unanswered = greatest(unanswered - coalesce($8, 0), 0), answer_sealed = $9, is_told = $10
WHERE workspace_id = $1 AND run_id = $2 AND action_id = $3";

    /// Asks for an approval, once for each action, or again where the question was withdrawn or
    /// whoever has approved may no longer.
    ASK_APPROVAL = ask_approval "
INSERT INTO approvals (workspace_id, approval_id, run_id, action_id, expires_at)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5::float8 * interval '1 second')
ON CONFLICT (workspace_id, run_id, action_id) DO UPDATE
SET state = 'pending', expires_at = EXCLUDED.expires_at
WHERE approvals.state = 'withdrawn' OR approvals.state = 'approved'
  AND NOT approval_stands($1, approvals.decided_by,
      (SELECT run_as FROM runs WHERE workspace_id = $1 AND run_id = $3))";

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

    /// Cancels a run for the holder of $3, if somebody has ordered it.
    CANCEL_RUN = cancel_run "SELECT cancel_run($1, $2, NULL, $3)";

    /// Drops what the actions of a run were answered, unless its workspace keeps that.
    DROP_ANSWERS = drop_answers "
UPDATE run_actions SET answer_sealed = NULL
WHERE workspace_id = $1 AND run_id = $2 AND answer_sealed IS NOT NULL
  AND NOT EXISTS (SELECT FROM workspaces WHERE workspace_id = $1 AND keep_answers)";

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
        let beginning = update.and_then(|update| Some((update, update.begins?)));
        let mut statements = vec![match beginning {
            Some((update, account)) => begin_statement(lease, update, account, transition),
            None => run_statement(lease, transition),
        }];
        if let Some(update) = update {
            statements.extend(action_statements(lease, update, transition));
        }
        // Only who has the run asks: where nothing was asked, nothing can have been answered.
        let asked = beginning.filter(|(update, _)| update.was_asked);
        let go_ahead = asked.map(|(update, _)| {
            statements.push(go_ahead_statement(lease, update));
            statements.len() - 1
        });
        statements.extend(approval_statement(lease, update, transition));
        statements.extend(wake_statements(lease, update, transition));
        if let Transition::Succeed { has_answers: true } = transition {
            statements.push(of_run(&DROP_ANSWERS, lease));
        }
        let results = transaction.pipeline(&statements).await?;

        let question = go_ahead.and_then(|index| results.get(index)?.first());
        // Denied at the last moment: nothing of this is kept.
        if let Some(question) = question
            && question.try_get("is_denied")?
        {
            return Ok(None);
        }

        let mut first_rows = results.iter().map(|rows| rows.first());
        // Not the holder, or something does not hold any more: everything else is rolled back.
        let Some(Some(run)) = first_rows.next() else {
            return Ok(None);
        };
        let action = first_rows.next().flatten().filter(|_| update.is_some());
        let idempotency_key = action
            .map(|row| row.try_get("idempotency_key"))
            .transpose()?;
        // What is over stays so; else this was the last step.
        let is_cancelled = run.try_get("is_cancelled")? && !transition.is_end();
        if is_cancelled {
            let (workspace, run, holder) = (lease.workspace, lease.run, lease.fencing_token);
            transaction
                .execute(&CANCEL_RUN, &[&workspace, &run, &holder])
                .await?;
        }
        Ok(Some(Written {
            is_cancelled,
            idempotency_key,
        }))
    }
}

fn of_run<'p>(statement: &'static Statement, lease: &Lease) -> BoundStatement<'p> {
    BoundStatement::new(statement)
        .bind(/* $1 workspace_id */ lease.workspace)
        .bind(/* $2 run_id */ lease.run)
}

fn run_statement<'p>(lease: &Lease, transition: &Transition) -> BoundStatement<'p> {
    of_run(&RENEW_RUN, lease)
        .bind(/* $3 fencing_token */ lease.fencing_token)
        .bind(/* $4 state */ transition.run_state())
        .bind(/* $5 failure */ transition.failure())
        .bind(/* $6 lease_seconds */ transition.lease_seconds())
        .bind(/* $7 failing */ transition.failing())
}

fn begin_statement<'p>(
    lease: &Lease,
    update: &'p ActionUpdate<'_>,
    account: AccountId,
    transition: &Transition,
) -> BoundStatement<'p> {
    let decided = update.decided.as_ref();
    let needs_approval =
        decided.is_some_and(|decided| decided.ruling.decision == Decision::Approve);
    of_run(&BEGIN_ATTEMPT, lease)
        .bind(/* $3 fencing_token */ lease.fencing_token)
        .bind(/* $4 lease_seconds */ transition.lease_seconds())
        .bind(/* $5 account_id */ account)
        .bind(
            /* $6 policy_version */ decided.map(|decided| decided.policy_version),
        )
        .bind(/* $7 needs_approval */ needs_approval)
        .bind(/* $8 action_id */ update.action.id.as_str())
}

fn go_ahead_statement<'p>(lease: &Lease, update: &'p ActionUpdate<'_>) -> BoundStatement<'p> {
    of_run(&GO_AHEAD, lease).bind(/* $3 action_id */ update.action.id.as_str())
}

/// The action's state, and what the policy said or what came of it, where there is something to
/// say.
fn action_statements<'p>(
    lease: &Lease,
    update: &'p ActionUpdate<'_>,
    transition: &Transition,
) -> Vec<BoundStatement<'p>> {
    let id = update.action.id.as_str();
    let upsert = of_run(&UPSERT_ACTION, lease)
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
            of_run(&RECORD_RULING, lease)
                .bind(/* $3 action_id */ id)
                .bind(/* $4 decision */ ruling.decision)
                .bind(/* $5 decision_rule */ ruling.rule)
                .bind(/* $6 policy_version */ policy_version)
                .bind(/* $7 request */ request)
                .bind(/* $8 begun */ i32::from(update.begins.is_some()))
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
        of_run(&RECORD_RESULT, lease)
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
        Transition::Succeed { .. } | Transition::Fail(_) | Transition::Deny(_) => {
            let close = of_run(&CLOSE_APPROVALS, lease);
            Some(close)
        }
    }
}

fn wake_statements<'p>(
    lease: &Lease,
    update: Option<&'p ActionUpdate<'_>>,
    transition: &Transition,
) -> Vec<BoundStatement<'p>> {
    let Some(seconds) = transition.wake_seconds() else {
        return vec![of_run(&CLEAR_WAKE, lease)];
    };
    let set_wake = of_run(&SET_WAKE, lease)
        .bind(/* $3 due_in_seconds */ seconds)
        .bind(/* $4 state */ transition.wake_state())
        .bind(/* $5 account_id */ transition.account());
    let mut statements = vec![set_wake];
    if let (Transition::AwaitApproval(_), Some(update)) = (transition, update) {
        let action_id = update.action.id.as_str();
        statements.push(of_run(&WAKE_IF_ANSWERED, lease).bind(/* $3 action_id */ action_id));
    }
    statements
}
