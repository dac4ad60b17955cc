//! The statements behind turns. Runs come into `active_runs` when they are recorded or retried, and
//! become due with whatever makes that necessary; only here they are taken.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, SystemTime},
};

use letterbox_common::ids::{AccountId, RunId, WorkspaceId};
use letterbox_database::{DatabaseError, FromRow, Row, RowError, Transaction, statements};
use tokio::try_join;
use uuid::Uuid;

use super::fairness::{Candidate, Lane, Position};
use crate::executor::record::TakenRun;

statements! {
    /// One look at a time, until the end of its transaction, which does not wait for the disk. A
    /// crash of the database may undo it as if it had not been: then nothing that its turns have
    /// written is left, either, and others have other tokens.
    pub fn lock_turns() = "
SELECT lock_turns(), set_config('synchronous_commit', 'off', true)";

    /// The same in a transaction that waits for the disk, and so do the looks of others then; false
    /// if it would wait for one of them.
    pub fn try_lock_turns() -> (bool,) = "SELECT try_lock_turns()";

    /// The workspaces that are held, and the accounts that wait for a token or their owner.
    fn what_is_held() -> Held = "
SELECT EXISTS (SELECT FROM all_workspaces WHERE one AND held_at IS NOT NULL) AS holds_all,
       ARRAY(SELECT workspace_id FROM workspaces WHERE held_at IS NOT NULL) AS held,
       ARRAY(SELECT workspace_id FROM waiting_accounts ORDER BY workspace_id, account_id)
           AS waiting_workspaces,
       ARRAY(SELECT account_id FROM waiting_accounts ORDER BY workspace_id, account_id) AS waiting";

    /// What other workers have taken and not let go of. Found by keys only: entries that an old
    /// snapshot keeps in an index cost nothing here. A worker that has reported last in the future
    /// may have died before the clock was set back: its leases would not end for as long.
    fn taken_by_others(worker: Uuid) -> Vec<TakenByOther> = "
SELECT a.workspace_id, a.run_id, a.due_at,
       w.seen_at > now() + interval '1 minute'
           AND a.due_at > now() + interval '10 minutes' AS is_lost,
       nullif(a.account_id, '00000000-0000-0000-0000-000000000000') AS account_id
FROM workers w
CROSS JOIN LATERAL unnest(w.workspaces, w.runs) AS t (workspace_id, run_id)
JOIN active_runs a ON a.workspace_id = ANY (ARRAY[t.workspace_id]) AND a.run_id = t.run_id
    AND a.state = 'taken'
WHERE (w.worker_id < $1 OR w.worker_id > $1) AND w.seen_at > now() - interval '1 hour'";

    /// Runs whose time has come and that have no lane yet, or whose lease is over, the oldest
    /// first. $2: whether to look at those, too, that have been due for long. Usually there are
    /// none, and where an old snapshot keeps dead entries, looking through them takes its time.
    /// Compares with `now()`, which does not change while the statement runs.
    fn runs_by_time(max: i64, all: bool) -> Vec<Candidate> = "
SELECT workspace_id, run_id,
       nullif(account_id, '00000000-0000-0000-0000-000000000000') AS account_id, due_at
FROM active_runs
WHERE (state = 'ready') IS FALSE AND due_at <= now()
  AND due_at > CASE WHEN $2 THEN '-infinity' ELSE now() - interval '5 minutes' END
ORDER BY due_at LIMIT $1";

    /// At most $3 lanes in which runs are ready, from behind a workspace and account round to them,
    /// and since when the first run of each is due.
    fn ready_lanes(workspace: Uuid, account: Uuid, most: i32) -> Vec<ReadyLane> = "
SELECT workspace_id, nullif(account_id, '00000000-0000-0000-0000-000000000000') AS account_id,
       due_at
FROM (
    SELECT * FROM ready_lanes($1, $2, $3)
    UNION ALL
    SELECT * FROM ready_lanes('00000000-0000-0000-0000-000000000000',
        '00000000-0000-0000-0000-000000000000', $3)
    WHERE (workspace_id, account_id) <= ($1, $2)
) AS lane LIMIT $3";

    /// The runs of some lanes that have been due for longest. None of a lane is older than $3. What
    /// a lane is compared with is bare: row security lets an index give the order only then.
    fn ready_runs(
        workspaces: &[WorkspaceId], accounts: &[Uuid], since: &[SystemTime], most: &[i64],
    ) -> Vec<Candidate> = "
SELECT lane.workspace_id, ready.run_id, ready.due_at,
       nullif(lane.account_id, '00000000-0000-0000-0000-000000000000') AS account_id
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::bigint[])
     AS lane (workspace_id, account_id, since, most)
CROSS JOIN LATERAL (
    SELECT run_id, due_at FROM active_runs a
    WHERE a.state = 'ready' AND a.workspace_id = lane.workspace_id
      AND a.account_id = lane.account_id AND a.due_at >= lane.since
    ORDER BY a.due_at LIMIT lane.most) AS ready";

    /// Those of these runs that this transaction has recorded: nobody else can lock them.
    pub fn recorded_runs(workspaces: &[WorkspaceId], runs: &[RunId]) -> Vec<Candidate> = "
SELECT a.workspace_id, a.run_id, a.due_at,
       nullif(a.account_id, '00000000-0000-0000-0000-000000000000') AS account_id
FROM unnest($1::uuid[], $2::uuid[]) AS t (workspace_id, run_id)
JOIN active_runs a ON a.workspace_id = ANY (ARRAY[t.workspace_id]) AND a.run_id = t.run_id
    AND (a.state = 'ready') IS TRUE AND a.xmin = pg_current_xact_id()::xid";

    /// Takes runs, unless somebody has set their time meanwhile, or has them locked: all workers
    /// wait for this.
    fn take_runs(
        workspaces: &[WorkspaceId], runs: &[RunId], due_at: &[SystemTime], lease_seconds: f64,
    ) -> Vec<TakenRun> = "
WITH free AS (
    SELECT a.workspace_id, a.run_id, a.started_at IS NULL AS is_first
    FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS t (workspace_id, run_id, due_at)
    JOIN active_runs a ON a.workspace_id = ANY (ARRAY[t.workspace_id]) AND a.run_id = t.run_id
        AND a.due_at = t.due_at
    FOR NO KEY UPDATE OF a SKIP LOCKED
)
UPDATE active_runs a SET state = 'taken', idle_turns = idle_turns + 1,
    turn = (random() * 9007199254740992)::bigint,
    started_at = coalesce(started_at, clock_timestamp()),
    due_at = clock_timestamp() + $4::float8 * interval '1 second'
FROM free t WHERE a.workspace_id = ANY (ARRAY[t.workspace_id]) AND a.run_id = t.run_id
RETURNING a.workspace_id, a.run_id, a.turn, t.is_first, a.idle_turns, a.is_cancelled,
    nullif(a.account_id, '00000000-0000-0000-0000-000000000000') AS account_id";

    /// Lets runs wait in their lanes, under the same conditions.
    fn let_wait(workspaces: &[WorkspaceId], runs: &[RunId], due_at: &[SystemTime]) = "
WITH free AS (
    SELECT a.workspace_id, a.run_id
    FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS t (workspace_id, run_id, due_at)
    JOIN active_runs a ON a.workspace_id = ANY (ARRAY[t.workspace_id]) AND a.run_id = t.run_id
        AND a.due_at = t.due_at
    FOR NO KEY UPDATE OF a SKIP LOCKED
)
UPDATE active_runs a SET state = 'ready'
FROM free t WHERE a.workspace_id = ANY (ARRAY[t.workspace_id]) AND a.run_id = t.run_id";

    /// Lets many runs whose time has come, or whose lease is over, wait in their lanes, the oldest
    /// first, without looking at each: also those behind more than a look takes up, which somebody
    /// keeps locked.
    pub fn let_due_wait(most: i64) -> u64 = "
WITH due AS (
    SELECT workspace_id, run_id FROM active_runs
    WHERE (state = 'ready') IS FALSE AND due_at <= now()
    ORDER BY due_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE active_runs a SET state = 'ready'
FROM due WHERE a.workspace_id = ANY (ARRAY[due.workspace_id]) AND a.run_id = due.run_id";

    /// Reports that a worker is alive, and what it has.
    fn report_worker(
        worker: Uuid, name: &str, places: i32, workspaces: &[WorkspaceId], runs: &[RunId],
    ) = "
INSERT INTO workers (worker_id, name, places, workspaces, runs) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (worker_id) DO UPDATE SET seen_at = clock_timestamp(),
    workspaces = EXCLUDED.workspaces, runs = EXCLUDED.runs";

    /// Forgets a worker that stops, and those that have been silent for a day.
    pub fn forget_worker(worker: Uuid) = "
DELETE FROM workers WHERE worker_id = $1 OR seen_at < now() - interval '1 day'";
}

/// What is known before anything is decided.
pub struct Seen {
    pub held: Held,
    pub taken_by_others: HashMap<(WorkspaceId, RunId), Lane>,
    /// Runs whose time has come, and that have no lane yet.
    pub due: Vec<Candidate>,
    /// Runs of workers that seem to have died before the clock was set back.
    pub lost: Vec<Candidate>,
    /// Lanes with ready runs, in their order from where the last look ended.
    pub lanes: Vec<ReadyLane>,
}

impl Seen {
    /// Lanes with ready runs that are not held.
    pub fn open_lanes(&self) -> impl Iterator<Item = &ReadyLane> {
        let lanes = self.lanes.iter();
        lanes.filter(|lane| !self.held.holds(&lane.lane))
    }
}

/// Runs without a turn.
#[derive(FromRow)]
pub struct Held {
    /// Nothing may begin.
    pub holds_all: bool,
    #[row(with = HashSet::from_iter::<Vec<WorkspaceId>>)]
    held: HashSet<WorkspaceId>,
    #[row(from = waiting_accounts)]
    accounts: HashSet<(WorkspaceId, AccountId)>,
}

fn waiting_accounts(row: &Row) -> Result<HashSet<(WorkspaceId, AccountId)>, RowError> {
    let workspaces: Vec<WorkspaceId> = row.try_get("waiting_workspaces")?;
    let accounts: Vec<AccountId> = row.try_get("waiting")?;
    Ok(workspaces.into_iter().zip(accounts).collect())
}

impl Held {
    pub fn holds(&self, lane: &Lane) -> bool {
        let account = lane.account.map(|account| (lane.workspace, account));
        self.held.contains(&lane.workspace)
            || account.is_some_and(|account| self.accounts.contains(&account))
    }
}

/// A run that another worker has taken.
#[derive(FromRow)]
struct TakenByOther {
    #[row(flatten)]
    run: Candidate,
    is_lost: bool,
}

/// A lane with ready runs, and since when its first one is due.
#[derive(FromRow)]
pub struct ReadyLane {
    #[row(flatten)]
    pub lane: Lane,
    pub due_at: SystemTime,
}

pub struct Report<'r> {
    pub worker: Uuid,
    pub name: &'r str,
    pub places: u16,
    pub workspaces: Vec<WorkspaceId>,
    pub runs: Vec<RunId>,
}

/// Looks what waits, once the turns are locked: at most `max` runs whose time has come, also those
/// that have been due for long if `all` is set, and at most `max_lanes` lanes behind one.
pub async fn see(
    transaction: &Transaction<'_>,
    worker: Uuid,
    behind: Position,
    max: usize,
    max_lanes: usize,
    all: bool,
) -> Result<Seen, DatabaseError> {
    let (workspace, account) = behind;
    let (held, others, due, lanes) = try_join!(
        biased;
        what_is_held(transaction),
        taken_by_others(transaction, worker),
        runs_by_time(transaction, max as i64, all),
        ready_lanes(transaction, workspace, account, max_lanes as i32),
    )?;
    let (lost, taken): (Vec<_>, Vec<_>) = others.into_iter().partition(|one| one.is_lost);
    let taken = taken.into_iter().map(|one| (one.run.key(), one.run.lane));
    let taken_by_others: HashMap<_, _> = taken.collect();
    // Another worker may have it by now.
    let lost = lost.into_iter().map(|one| one.run);
    let lost = lost.filter(|one| !taken_by_others.contains_key(&one.key()));
    Ok(Seen {
        held,
        lost: lost.collect(),
        taken_by_others,
        due,
        lanes,
    })
}

/// The first runs of lanes: of each those since a time, at most so many.
pub async fn first_runs(
    transaction: &Transaction<'_>,
    lanes: &[(Lane, SystemTime, usize)],
) -> Result<Vec<Candidate>, DatabaseError> {
    let columns = lanes
        .iter()
        .map(|(lane, since, most)| (lane.workspace, lane.position().1, *since, *most as i64));
    let (workspaces, accounts, since, most): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = columns.collect();
    ready_runs(transaction, &workspaces, &accounts, &since, &most).await
}

/// Takes some runs and lets others wait in their lanes; reports what this worker has then. Returns
/// the runs that it has taken.
pub async fn take(
    transaction: &Transaction<'_>,
    chosen: &[Candidate],
    waiting: &[Candidate],
    report: Option<Report<'_>>,
    lease: Duration,
) -> Result<Vec<TakenRun>, DatabaseError> {
    let (workspaces, runs, due_at) = columns(chosen);
    let let_wait = async || {
        if waiting.is_empty() {
            return Ok(());
        }
        let (workspaces, runs, due_at) = columns(waiting);
        let_wait(transaction, &workspaces, &runs, &due_at).await
    };
    let report = async || match &report {
        None => Ok(()),
        Some(one) => {
            let places = i32::from(one.places);
            let workspaces = &one.workspaces;
            let runs = &one.runs;
            report_worker(transaction, one.worker, one.name, places, workspaces, runs).await
        }
    };
    let lease = lease.as_secs_f64();
    let taken = take_runs(transaction, &workspaces, &runs, &due_at, lease);
    let (taken, (), ()) = try_join!(biased; taken, let_wait(), report())?;
    Ok(taken)
}

fn columns(runs: &[Candidate]) -> (Vec<WorkspaceId>, Vec<RunId>, Vec<SystemTime>) {
    let columns = runs.iter();
    columns
        .map(|one| (one.lane.workspace, one.run, one.due_at))
        .collect()
}
