//! Writing transitions. What becomes of a run is written for the turn that still lasts; the answer
//! to an attempt is written if that attempt is the latest and has none, whoever has the run now. So
//! what is written again changes nothing, and a known answer is never thrown away.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, Transaction, Work, statements};
use tokio::try_join;

use super::{
    TurnKey, hold_runs,
    rows::{ActionRow, RunRow},
    unless_empty,
};
use crate::executor::transition::{Then, Transition, Written};

statements! {
    /// Writes what came of attempts, each if it is the latest of its action and has no answer yet;
    /// of one that may not have begun, if its turn lasts. A late one changes the state of its
    /// action if it succeeded, or failed while a person is asked. One that does not count leaves
    /// what the attempt before it has failed with.
    fn record_answers(answers: &[ActionRow<'_>]) -> Vec<(WorkspaceId, RunId)> = "
UPDATE run_actions a SET
    state = CASE WHEN a.state = 'running' OR i.state = 'succeeded'
        OR a.state = 'waiting_approval' AND i.state = 'failed' THEN i.state ELSE a.state END,
    is_told = CASE WHEN a.state IN ('running', 'waiting_approval') THEN i.is_told
        ELSE a.is_told END,
    finished_at = CASE WHEN i.state = 'succeeded'
        OR a.state IN ('running', 'waiting_approval') AND i.state = 'failed'
        THEN clock_timestamp() WHEN a.state <> 'running' THEN a.finished_at END,
    branch = i.branch,
    -- Not what was erased, or dropped, meanwhile.
    error = CASE WHEN NOT i.counts THEN a.error WHEN a.request IS NOT NULL THEN i.error END,
    (answer_sealed, failed_with) = (
        SELECT i.answer_sealed, CASE WHEN i.counts THEN i.failed_with ELSE a.failed_with END
        FROM active_runs t
        WHERE t.workspace_id = a.workspace_id AND t.run_id = a.run_id AND a.request IS NOT NULL),
    response_status = coalesce(i.response_status, a.response_status),
    retry_at = clock_timestamp() + i.retry_in * interval '1 second',
    attempts = a.attempts + i.counts::integer, answered = i.attempt,
    unanswered = greatest(a.unanswered - i.settled, 0)
FROM unnest($1::action_change[]) AS i
WHERE a.workspace_id = i.workspace_id AND a.run_id = i.run_id AND a.action_id = i.action_id
  AND a.begun = i.attempt AND a.answered < i.attempt
  AND (NOT i.is_unseen OR EXISTS (
      SELECT FROM active_runs t WHERE t.workspace_id = i.workspace_id AND t.run_id = i.run_id
        AND t.state = 'taken' AND t.turn = i.turn))
RETURNING a.workspace_id, a.run_id";

    /// Writes what has happened to actions otherwise, for the turns that last, unless an attempt
    /// was answered since they looked at it. What is said of an earlier state is cleared; the key
    /// and the request stay.
    pub(super) fn record_changes(changes: &[ActionRow<'_>]) -> Vec<(WorkspaceId, RunId)> = "
INSERT INTO run_actions AS a (workspace_id, run_id, action_id, position, type, part_of, untrusted,
    steered_by, idempotency_key, state, branch, error, is_told, answer_sealed, response_status,
    retry_at, decision, decision_rule, policy_version, request, begun, answered, finished_at)
SELECT i.workspace_id, i.run_id, i.action_id,
       (SELECT count(*) + 1 FROM run_actions e
        WHERE e.workspace_id = i.workspace_id AND e.run_id = i.run_id),
       i.kind, i.part_of, i.untrusted, i.steered_by, gen_random_uuid(), i.state, i.branch,
       i.error, i.is_told, i.answer_sealed, i.response_status,
       clock_timestamp() + i.retry_in * interval '1 second', i.decision, i.decision_rule,
       i.policy_version, i.request, i.begun, i.answered,
       CASE WHEN i.state IN ('succeeded', 'failed', 'denied') THEN clock_timestamp() END
FROM unnest($1::action_change[]) AS i
JOIN active_runs t ON t.workspace_id = ANY (ARRAY[i.workspace_id])
    AND t.run_id = ANY (ARRAY[i.run_id]) AND t.state = 'taken' AND t.turn = i.turn
ON CONFLICT (workspace_id, run_id, action_id) DO UPDATE SET
    state = EXCLUDED.state, branch = EXCLUDED.branch, error = EXCLUDED.error,
    is_told = EXCLUDED.is_told, answer_sealed = EXCLUDED.answer_sealed, failed_with = NULL,
    response_status = coalesce(EXCLUDED.response_status, a.response_status),
    retry_at = EXCLUDED.retry_at, decision = coalesce(EXCLUDED.decision, a.decision),
    decision_rule = CASE WHEN EXCLUDED.decision IS NULL THEN a.decision_rule
        ELSE EXCLUDED.decision_rule END,
    policy_version = coalesce(EXCLUDED.policy_version, a.policy_version),
    request = coalesce(a.request, EXCLUDED.request), finished_at = EXCLUDED.finished_at
WHERE a.begun = EXCLUDED.begun AND a.answered = EXCLUDED.answered
RETURNING a.workspace_id, a.run_id";

    /// Asks people: once for each action, or again if the question was withdrawn or whoever
    /// approved may no longer. A question that is asked again gets a new id. Shows that the run
    /// waits.
    fn ask_approvals(questions: &[RunRow<'_>]) = "
WITH asked AS (
    SELECT i.workspace_id, i.run_id, i.action_id, i.approval_id, i.seconds, r.workflow_id
    FROM unnest($1::run_change[]) AS i
    JOIN active_runs t ON t.workspace_id = ANY (ARRAY[i.workspace_id])
        AND t.run_id = ANY (ARRAY[i.run_id]) AND t.state = 'taken' AND t.turn = i.turn
    JOIN runs r ON r.workspace_id = i.workspace_id AND r.run_id = i.run_id
), question AS (
    INSERT INTO approvals AS p (workspace_id, approval_id, run_id, action_id, workflow_id,
        expires_at)
    SELECT workspace_id, approval_id, run_id, action_id, workflow_id,
           clock_timestamp() + seconds * interval '1 second'
    FROM asked
    ON CONFLICT (workspace_id, run_id, action_id) DO UPDATE
    SET state = 'pending', expires_at = EXCLUDED.expires_at
    WHERE p.state = 'withdrawn' OR p.state = 'approved'
      AND NOT approval_stands(p.workspace_id, p.decided_by,
          (SELECT run_as FROM runs r
           WHERE r.workspace_id = p.workspace_id AND r.run_id = p.run_id), p.proven_by)
)
UPDATE runs r SET state = 'waiting_approval' FROM asked a
WHERE r.workspace_id = a.workspace_id AND r.run_id = a.run_id AND r.state <> 'waiting_approval'";

    /// Closes the questions of actions that failed or were denied, and after which their runs go
    /// on.
    fn close_questions(actions: &[RunRow<'_>]) = "
WITH denied AS (
    SELECT i.* FROM unnest($1::run_change[]) AS i
    JOIN active_runs t ON t.workspace_id = ANY (ARRAY[i.workspace_id])
        AND t.run_id = ANY (ARRAY[i.run_id]) AND t.state = 'taken' AND t.turn = i.turn
), closed AS (
    UPDATE approvals p SET state = 'expired', decided_at = clock_timestamp()
    FROM denied d WHERE p.workspace_id = d.workspace_id AND p.run_id = d.run_id
      AND p.action_id = d.action_id AND (p.state = 'pending') IS TRUE
)
UPDATE runs r SET state = 'running' FROM denied d
WHERE r.workspace_id = d.workspace_id AND r.run_id = d.run_id AND r.state = 'waiting_approval'";

    /// Notes why runs fail whose actions that follow a failure begin.
    fn note_failing(runs: &[RunRow<'_>]) = "
UPDATE runs r SET failing = i.reason
FROM unnest($1::run_change[]) AS i
JOIN active_runs t ON t.workspace_id = ANY (ARRAY[i.workspace_id])
    AND t.run_id = ANY (ARRAY[i.run_id]) AND t.state = 'taken' AND t.turn = i.turn
WHERE r.workspace_id = i.workspace_id AND r.run_id = i.run_id";

    /// Lets turns last that go on: their leases are renewed, and they are not idle, when that is
    /// not so already.
    fn keep_turns(runs: &[RunRow<'_>], lease_seconds: f64) = "
UPDATE active_runs a SET idle_turns = 0,
    due_at = greatest(a.due_at, clock_timestamp() + $2::float8 * interval '1 second')
FROM unnest($1::run_change[]) AS i
WHERE a.workspace_id = ANY (ARRAY[i.workspace_id]) AND a.run_id = i.run_id
  AND a.state = 'taken' AND a.turn = i.turn
  AND (a.idle_turns > 1 OR a.due_at < clock_timestamp() + $2::float8 * interval '0.5 second')";

    /// Lets go of runs: each is due after a time, or at once.
    fn release_runs(runs: &[RunRow<'_>]) = "
UPDATE active_runs a SET idle_turns = 0,
    state = CASE WHEN i.seconds > 0 THEN 'scheduled' ELSE 'ready' END,
    due_at = clock_timestamp() + i.seconds * interval '1 second',
    account_id = coalesce(i.account_id, a.account_id)
FROM unnest($1::run_change[]) AS i
WHERE a.workspace_id = ANY (ARRAY[i.workspace_id]) AND a.run_id = i.run_id
  AND a.state = 'taken' AND a.turn = i.turn";

    /// Makes runs ready that wait for an answer which has come: to a question that was answered
    /// while it was asked, or to an attempt whose worker had lost its turn. The question of an
    /// action that was answered is withdrawn.
    fn wake_answered(actions: &[RunRow<'_>]) = "
WITH withdrawn AS (
    UPDATE approvals p SET state = 'withdrawn', decided_at = clock_timestamp()
    FROM unnest($1::run_change[]) AS i
    JOIN run_actions a ON a.workspace_id = i.workspace_id AND a.run_id = i.run_id
        AND a.action_id = i.action_id AND a.state <> 'waiting_approval'
    WHERE p.workspace_id = i.workspace_id AND p.run_id = i.run_id AND p.action_id = i.action_id
      AND (p.state = 'pending') IS TRUE
    RETURNING p.workspace_id, p.run_id
), no_longer_waiting AS (
    UPDATE runs r SET state = 'running' FROM withdrawn w
    WHERE r.workspace_id = w.workspace_id AND r.run_id = w.run_id
      AND r.state = 'waiting_approval'
)
UPDATE active_runs r SET state = 'ready', due_at = clock_timestamp()
FROM unnest($1::run_change[]) AS i
JOIN run_actions a ON a.workspace_id = i.workspace_id AND a.run_id = i.run_id
    AND a.action_id = i.action_id
LEFT JOIN approvals p ON p.workspace_id = i.workspace_id AND p.run_id = i.run_id
    AND p.action_id = i.action_id
WHERE r.workspace_id = ANY (ARRAY[i.workspace_id]) AND r.run_id = ANY (ARRAY[i.run_id])
  AND r.state = 'scheduled' AND (a.state <> 'waiting_approval' OR p.state <> 'pending')";

    /// Ends runs.
    fn end_runs(runs: &[RunRow<'_>]) = "SELECT end_runs($1::run_change[])";
}

/// Writes transitions, of each run at most one. Returns what came of each, in their order. Doing it
/// again changes nothing.
///
/// # Errors
/// When the database does not answer: whether they are written is then unknown. Permanent when it
/// refuses one of them.
pub async fn write(
    database: &Database,
    transitions: &[&Transition],
    lease: Duration,
) -> Result<Vec<Written>, DatabaseError> {
    let name = "write_steps";
    let write = WriteTransitions { transitions, lease };
    let written = database.transaction(name, &write).await?;
    written.ok_or_else(|| DatabaseError::rolled_back(name))
}

/// What is found out about runs while transitions are written.
struct FoundAttempt {
    /// Those whose turns last, and whether they are to be cancelled.
    held: HashMap<TurnKey, bool>,
    /// Those whose answers count.
    counted: HashSet<TurnKey>,
    /// Those of which an attempt was answered since their turn looked.
    outdated: HashSet<TurnKey>,
}

struct WriteTransitions<'s> {
    transitions: &'s [&'s Transition],
    lease: Duration,
}

impl Work for WriteTransitions<'_> {
    type Output = Vec<Written>;

    async fn run(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<Option<Self::Output>, DatabaseError> {
        let FoundAttempt {
            held,
            counted,
            outdated,
        } = self.write(transaction).await?;
        let written = self.transitions.iter().map(|one| {
            let key = one.turn.key();
            match held.get(&key) {
                None => Written::NotOurs,
                // An answer came meanwhile: the next turn sees it.
                Some(_) if outdated.contains(&key) => Written::NotOurs,
                // What is over stays so; otherwise this was its last transition.
                Some(true) if !matches!(one.then, Then::End(_)) => Written::Cancelled,
                Some(_) => Written::Recorded,
            }
        });
        let written: Vec<Written> = written.collect();

        // What follows from that.
        let late = self.rows(|one| {
            let key = one.turn.key();
            let (action, _) = one.action.as_ref()?;
            let is_late = !held.contains_key(&key) && counted.contains(&key);
            is_late.then(|| RunRow::of_action(one.turn, action))
        });
        let is_outdated = |one: &Transition| outdated.contains(&one.turn.key());
        let counts = |one: &&Transition| one.is_changed() && !is_outdated(one);
        let failing = self.rows(|one| Some(one).filter(counts).and_then(RunRow::failing));
        // The next turn sees the answer.
        let outdated =
            self.rows(|one| is_outdated(one).then(|| RunRow::due_in(one.turn, Duration::ZERO)));
        let mut ends = self.rows(|one| Some(one).filter(counts).and_then(RunRow::ended));
        let cancelled = self.transitions.iter().zip(&written);
        let cancelled = cancelled.filter(|(_, written)| **written == Written::Cancelled);
        ends.extend(cancelled.map(|(one, _)| RunRow::cancelled(one.turn)));
        try_join!(
            biased;
            unless_empty(&late, |rows| wake_answered(transaction, rows)),
            unless_empty(&failing, |rows| note_failing(transaction, rows)),
            unless_empty(&outdated, |rows| release_runs(transaction, rows)),
            unless_empty(&ends, |rows| end_runs(transaction, rows)),
        )?;
        Ok(Some(written))
    }
}

impl<'s> WriteTransitions<'s> {
    /// Writes what can be written before it is known what counts.
    async fn write(&self, transaction: &Transaction<'_>) -> Result<FoundAttempt, DatabaseError> {
        let turns = self.rows(|one| Some(RunRow::of_turn(one.turn)));
        let answers = self.rows(ActionRow::answered);
        let before = self.rows(|one| ActionRow::happened(one.turn, &one.before));
        let changes = self.rows(ActionRow::changed);
        let asked = self.rows(RunRow::asked);
        let closed = self.rows(RunRow::closed);
        let kept = self.rows(RunRow::kept);
        let released = self.rows(RunRow::released);
        // By a change, which must be known to count first, runs end later.
        let is_sure = |one: &&Transition| !one.is_changed();
        let failing = self.rows(|one| Some(one).filter(is_sure).and_then(RunRow::failing));
        let ends = self.rows(|one| Some(one).filter(is_sure).and_then(RunRow::ended));
        let lease = self.lease.as_secs_f64();
        let (held, counted, _, recorded, ..) = try_join!(
            biased;
            hold_runs(transaction, &turns),
            // Right behind the locks: what they return says which of them count.
            unless_empty(&answers, |rows| record_answers(transaction, rows)),
            unless_empty(&before, |rows| record_changes(transaction, rows)),
            unless_empty(&changes, |rows| record_changes(transaction, rows)),
            unless_empty(&asked, |rows| ask_approvals(transaction, rows)),
            unless_empty(&kept, |rows| keep_turns(transaction, rows, lease)),
            unless_empty(&closed, |rows| close_questions(transaction, rows)),
            unless_empty(&failing, |rows| note_failing(transaction, rows)),
            unless_empty(&released, |rows| release_runs(transaction, rows)),
            // Behind the releases: who answers while a run is taken leaves it to this to look.
            unless_empty(&asked, |rows| wake_answered(transaction, rows)),
            unless_empty(&ends, |rows| end_runs(transaction, rows)),
        )?;
        let mut outdated: HashSet<TurnKey> = changes.iter().map(ActionRow::run).collect();
        recorded.iter().for_each(|run| _ = outdated.remove(run));
        let held = held.into_iter().map(|one| (one.key, one.is_cancelled));
        Ok(FoundAttempt {
            held: held.collect(),
            counted: counted.into_iter().collect(),
            outdated,
        })
    }

    /// A row for each transition that has one.
    fn rows<T>(&self, row: impl Fn(&'s Transition) -> Option<T>) -> Vec<T> {
        self.transitions.iter().copied().filter_map(row).collect()
    }
}
