//! Writing steps. What becomes of a run is written for the turn that still lasts; the answer to an
//! attempt is written if that attempt is the latest and has none, whoever has the run now. So a
//! step that is written again changes nothing, and a known answer is never thrown away.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use letterbox_common::{
    ids::{AccountId, ApprovalId, RunId, WorkspaceId},
    states::RunState,
};
use letterbox_database::{
    BoundStatement, Database, DatabaseError, Row, RowError, Transaction, Work, replace_nul,
    statements,
};
use uuid::Uuid;

use super::{HOLD_RUNS, of_actions, of_turns, rows::ActionRow};
use crate::executor::record::{Change, End, Step, Then, Turn, Written};

statements! {
    /// Writes what came of attempts, each if it is the latest of its action and has no answer yet.
    /// A late one changes the state of its action if it succeeded, or failed while a person is
    /// asked.
    RECORD_ANSWERS = record_answers "
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
    error = CASE WHEN a.request IS NOT NULL THEN i.error END,
    answer_sealed = CASE WHEN a.request IS NOT NULL AND (
        SELECT true FROM active_runs t
        WHERE t.workspace_id = a.workspace_id AND t.run_id = a.run_id) THEN i.answer_sealed END,
    response_status = coalesce(i.response_status, a.response_status),
    retry_at = clock_timestamp() + i.retry_in * interval '1 second',
    attempts = a.attempts + 1, answered = i.attempt,
    unanswered = greatest(a.unanswered - i.settled, 0)
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::int[], $6::text[], $7::text[],
            $8::text[], $9::bool[], $10::bytea[], $11::int[], $12::float8[], $13::int[])
     AS i (workspace_id, run_id, turn, action_id, attempt, state, branch, error, is_told,
           answer_sealed, response_status, retry_in, settled)
WHERE a.workspace_id = i.workspace_id AND a.run_id = i.run_id AND a.action_id = i.action_id
  AND a.begun = i.attempt AND a.answered < i.attempt
RETURNING a.workspace_id, a.run_id";

    /// Writes what has happened to actions otherwise, for the turns that last, unless an attempt
    /// was answered since they looked at it. What is said of an earlier state is cleared; the key
    /// and the request stay.
    RECORD_CHANGES = record_changes "
INSERT INTO run_actions AS a (workspace_id, run_id, action_id, position, type, part_of, untrusted,
    steered_by, idempotency_key, state, branch, error, is_told, answer_sealed, response_status,
    retry_at, decision, decision_rule, policy_version, request, begun, answered, finished_at)
SELECT i.workspace_id, i.run_id, i.action_id,
       (SELECT count(*) + 1 FROM run_actions e
        WHERE e.workspace_id = i.workspace_id AND e.run_id = i.run_id),
       i.type, i.part_of, i.untrusted::text[], i.steered_by::text[], i.idempotency_key, i.state,
       i.branch, i.error, i.is_told, i.answer_sealed, i.response_status,
       clock_timestamp() + i.retry_in * interval '1 second', i.decision, i.decision_rule,
       i.policy_version, i.request, i.begun, i.answered,
       CASE WHEN i.state IN ('succeeded', 'failed', 'denied') THEN clock_timestamp() END
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::uuid[], $10::text[], $11::text[], $12::text[], $13::bool[],
            $14::bytea[], $15::int[], $16::float8[], $17::text[], $18::int[], $19::int[],
            $20::text[], $21::int[], $22::int[])
     AS i (workspace_id, run_id, turn, action_id, type, part_of, untrusted, steered_by,
           idempotency_key, state, branch, error, is_told, answer_sealed, response_status,
           retry_in, decision, decision_rule, policy_version, request, begun, answered)
JOIN active_runs t ON t.workspace_id = i.workspace_id AND t.run_id = i.run_id
    AND t.state = 'taken' AND t.turn = i.turn
ON CONFLICT (workspace_id, run_id, action_id) DO UPDATE SET
    state = EXCLUDED.state, branch = EXCLUDED.branch, error = EXCLUDED.error,
    is_told = EXCLUDED.is_told, answer_sealed = EXCLUDED.answer_sealed,
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
    ASK_APPROVALS = ask_approvals "
WITH asked AS (
    SELECT i.*, r.workflow_id, r.run_as
    FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::uuid[], $6::float8[])
         AS i (workspace_id, run_id, turn, action_id, approval_id, seconds)
    JOIN active_runs t ON t.workspace_id = i.workspace_id AND t.run_id = i.run_id
        AND t.state = 'taken' AND t.turn = i.turn
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
    CLOSE_QUESTIONS = close_questions "
WITH denied AS (
    SELECT i.* FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[])
         AS i (workspace_id, run_id, turn, action_id)
    JOIN active_runs t ON t.workspace_id = i.workspace_id AND t.run_id = i.run_id
        AND t.state = 'taken' AND t.turn = i.turn
), closed AS (
    UPDATE approvals p SET state = 'expired', decided_at = clock_timestamp()
    FROM denied d WHERE p.workspace_id = d.workspace_id AND p.run_id = d.run_id
      AND p.action_id = d.action_id AND (p.state = 'pending') IS TRUE
)
UPDATE runs r SET state = 'running' FROM denied d
WHERE r.workspace_id = d.workspace_id AND r.run_id = d.run_id AND r.state = 'waiting_approval'";

    /// Notes why runs fail whose actions that follow a failure begin.
    NOTE_FAILING = note_failing "
UPDATE runs r SET failing = i.reason
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[])
     AS i (workspace_id, run_id, turn, reason)
JOIN active_runs t ON t.workspace_id = i.workspace_id AND t.run_id = i.run_id
    AND t.state = 'taken' AND t.turn = i.turn
WHERE r.workspace_id = i.workspace_id AND r.run_id = i.run_id";

    /// Lets turns last that go on: their leases are renewed, and they are not idle, when that is
    /// not so already.
    KEEP_TURNS = keep_turns "
UPDATE active_runs a SET idle_turns = 0,
    due_at = greatest(a.due_at, clock_timestamp() + $4::float8 * interval '1 second')
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS i (workspace_id, run_id, turn)
WHERE a.workspace_id = i.workspace_id AND a.run_id = i.run_id
  AND a.state = 'taken' AND a.turn = i.turn
  AND (a.idle_turns > 1 OR a.due_at < clock_timestamp() + $4::float8 * interval '0.5 second')";

    /// Lets go of runs: each is due after a time, or at once.
    RELEASE_RUNS = release_runs "
UPDATE active_runs a SET idle_turns = 0,
    state = CASE WHEN i.seconds > 0 THEN 'scheduled' ELSE 'ready' END,
    due_at = clock_timestamp() + i.seconds * interval '1 second',
    account_id = coalesce(i.account_id, a.account_id)
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::float8[], $5::uuid[])
     AS i (workspace_id, run_id, turn, seconds, account_id)
WHERE a.workspace_id = i.workspace_id AND a.run_id = i.run_id
  AND a.state = 'taken' AND a.turn = i.turn";

    /// Makes runs ready that wait for an answer which has come: to a question that was answered
    /// while it was asked, or to an attempt whose worker had lost its turn. The question of an
    /// action that was answered is withdrawn.
    WAKE_ANSWERED = wake_answered "
WITH withdrawn AS (
    UPDATE approvals p SET state = 'withdrawn', decided_at = clock_timestamp()
    FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[])
         AS i (workspace_id, run_id, turn, action_id)
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
FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[])
     AS i (workspace_id, run_id, turn, action_id)
JOIN run_actions a ON a.workspace_id = i.workspace_id AND a.run_id = i.run_id
    AND a.action_id = i.action_id
LEFT JOIN approvals p ON p.workspace_id = i.workspace_id AND p.run_id = i.run_id
    AND p.action_id = i.action_id
WHERE r.workspace_id = i.workspace_id AND r.run_id = i.run_id AND r.state = 'scheduled'
  AND (a.state <> 'waiting_approval' OR p.state <> 'pending')";

    /// Ends runs.
    END_RUNS = end_runs "
SELECT end_runs($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[])";
}

/// Writes steps, of each run at most one. Returns what came of each, in their order. Doing it again
/// changes nothing.
///
/// # Errors
/// When the database does not answer: whether they are written is then unknown. Permanent when it
/// refuses one of them.
pub(in crate::executor) async fn write(
    database: &Database,
    steps: &[&Step],
    lease: Duration,
) -> Result<Vec<Written>, DatabaseError> {
    let name = "write_steps";
    let write = WriteSteps { steps, lease };
    let written = database.transaction(name, &write).await?;
    written.ok_or_else(|| DatabaseError::rolled_back(name))
}

struct WriteSteps<'s> {
    steps: &'s [&'s Step],
    lease: Duration,
}

impl Work for WriteSteps<'_> {
    type Output = Vec<Written>;

    async fn run(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<Option<Self::Output>, DatabaseError> {
        // Answers come right behind the locks: their rows say which of them count.
        let (answers, changes) = self.actions();
        let mut statements = vec![of_turns(&HOLD_RUNS, self.turns(|_| true))];
        statements.extend(answers.first().map(|_| record_answers(&answers)));
        statements.extend(changes.first().map(|_| record_changes(&changes)));
        statements.extend(self.questions());
        statements.extend(self.runs());
        let mut results = transaction.pipeline(&statements).await?.into_iter();
        let missing = || DatabaseError::rolled_back(HOLD_RUNS.name);
        let mut next = || results.next().ok_or_else(missing);
        let held = held(&next()?)?;
        if !answers.is_empty() {
            let counted = runs_of(&next()?)?;
            self.wake_late(transaction, &held, &counted).await?;
        }
        let mut outdated = HashSet::new();
        if !changes.is_empty() {
            let recorded = runs_of(&next()?)?;
            let runs = changes.iter().map(|row| row.turn.key());
            outdated.extend(runs.filter(|run| !recorded.contains(run)));
            self.end_changed(transaction, &outdated).await?;
        }
        let written = (1..).zip(self.steps).map(|(place, step)| {
            match held.get(&place) {
                None => Written::NotOurs,
                // An answer came meanwhile: the next turn sees it.
                Some(_) if outdated.contains(&step.turn.key()) => Written::NotOurs,
                // What is over stays so; otherwise this was its last step.
                Some(true) if !matches!(step.then, Then::End(_)) => Written::Cancelled,
                Some(_) => Written::Recorded,
            }
        });
        let written: Vec<Written> = written.collect();
        self.cancel(transaction, &written).await?;
        Ok(Some(written))
    }
}

impl WriteSteps<'_> {
    /// The turns of some steps.
    fn turns(&self, which: impl Fn(&Step) -> bool + Clone) -> impl Iterator<Item = Turn> + Clone {
        let steps = self.steps.iter().filter(move |step| which(step));
        steps.map(|step| step.turn)
    }

    /// What is written about actions: what came of attempts, and everything else.
    fn actions(&self) -> (Vec<ActionRow<'_>>, Vec<ActionRow<'_>>) {
        let rows = self.steps.iter().filter_map(|step| ActionRow::of(step));
        rows.partition(|row| row.attempt.is_some())
    }

    /// The steps that ask a person, and how long that person may take.
    fn asking(&self) -> impl Iterator<Item = (Turn, &str, Duration)> + Clone {
        self.steps
            .iter()
            .filter_map(|step| match (&step.action, &step.then) {
                (Some((key, Change::AwaitsApproval(_))), Then::AwaitApproval(limit)) => {
                    Some((step.turn, key.id.as_str(), *limit))
                }
                _ => None,
            })
    }

    fn questions(&self) -> Option<BoundStatement<'_>> {
        let asking = self.asking();
        asking.clone().next()?;
        let ask = of_turns(&ASK_APPROVALS, asking.clone().map(|(turn, ..)| turn))
            .column(
                /* $4 action_id */ asking.clone().map(|(_, action, _)| action),
            )
            .column(
                /* $5 approval_id */ asking.clone().map(|_| ApprovalId::generate()),
            )
            .column(
                /* $6 expires_in_seconds */ asking.map(|(.., limit)| limit.as_secs_f64()),
            );
        Some(ask)
    }

    /// What becomes of the runs.
    fn runs(&self) -> Vec<BoundStatement<'_>> {
        let (mut releases, mut ends) = (Vec::new(), Vec::new());
        for step in self.steps {
            match &step.then {
                Then::Continue | Then::BeginFailing(_) => {}
                Then::Release(after, account) => releases.push((step.turn, *after, *account)),
                Then::AwaitApproval(limit) => releases.push((step.turn, *limit, None)),
                Then::End(_) => ends.extend(Ending::of(step, false)),
            }
        }
        let mut statements = Vec::new();
        if self.turns(Step::goes_on).next().is_some() {
            let keep = of_turns(&KEEP_TURNS, self.turns(Step::goes_on));
            statements.push(keep.bind(/* $4 lease_seconds */ self.lease.as_secs_f64()));
        }
        let denied = self.steps.iter().filter_map(|step| match &step.action {
            Some((key, Change::Denied(..) | Change::Failed(_))) if step.goes_on() => {
                Some((step.turn, key.id.as_str()))
            }
            _ => None,
        });
        let (turns, actions): (Vec<Turn>, Vec<&str>) = denied.unzip();
        if !turns.is_empty() {
            let close = of_turns(&CLOSE_QUESTIONS, turns.into_iter());
            statements.push(close.bind(/* $4 action_id */ actions));
        }
        statements.extend(self.failing(|step| !step.is_changed()));
        if !releases.is_empty() {
            statements.push(release_runs(&releases));
        }
        // Behind the releases: who answers while a run is taken leaves it to this to look.
        let asking = self.asking().map(|(turn, action, _)| (turn, action));
        statements.extend(wake_answered(asking));
        if !ends.is_empty() {
            statements.push(end_runs(ends));
        }
        statements
    }

    /// Why runs fail whose actions that follow a failure begin.
    fn failing(&self, which: impl Fn(&Step) -> bool) -> Option<BoundStatement<'_>> {
        let steps = self.steps.iter().filter(|step| which(step));
        let failing = steps.filter_map(|step| match &step.then {
            Then::BeginFailing(reason) => Some((step.turn, replace_nul(reason))),
            _ => None,
        });
        let (turns, reasons): (Vec<Turn>, Vec<String>) = failing.unzip();
        turns.first()?;
        let note = of_turns(&NOTE_FAILING, turns.into_iter());
        Some(note.bind(/* $4 reason */ reasons))
    }

    /// Wakes the runs whose answers counted although another turn decides about them.
    async fn wake_late(
        &self,
        transaction: &Transaction<'_>,
        held: &HashMap<i64, bool>,
        counted: &HashSet<Key>,
    ) -> Result<(), DatabaseError> {
        let late = (1..).zip(self.steps).filter_map(|(place, step)| {
            let (key, _) = step.action.as_ref()?;
            let is_late = !held.contains_key(&place) && counted.contains(&step.turn.key());
            is_late.then_some((step.turn, key.id.as_str()))
        });
        if let Some(wake) = wake_answered(late) {
            transaction.pipeline(&[wake]).await?;
        }
        Ok(())
    }

    /// Ends runs, or begins what follows their failure, by what has happened to an action otherwise
    /// than by an answer; but lets go of those for which an answer came meanwhile: the next turn
    /// sees it.
    async fn end_changed(
        &self,
        transaction: &Transaction<'_>,
        outdated: &HashSet<Key>,
    ) -> Result<(), DatabaseError> {
        let is_outdated = |step: &Step| outdated.contains(&step.turn.key());
        let releases = self.turns(is_outdated);
        let releases: Vec<_> = releases.map(|turn| (turn, Duration::ZERO, None)).collect();
        let ends = self.steps.iter().filter(|step| !is_outdated(step));
        let ends: Vec<_> = ends.filter_map(|step| Ending::of(step, true)).collect();
        let counts = |step: &Step| step.is_changed() && !is_outdated(step);
        let mut statements = Vec::from_iter(self.failing(counts));
        if !releases.is_empty() {
            statements.push(release_runs(&releases));
        }
        if !ends.is_empty() {
            statements.push(end_runs(ends));
        }
        if !statements.is_empty() {
            transaction.pipeline(&statements).await?;
        }
        Ok(())
    }

    /// Ends the runs whose cancellation was ordered, whatever their steps have made of them.
    async fn cancel(
        &self,
        transaction: &Transaction<'_>,
        written: &[Written],
    ) -> Result<(), DatabaseError> {
        let cancelled = self.steps.iter().zip(written);
        let cancelled = cancelled.filter(|(_, written)| **written == Written::Cancelled);
        let ends: Vec<_> = cancelled
            .map(|(step, _)| Ending::cancelled(step.turn))
            .collect();
        if !ends.is_empty() {
            transaction.pipeline(&[end_runs(ends)]).await?;
        }
        Ok(())
    }
}

/// The key of a run.
type Key = (WorkspaceId, RunId);

/// A run that ends.
struct Ending {
    turn: Turn,
    /// It ends only if the turn lasts.
    is_of_turn: bool,
    state: RunState,
    reason: Option<String>,
}

impl Ending {
    /// The end of a run by a step, if that ends it: by a change, which must be known to count
    /// first, or otherwise.
    fn of(step: &Step, by_change: bool) -> Option<Self> {
        let (state, reason) = match &step.then {
            Then::End(End::Succeeded) => (RunState::Succeeded, None),
            Then::End(End::Failed(reason)) => (RunState::Failed, Some(reason)),
            Then::End(End::Denied(reason)) => (RunState::Denied, Some(reason)),
            _ => return None,
        };
        (step.is_changed() == by_change).then(|| Self {
            turn: step.turn,
            is_of_turn: true,
            state,
            reason: reason.map(|reason| replace_nul(reason)),
        })
    }

    /// Its row is locked, and may have been released: the turn does not matter any more.
    fn cancelled(turn: Turn) -> Self {
        Self {
            turn,
            is_of_turn: false,
            state: RunState::Cancelled,
            reason: None,
        }
    }
}

fn end_runs<'p>(ends: Vec<Ending>) -> BoundStatement<'p> {
    let turn = |end: &Ending| end.is_of_turn.then_some(end.turn.token);
    BoundStatement::new(&END_RUNS)
        .column(
            /* $1 workspace_id */ ends.iter().map(|end| end.turn.workspace),
        )
        .column(/* $2 run_id */ ends.iter().map(|end| end.turn.run))
        .column(/* $3 turn */ ends.iter().map(turn))
        .column(/* $4 state */ ends.iter().map(|end| end.state))
        .column(/* $5 reason */ ends.into_iter().map(|end| end.reason))
}

fn release_runs<'p>(releases: &[(Turn, Duration, Option<AccountId>)]) -> BoundStatement<'p> {
    of_turns(&RELEASE_RUNS, releases.iter().map(|one| one.0))
        .column(
            /* $4 due_in_seconds */ releases.iter().map(|one| one.1.as_secs_f64()),
        )
        .column(/* $5 account_id */ releases.iter().map(|one| one.2))
}

fn wake_answered<'p>(actions: impl Iterator<Item = (Turn, &'p str)>) -> Option<BoundStatement<'p>> {
    let (turns, actions): (Vec<Turn>, Vec<&str>) = actions.unzip();
    turns.first()?;
    let wake = of_turns(&WAKE_ANSWERED, turns.into_iter());
    Some(wake.bind(/* $4 action_id */ actions))
}

fn record_answers<'p>(rows: &[ActionRow<'p>]) -> BoundStatement<'p> {
    let attempts = || rows.iter().filter_map(|row| row.attempt);
    let answers = of_turns(&RECORD_ANSWERS, rows.iter().map(|row| row.turn))
        .column(
            /* $4 action_id */ rows.iter().map(|row| row.key.id.as_str()),
        )
        .column(/* $5 attempt */ attempts().map(|(number, _)| number));
    ActionRow::outcomes(answers, rows).column(
        /* $13 settled */ attempts().map(|(_, end)| end.settled()),
    )
}

fn record_changes<'p>(rows: &[ActionRow<'p>]) -> BoundStatement<'p> {
    let changes = of_turns(&RECORD_CHANGES, rows.iter().map(|row| row.turn));
    let changes = of_actions(changes, rows.iter().map(|row| row.key));
    let changes = changes.column(
        /* $9 idempotency_key */ rows.iter().map(|_| Uuid::new_v4()),
    );
    ActionRow::rulings(ActionRow::outcomes(changes, rows), rows)
        .column(/* $21 begun */ rows.iter().map(|row| row.key.begun))
        .column(
            /* $22 answered */ rows.iter().map(|row| row.key.answered),
        )
}

/// The turns that last, by their place from 1, and whether their runs are to be cancelled.
fn held(rows: &[Row]) -> Result<HashMap<i64, bool>, RowError> {
    let held = rows.iter();
    let held = held.map(|row| Ok((row.try_get("place")?, row.try_get("is_cancelled")?)));
    held.collect()
}

fn runs_of(rows: &[Row]) -> Result<HashSet<Key>, RowError> {
    let keys = rows.iter();
    let keys = keys.map(|row| Ok((row.try_get("workspace_id")?, row.try_get("run_id")?)));
    keys.collect()
}
