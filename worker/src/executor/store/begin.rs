//! Beginning attempts. Everything that an attempt was decided by is asked again by the statement
//! that begins it: the turn, a cancellation, a hold, the user's right to run, the account, the
//! version of the policy, the approval, and whether an earlier attempt was answered meanwhile.

use std::{collections::HashMap, time::Duration};

use letterbox_database::{Database, DatabaseError, FromRow, Transaction, Work, statements};
use tokio::try_join;
use uuid::Uuid;

use super::{
    TurnKey, hold_runs, key,
    rows::{ActionRow, RunRow},
    unless_empty,
    write::record_changes,
};
use crate::executor::{MARGIN, transition::Beginning};

statements! {
    /// Locks actions that people were asked about.
    fn lock_asked(actions: &[RunRow<'_>]) = "
SELECT FROM unnest($1::run_change[]) AS i
JOIN run_actions a ON a.workspace_id = i.workspace_id AND a.run_id = i.run_id
    AND a.action_id = i.action_id
ORDER BY a.workspace_id, a.run_id FOR NO KEY UPDATE OF a";

    /// Begins attempts, each if everything that it was decided by still holds. The same attempt of
    /// the same turn may begin twice, which changes nothing: nobody else can have begun it. Until
    /// it is answered it may have been done.
    fn begin_attempts(
        attempts: &[ActionRow<'_>], lease_seconds: f64, margin_seconds: f64,
    ) -> Vec<BegunAttempt> = "
WITH may AS (
    SELECT i.* FROM unnest($1::action_change[]) AS i
    JOIN active_runs a ON a.workspace_id = ANY (ARRAY[i.workspace_id])
        AND a.run_id = ANY (ARRAY[i.run_id])
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
           kind, 'running', untrusted, steered_by, gen_random_uuid(), part_of, decision,
           decision_rule, policy_version, request, begun + 1, answered, 1
    FROM may
    ON CONFLICT (workspace_id, run_id, action_id) DO UPDATE SET
        state = 'running', decision = EXCLUDED.decision, decision_rule = EXCLUDED.decision_rule,
        policy_version = EXCLUDED.policy_version, request = coalesce(a.request, EXCLUDED.request),
        begun = EXCLUDED.begun,
        unanswered = a.unanswered + EXCLUDED.begun - a.begun,
        -- What it has failed with stays until it is answered.
        finished_at = NULL, branch = NULL, retry_at = NULL, answer_sealed = NULL
    WHERE a.begun IN (EXCLUDED.begun - 1, EXCLUDED.begun) AND a.answered = EXCLUDED.answered
    RETURNING workspace_id, run_id, idempotency_key
), renewed AS (
    UPDATE active_runs a
    -- For longer than this attempt needs, so that not every one renews it.
    SET due_at = clock_timestamp()
        + greatest($2::float8, m.lasts + $3 + $2 / 2) * interval '1 second'
    FROM may m WHERE a.workspace_id = ANY (ARRAY[m.workspace_id]) AND a.run_id = m.run_id
      AND a.due_at < clock_timestamp() + (m.lasts + $3::float8) * interval '1 second'
)
SELECT workspace_id, run_id, idempotency_key FROM begun";

    /// Shows that runs go on whose actions have begun that people were asked about: a question that
    /// is not asked any more is withdrawn.
    fn withdraw_questions(actions: &[RunRow<'_>]) = "
WITH begun AS (
    SELECT i.* FROM unnest($1::run_change[]) AS i
    JOIN active_runs t ON t.workspace_id = ANY (ARRAY[i.workspace_id])
        AND t.run_id = ANY (ARRAY[i.run_id]) AND t.state = 'taken' AND t.turn = i.turn
    JOIN run_actions a ON a.workspace_id = i.workspace_id AND a.run_id = i.run_id
        AND a.action_id = i.action_id AND a.state = 'running'
), withdrawn AS (
    UPDATE approvals p SET state = 'withdrawn', decided_at = clock_timestamp()
    FROM begun b WHERE p.workspace_id = b.workspace_id AND p.run_id = b.run_id
      AND p.action_id = b.action_id AND (p.state = 'pending') IS TRUE
)
UPDATE runs r SET state = 'running' FROM begun b
WHERE r.workspace_id = b.workspace_id AND r.run_id = b.run_id AND r.state = 'waiting_approval'";
}

#[derive(FromRow)]
struct BegunAttempt {
    #[row(from = key)]
    run: TurnKey,
    idempotency_key: Uuid,
}

/// Begins attempts, of each run at most one. Returns the idempotency key of each, in their order;
/// `None` if something does not hold any more. Doing it again changes nothing.
///
/// # Errors
/// When the database does not answer: whether they have begun is then unknown. Permanent when it
/// refuses one of them.
pub async fn begin(
    database: &Database,
    beginnings: &[&Beginning],
    lease: Duration,
) -> Result<Vec<Option<Uuid>>, DatabaseError> {
    let name = "begin_attempts";
    let begin = BeginAttempts { beginnings, lease };
    let begun = database.transaction(name, &begin).await?;
    begun.ok_or_else(|| DatabaseError::rolled_back(name))
}

/// The same in a transaction.
pub struct BeginAttempts<'b> {
    pub beginnings: &'b [&'b Beginning],
    pub lease: Duration,
}

impl Work for BeginAttempts<'_> {
    type Output = Vec<Option<Uuid>>;

    async fn run(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<Option<Self::Output>, DatabaseError> {
        let all = || self.beginnings.iter().copied();
        let asked = all().filter(|one| one.was_asked);
        let asked = Vec::from_iter(asked.map(|one| RunRow::of_action(one.turn, &one.action)));
        let turns = Vec::from_iter(all().map(|one| RunRow::of_turn(one.turn)));
        let before = all().filter_map(|one| ActionRow::happened(one.turn, &one.before));
        let before = Vec::from_iter(before);
        let attempts = Vec::from_iter(all().map(ActionRow::begun));
        let lease = self.lease.as_secs_f64();
        let margin = MARGIN.as_secs_f64();
        let ((), _, _, begun, ()) = try_join!(
            biased;
            unless_empty(&asked, |asked| lock_asked(transaction, asked)),
            // The statement that begins looks again at what holds once the rows are locked.
            hold_runs(transaction, &turns),
            unless_empty(&before, |before| record_changes(transaction, before)),
            begin_attempts(transaction, &attempts, lease, margin),
            unless_empty(&asked, |asked| withdraw_questions(transaction, asked)),
        )?;
        let begun = begun.into_iter().map(|one| (one.run, one.idempotency_key));
        let begun: HashMap<_, _> = begun.collect();
        let keys = all().map(|one| begun.get(&one.turn.key()).copied());
        Ok(Some(keys.collect()))
    }
}
