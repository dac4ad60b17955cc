//! Beginning attempts. Everything that an attempt was decided by is asked again by the statement
//! that begins it: the turn, a cancellation, a hold, the user's right to run, the account, the
//! version of the policy, the approval, and whether an earlier attempt was answered meanwhile.

use std::{collections::HashMap, time::Duration};

use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{BoundStatement, Database, DatabaseError, Transaction, Work, statements};
use uuid::Uuid;

use super::{HOLD_RUNS, of_actions, of_turns};
use crate::executor::{MIN_LEASE, record::Beginning};

statements! {
    /// Locks actions that people were asked about.
    LOCK_ASKED = lock_asked "
SELECT FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS i (workspace_id, run_id, action_id)
JOIN run_actions a ON a.workspace_id = i.workspace_id AND a.run_id = i.run_id
    AND a.action_id = i.action_id
ORDER BY a.workspace_id, a.run_id FOR NO KEY UPDATE OF a";

    /// Begins attempts, each if everything that it was decided by still holds. The same attempt of
    /// the same turn may begin twice, which changes nothing: nobody else can have begun it. Until
    /// it is answered it may have been done. A question that is not asked any more is withdrawn.
    BEGIN_ATTEMPTS = begin_attempts "
WITH item AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[],
        $7::text[], $8::text[], $9::uuid[], $10::text[], $11::int[], $12::int[], $13::text[],
        $14::uuid[], $15::bool[], $16::int[], $17::int[])
        AS i (workspace_id, run_id, turn, action_id, type, part_of, untrusted, steered_by,
              idempotency_key, decision, decision_rule, policy_version, request, account_id,
              was_asked, begun, answered)
), may AS (
    SELECT i.* FROM item i
    JOIN active_runs a ON a.workspace_id = i.workspace_id AND a.run_id = i.run_id
        AND a.state = 'taken' AND a.turn = i.turn AND NOT a.is_cancelled
    JOIN runs r ON r.workspace_id = i.workspace_id AND r.run_id = i.run_id
    WHERE (SELECT true FROM held_workspaces h WHERE h.workspace_id = i.workspace_id) IS NULL
      AND (SELECT m.may_run FROM members m
           WHERE m.workspace_id = i.workspace_id AND m.user_id = r.run_as)
      AND (SELECT c.user_id = r.run_as AND c.disconnected_at IS NULL AND c.waits_for IS NULL
           FROM connected_accounts c
           WHERE c.workspace_id = i.workspace_id AND c.account_id = i.account_id)
      AND i.policy_version = coalesce((SELECT max(version) FROM policies p
                                       WHERE p.workspace_id = i.workspace_id), 0)
      AND (i.decision <> 'approve' OR (
          SELECT p.state = 'approved'
              AND approval_stands(i.workspace_id, p.decided_by, r.run_as, p.proven_by)
          FROM approvals p
          WHERE p.workspace_id = i.workspace_id AND p.run_id = i.run_id
            AND p.action_id = i.action_id))
      AND (NOT i.was_asked OR (
          SELECT p.state FROM approvals p
          WHERE p.workspace_id = i.workspace_id AND p.run_id = i.run_id
            AND p.action_id = i.action_id) IS DISTINCT FROM 'denied')
), begun AS (
    INSERT INTO run_actions AS a (workspace_id, run_id, action_id, position, type, state,
        untrusted, steered_by, idempotency_key, part_of, decision, decision_rule, policy_version,
        request, begun, answered, unanswered)
    SELECT workspace_id, run_id, action_id,
           (SELECT count(*) + 1 FROM run_actions e
            WHERE e.workspace_id = may.workspace_id AND e.run_id = may.run_id),
           type, 'running', untrusted::text[], steered_by::text[], idempotency_key, part_of,
           decision, decision_rule, policy_version, request, begun + 1, answered, 1
    FROM may
    ON CONFLICT (workspace_id, run_id, action_id) DO UPDATE SET
        state = 'running', decision = EXCLUDED.decision, decision_rule = EXCLUDED.decision_rule,
        policy_version = EXCLUDED.policy_version, request = coalesce(a.request, EXCLUDED.request),
        begun = EXCLUDED.begun,
        unanswered = a.unanswered + EXCLUDED.begun - a.begun,
        finished_at = NULL, branch = NULL, error = NULL, retry_at = NULL, answer_sealed = NULL
    WHERE a.begun IN (EXCLUDED.begun - 1, EXCLUDED.begun) AND a.answered = EXCLUDED.answered
    RETURNING workspace_id, run_id, action_id, idempotency_key
), withdrawn AS (
    UPDATE approvals p SET state = 'withdrawn', decided_at = clock_timestamp()
    FROM may m JOIN begun b USING (workspace_id, run_id, action_id)
    WHERE m.was_asked AND p.workspace_id = m.workspace_id AND p.run_id = m.run_id
      AND p.action_id = m.action_id AND (p.state = 'pending') IS TRUE
), no_longer_waiting AS (
    UPDATE runs r SET state = 'running'
    FROM may m JOIN begun b USING (workspace_id, run_id, action_id)
    WHERE m.was_asked AND r.workspace_id = m.workspace_id AND r.run_id = m.run_id
      AND r.state = 'waiting_approval'
), renewed AS (
    UPDATE active_runs a SET due_at = clock_timestamp() + $18::float8 * interval '1 second'
    FROM begun b WHERE a.workspace_id = b.workspace_id AND a.run_id = b.run_id
      AND a.due_at < clock_timestamp() + $19::float8 * interval '1 second'
)
SELECT workspace_id, run_id, idempotency_key FROM begun";
}

/// Begins attempts, of each run at most one. Returns the idempotency key of each, in their order;
/// `None` if something does not hold any more. Doing it again changes nothing.
///
/// # Errors
/// When the database does not answer: whether they have begun is then unknown. Permanent when it
/// refuses one of them.
pub(in crate::executor) async fn begin(
    database: &Database,
    beginnings: &[&Beginning],
    lease: Duration,
) -> Result<Vec<Option<Uuid>>, DatabaseError> {
    let name = "begin_attempts";
    let begin = BeginAttempts { beginnings, lease };
    let begun = database.transaction(name, &begin).await?;
    let begun = begun.ok_or_else(|| DatabaseError::rolled_back(name))?;
    let keys = beginnings
        .iter()
        .map(|one| begun.get(&one.turn.key()).copied());
    Ok(keys.collect())
}

struct BeginAttempts<'b> {
    beginnings: &'b [&'b Beginning],
    lease: Duration,
}

impl Work for BeginAttempts<'_> {
    type Output = HashMap<(WorkspaceId, RunId), Uuid>;

    async fn run(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<Option<Self::Output>, DatabaseError> {
        let turns = || self.beginnings.iter().map(|one| one.turn);
        let mut statements = Vec::new();
        let asked: Vec<&Beginning> = self.asked().collect();
        if !asked.is_empty() {
            statements.push(lock_asked(&asked));
        }
        // The statement that begins looks again at what holds once the rows are locked.
        statements.push(of_turns(&HOLD_RUNS, turns()));
        statements.push(self.begin());
        let results = transaction.pipeline(&statements).await?;
        let mut begun = HashMap::new();
        for row in results.last().into_iter().flatten() {
            let key = (row.try_get("workspace_id")?, row.try_get("run_id")?);
            begun.insert(key, row.try_get("idempotency_key")?);
        }
        Ok(Some(begun))
    }
}

impl BeginAttempts<'_> {
    fn asked(&self) -> impl Iterator<Item = &Beginning> {
        self.beginnings.iter().copied().filter(|one| one.was_asked)
    }

    fn begin(&self) -> BoundStatement<'_> {
        let all = || self.beginnings.iter();
        let decided = || all().map(|one| &one.decided);
        let begin = of_turns(&BEGIN_ATTEMPTS, all().map(|one| one.turn));
        of_actions(begin, all().map(|one| &one.action))
            .column(/* $9 idempotency_key */ all().map(|_| Uuid::new_v4()))
            .column(
                /* $10 decision */ decided().map(|one| one.ruling.decision),
            )
            .column(
                /* $11 decision_rule */ decided().map(|one| one.ruling.rule),
            )
            .column(
                /* $12 policy_version */ decided().map(|one| one.policy_version),
            )
            .column(
                /* $13 request */ decided().map(|one| one.request.as_str()),
            )
            .column(/* $14 account_id */ all().map(|one| one.account))
            .column(/* $15 was_asked */ all().map(|one| one.was_asked))
            .column(/* $16 begun */ all().map(|one| one.action.begun))
            .column(/* $17 answered */ all().map(|one| one.action.answered))
            .bind(/* $18 lease_seconds */ self.lease.as_secs_f64())
            .bind(/* $19 least_seconds */ MIN_LEASE.as_secs_f64())
    }
}

fn lock_asked<'b>(asked: &[&'b Beginning]) -> BoundStatement<'b> {
    BoundStatement::new(&LOCK_ASKED)
        .column(
            /* $1 workspace_id */ asked.iter().map(|one| one.turn.workspace),
        )
        .column(/* $2 run_id */ asked.iter().map(|one| one.turn.run))
        .column(
            /* $3 action_id */ asked.iter().map(|one| one.action.id.as_str()),
        )
}
