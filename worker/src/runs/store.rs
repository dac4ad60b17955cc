//! Records runs: one transaction per batch queues or refuses each new submission, charges the
//! workspaces' allowances, and lets queued runs wait for their turn. If nothing else waits, they
//! have it at once.
//!
//! The transaction first locks the usage of every workspace it touches, in order of id: two workers
//! can't both use the last run of an allowance, and of two workers with the same message the second
//! one finds the run.

use std::{
    collections::{BTreeMap, HashSet},
    sync::atomic::{AtomicBool, Ordering},
};

use futures_util::FutureExt;
use jiff::Timestamp;
use letterbox_common::{
    form::lookup_ids,
    ids::{ReleaseId, RunId, WorkflowId, WorkspaceId},
};
use letterbox_database::{DatabaseError, FromRow, Transaction, Work, statements};
use tokio::try_join;

use super::NewRun;
use crate::{
    executor::{TakenAlong, Turns},
    metrics,
    recorder::{Recorded, Recorder},
};

statements! {
    /// Locks the usage of this month, creating missing rows. Returns the workspaces whose runs can
    /// be found by what was submitted: that is not changed while the usage is locked.
    fn lock_usage(tenants: &[WorkspaceId]) -> Vec<(WorkspaceId,)> = "
WITH locked AS (
    INSERT INTO run_usage (workspace_id, month)
    SELECT workspace_id, date_trunc('month', now() AT TIME ZONE 'UTC')
    FROM unnest($1::uuid[]) AS wanted (workspace_id)
    ORDER BY workspace_id
    ON CONFLICT (workspace_id, month) DO UPDATE SET started = run_usage.started
    RETURNING workspace_id
)
SELECT w.workspace_id FROM locked JOIN workspaces w USING (workspace_id) WHERE w.is_searchable";

    /// Inserts a batch of submissions as runs. Runs already recorded stay unchanged; refused runs
    /// keep no input. $10 are the lookup ids of submitted values, for each run as the server writes
    /// an array. A submission to a workflow that doesn't exist breaks a constraint instead of
    /// vanishing in a join.
    fn insert_runs(
        workspaces: &[WorkspaceId], runs: &[RunId], workflows: &[WorkflowId],
        releases: &[ReleaseId], received: &[Timestamp], requests: &[Option<&str>],
        traces: &[Option<&str>], inputs: &[&[u8]], max_daily_bytes: i64,
        found_by: &[Option<String>],
    ) -> Vec<Inserted> = "
WITH new AS (
    SELECT n.workspace_id, n.run_id, n.workflow_id, n.release_id, n.input, n.received_at,
           n.request_id, n.traceparent,
           w.owner_id, s.run_allowance, u.started,
           CASE WHEN s.is_searchable THEN n.found_by::uuid[] END AS found_by,
           CASE WHEN w.state = 'deleted' THEN 'workflow_unavailable'
                WHEN m.may_run IS NOT TRUE THEN 'owner_cannot_run'
                WHEN b.bytes >= $9 THEN 'storage_exhausted' END AS reason
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::timestamptz[], $6::text[],
                $7::text[], $8::bytea[], $10::text[])
         AS n (workspace_id, run_id, workflow_id, release_id, received_at, request_id, traceparent,
               input, found_by)
    LEFT JOIN workflows w ON w.workspace_id = n.workspace_id AND w.workflow_id = n.workflow_id
    LEFT JOIN members m ON m.workspace_id = n.workspace_id AND m.user_id = w.owner_id
    LEFT JOIN workspaces s ON s.workspace_id = n.workspace_id
    LEFT JOIN run_usage u
        ON u.workspace_id = n.workspace_id
        AND u.month = date_trunc('month', now() AT TIME ZONE 'UTC')
    LEFT JOIN stored_bytes b ON b.workspace_id = n.workspace_id
        AND b.day = (now() AT TIME ZONE 'UTC')::date
        AND b.webhook_id IS NULL
    WHERE (SELECT true FROM runs r
           WHERE r.workspace_id = n.workspace_id AND r.run_id = n.run_id) IS NULL
      AND (SELECT true FROM erased_runs e
           WHERE e.workspace_id = n.workspace_id AND e.run_id = n.run_id) IS NULL
), counted AS (
    SELECT new.*,
           started + row_number() OVER (PARTITION BY workspace_id, reason IS NULL ORDER BY run_id)
               AS place
    FROM new
), decided AS (
    SELECT counted.*,
           CASE WHEN reason IS NULL AND place > run_allowance THEN 'allowance_exhausted'
                ELSE reason END AS refused
    FROM counted
), inserted AS (
    INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state, refused_reason,
                      input, found_by, received_at, request_id, traceparent,
                      finished_at)
    SELECT workspace_id, run_id, workflow_id, release_id, owner_id,
           CASE WHEN refused IS NULL THEN 'queued' ELSE 'refused' END, refused,
           CASE WHEN refused IS NULL THEN input END,
           CASE WHEN refused IS NULL THEN found_by END, received_at, request_id, traceparent,
           CASE WHEN refused IS NOT NULL THEN clock_timestamp() END
    FROM decided ORDER BY workspace_id, run_id
    ON CONFLICT (workspace_id, run_id) DO NOTHING
    RETURNING workspace_id, run_id, workflow_id, release_id, run_as, state,
        coalesce(octet_length(input), 0) + 512 AS bytes
), active AS (
    INSERT INTO active_runs (workspace_id, run_id, account_id)
    SELECT i.workspace_id, i.run_id,
           coalesce((SELECT a.account_id FROM connected_accounts a
                     WHERE a.workspace_id = i.workspace_id AND a.user_id = i.run_as
                       AND a.name = r.first_account AND a.disconnected_at IS NULL),
                    '00000000-0000-0000-0000-000000000000')
    FROM inserted i LEFT JOIN releases r USING (workspace_id, workflow_id, release_id)
    WHERE i.state = 'queued'
), used AS (
    UPDATE run_usage u SET started = u.started + i.started
    FROM (SELECT workspace_id, count(*) AS started
          FROM inserted WHERE state = 'queued' GROUP BY workspace_id) AS i
    WHERE u.workspace_id = i.workspace_id
      AND u.month = date_trunc('month', now() AT TIME ZONE 'UTC')
)
SELECT workspace_id, count(*) FILTER (WHERE state = 'queued') AS queued,
       count(*) FILTER (WHERE state = 'refused') AS refused, sum(bytes)::bigint AS bytes
FROM inserted GROUP BY workspace_id";
}

impl Recorded for NewRun {
    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    async fn store(
        recorder: &Recorder,
        runs: &[&Self],
        spilled: &[i64],
    ) -> Result<(), DatabaseError> {
        let most = i64::try_from(recorder.max_daily_bytes).unwrap_or(i64::MAX);
        let mut batch = RecordRuns::of(runs, most);
        // What was spilled is late, and may be at fault.
        batch.turns = Some(&*recorder.turns).filter(|_| spilled.is_empty());
        let mut recorded = recorder.store("record_runs", &batch, spilled).await;
        let is_taking = batch.is_taking.load(Ordering::Relaxed);
        // No run is at fault for what failed while it was taken.
        if recorded.is_err() && is_taking && batch.turns.take().is_some() {
            recorded = recorder.store("record_runs", &batch, spilled).await;
        }
        let (inserted, taken) = recorded?;
        let (mut queued, mut refused) = (0, 0);
        for one in inserted {
            queued += one.queued;
            refused += one.refused;
            let stored = &recorder.stored_bytes;
            stored.add(one.workspace_id, None, one.bytes);
        }
        if taken.map_or(queued > 0, TakenAlong::start) {
            recorder.turns.hand.look();
        }
        let repeated = batch.runs.len() as u64 - queued - refused;
        for (outcome, count) in [
            ("queued", queued),
            ("refused", refused),
            ("repeated", repeated),
        ] {
            metrics::RUNS.add([outcome], count);
        }
        Ok(())
    }
}

/// A batch, sorted by key, each key once.
struct RecordRuns<'a> {
    runs: Vec<&'a NewRun>,
    /// Bytes that a workspace may store in a day.
    max_daily_bytes: i64,
    /// Takes the runs at once, if there is room.
    turns: Option<&'a Turns>,
    /// The insertion is under way, or done but for the commit, and has not failed.
    is_taking: AtomicBool,
}

/// The new runs of a workspace.
#[derive(FromRow)]
struct Inserted {
    workspace_id: WorkspaceId,
    #[row(with = i64::unsigned_abs)]
    queued: u64,
    #[row(with = i64::unsigned_abs)]
    refused: u64,
    #[row(with = i64::unsigned_abs)]
    bytes: u64,
}

impl<'a> RecordRuns<'a> {
    fn of(runs: &[&'a NewRun], max_daily_bytes: i64) -> Self {
        let by_key: BTreeMap<_, &'a NewRun> = runs
            .iter()
            .map(|run| ((run.workspace, run.run), *run))
            .collect();
        Self {
            runs: by_key.into_values().collect(),
            max_daily_bytes,
            turns: None,
            is_taking: AtomicBool::new(false),
        }
    }

    /// Lookup ids of the submitted values of each run, if its workspace is one of these.
    fn values(&self, searchable: &HashSet<WorkspaceId>) -> Vec<Option<String>> {
        let values = |run: &&NewRun| {
            let input = std::str::from_utf8(&run.input).unwrap_or_default();
            let is_found = searchable.contains(&run.workspace);
            let ids = is_found.then(|| lookup_ids(run.workspace, input));
            let ids: Vec<String> = ids?.iter().map(ToString::to_string).collect();
            (!ids.is_empty()).then(|| format!("{{{}}}", ids.join(",")))
        };
        self.runs.iter().map(values).collect()
    }
}

impl<'a> Work for RecordRuns<'a> {
    /// The new runs, and those of them that were taken at once.
    type Output = (Vec<Inserted>, Option<TakenAlong<'a>>);

    async fn run(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<Option<Self::Output>, DatabaseError> {
        let runs = self.runs.iter();
        let workspaces: Vec<_> = runs.clone().map(|run| run.workspace).collect();
        let mut tenants = workspaces.clone();
        tenants.dedup();
        let searchable = lock_usage(transaction, &tenants).await?;
        let values = self.values(&searchable.into_iter().map(|(id,)| id).collect());
        let ids = runs.clone().map(|run| (run.run, run.workflow, run.release));
        let (ids, workflows, releases): (Vec<_>, Vec<_>, Vec<_>) = ids.collect();
        let receipts = runs.clone().map(|run| &run.receipt);
        let receipts = receipts.map(|one| {
            let request: Option<&str> = one.request_id.as_deref();
            (one.received_at, request, one.followed())
        });
        let (received, requests, traces): (Vec<_>, Vec<_>, Vec<_>) = receipts.collect();
        let inputs: Vec<&[u8]> = runs.map(|run| &run.input[..]).collect();
        let inserted = insert_runs(
            transaction,
            &workspaces,
            &ids,
            &workflows,
            &releases,
            &received,
            &requests,
            &traces,
            &inputs,
            self.max_daily_bytes,
            &values,
        );
        self.is_taking.store(true, Ordering::Relaxed);
        let inserted = async {
            let inserted = inserted.await;
            self.is_taking.store(inserted.is_ok(), Ordering::Relaxed);
            inserted
        };
        let taken = async {
            match self.turns {
                Some(turns) => {
                    turns
                        .take_along(transaction, &workspaces, &ids)
                        .boxed()
                        .await
                }
                None => Ok(None),
            }
        };
        // At once, because most are new.
        try_join!(biased; inserted, taken).map(Some)
    }
}
