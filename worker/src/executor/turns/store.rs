//! The statements behind turns. Runs come into `active_runs` when they are recorded or retried, and
//! become due with whatever makes that necessary; only here they are taken.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, SystemTime},
};

use letterbox_common::ids::{AccountId, RunId, WorkspaceId};
use letterbox_database::{
    BoundStatement, DatabaseError, FromRow, Row, RowError, Statement, Transaction, statements,
};
use uuid::Uuid;

use super::fairness::{Candidate, Lane};
use crate::executor::record::{TakenRun, Turn};

statements! {
    /// One look at a time, until the end of its transaction, which does not wait for the disk. A
    /// crash of the database may undo it as if it had not been: then nothing that its turns have
    /// written is left, either, and others have other tokens.
    LOCK_TURNS = lock_turns "
SELECT lock_turns(), set_config('synchronous_commit', 'off', true)";

    /// The workspaces that are held, and the accounts that wait for a token or their owner.
    HELD = what_is_held "
SELECT EXISTS (SELECT FROM all_workspaces WHERE held_at IS NOT NULL) AS holds_all,
       ARRAY(SELECT workspace_id FROM workspaces WHERE held_at IS NOT NULL) AS held,
       ARRAY(SELECT workspace_id FROM waiting_accounts ORDER BY workspace_id, account_id)
           AS waiting_workspaces,
       ARRAY(SELECT account_id FROM waiting_accounts ORDER BY workspace_id, account_id) AS waiting";

    /// What other workers have taken and not let go of. Found by keys only: entries that an old
    /// snapshot keeps in an index cost nothing here. A worker that has reported last in the future
    /// may have died before the clock was set back: its leases would not end for as long.
    TAKEN_BY_OTHERS = taken_by_others "
SELECT a.workspace_id, a.run_id, a.due_at,
       w.seen_at > now() + interval '1 minute'
           AND a.due_at > now() + interval '10 minutes' AS is_lost,
       nullif(a.account_id, '00000000-0000-0000-0000-000000000000') AS account_id
FROM workers w
CROSS JOIN LATERAL unnest(w.workspaces, w.runs) AS t (workspace_id, run_id)
JOIN active_runs a ON a.workspace_id = t.workspace_id AND a.run_id = t.run_id
    AND a.state = 'taken'
WHERE w.worker_id <> $1 AND w.seen_at > now() - interval '1 hour'";

    /// Runs whose time has come and that have no lane yet, or whose lease is over, the oldest
    /// first. $2: whether to look at those, too, that have been due for long. Usually there are
    /// none, and where an old snapshot keeps dead entries, looking through them takes its time.
    /// Compares with `now()`, which does not change while the statement runs.
    RUNS_BY_TIME = runs_by_time "
SELECT workspace_id, run_id,
       nullif(account_id, '00000000-0000-0000-0000-000000000000') AS account_id, due_at
FROM active_runs
WHERE (state = 'ready') IS FALSE AND due_at <= now()
  AND due_at > CASE WHEN $2 THEN '-infinity' ELSE now() - interval '5 minutes' END
ORDER BY due_at LIMIT $1";

    /// At most $3 lanes in which runs are ready, from behind a workspace and account round to them,
    /// and since when the first run of each is due.
    READY_LANES = ready_lanes "
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

    /// Takes runs, unless somebody has set their time meanwhile, or has them locked: all workers
    /// wait for this.
    TAKE_RUNS = take_runs "
WITH free AS (
    SELECT a.workspace_id, a.run_id, a.started_at IS NULL AS is_first
    FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS t (workspace_id, run_id, due_at)
    JOIN active_runs a ON a.workspace_id = t.workspace_id AND a.run_id = t.run_id
        AND a.due_at = t.due_at
    FOR NO KEY UPDATE OF a SKIP LOCKED
)
UPDATE active_runs a SET state = 'taken', idle_turns = idle_turns + 1,
    turn = (random() * 9007199254740992)::bigint,
    started_at = coalesce(started_at, clock_timestamp()),
    due_at = clock_timestamp() + $4::float8 * interval '1 second'
FROM free t WHERE a.workspace_id = t.workspace_id AND a.run_id = t.run_id
RETURNING a.workspace_id, a.run_id, a.turn, t.is_first, a.idle_turns, a.is_cancelled,
    nullif(a.account_id, '00000000-0000-0000-0000-000000000000') AS account_id";

    /// Lets runs wait in their lanes, under the same conditions.
    LET_WAIT = let_wait "
WITH free AS (
    SELECT a.workspace_id, a.run_id
    FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS t (workspace_id, run_id, due_at)
    JOIN active_runs a ON a.workspace_id = t.workspace_id AND a.run_id = t.run_id
        AND a.due_at = t.due_at
    FOR NO KEY UPDATE OF a SKIP LOCKED
)
UPDATE active_runs a SET state = 'ready'
FROM free t WHERE a.workspace_id = t.workspace_id AND a.run_id = t.run_id";

    /// Lets many runs whose time has come, or whose lease is over, wait in their lanes, the oldest
    /// first, without looking at each: also those behind more than a look takes up, which somebody
    /// keeps locked.
    pub(super) fn let_due_wait(most: i64) -> u64 = "
WITH due AS (
    SELECT workspace_id, run_id FROM active_runs
    WHERE (state = 'ready') IS FALSE AND due_at <= now()
    ORDER BY due_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE active_runs a SET state = 'ready'
FROM due WHERE a.workspace_id = due.workspace_id AND a.run_id = due.run_id";

    /// Reports that a worker is alive, and what it has.
    REPORT = report_worker "
INSERT INTO workers (worker_id, name, places, workspaces, runs) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (worker_id) DO UPDATE SET seen_at = clock_timestamp(),
    workspaces = EXCLUDED.workspaces, runs = EXCLUDED.runs";

    /// Forgets a worker that stops, and those that have been silent for a day.
    pub(super) fn forget_worker(worker: Uuid) = "
DELETE FROM workers WHERE worker_id = $1 OR seen_at < now() - interval '1 day'";
}

/// A run by its workspace and id.
type Key = (WorkspaceId, RunId);

/// What is known before anything is decided.
pub(super) struct Seen {
    /// Nothing may begin.
    pub(super) holds_all: bool,
    pub(super) held: Held,
    pub(super) taken_by_others: HashMap<Key, Lane>,
    /// Runs whose time has come, and that have no lane yet.
    pub(super) due: Vec<Candidate>,
    /// Runs of workers that seem to have died before the clock was set back.
    pub(super) lost: Vec<Candidate>,
    /// Lanes with ready runs, each with the time since when its first one is due.
    pub(super) lanes: Vec<(Lane, SystemTime)>,
}

/// Whose runs have no turn.
pub(super) struct Held {
    workspaces: HashSet<WorkspaceId>,
    accounts: HashSet<(WorkspaceId, AccountId)>,
}

impl Held {
    pub(super) fn holds(&self, lane: &Lane) -> bool {
        let account = lane.account.map(|account| (lane.workspace, account));
        self.workspaces.contains(&lane.workspace)
            || account.is_some_and(|account| self.accounts.contains(&account))
    }
}

/// What a worker reports.
pub(super) struct Report<'r> {
    pub(super) worker: Uuid,
    pub(super) name: &'r str,
    pub(super) places: u16,
    pub(super) workspaces: Vec<WorkspaceId>,
    pub(super) runs: Vec<RunId>,
}

/// Locks the turns, and looks what waits: at most `max` runs whose time has come, also those that
/// have been due for long if `all` is set, and at most `max_lanes` lanes behind one.
pub(super) async fn see(
    transaction: &Transaction<'_>,
    worker: Uuid,
    behind: Option<Lane>,
    max: usize,
    max_lanes: usize,
    all: bool,
) -> Result<Seen, DatabaseError> {
    let id = |bytes: &[u8; 16]| Uuid::from_bytes(*bytes);
    let workspace = behind.map_or(Uuid::nil(), |lane| id(lane.workspace.as_bytes()));
    // Without an account: behind all of the workspace.
    let account = behind.map_or(Uuid::nil(), |lane| match lane.account {
        Some(_) => account_of(lane),
        None => Uuid::max(),
    });
    let statements = [
        BoundStatement::new(&LOCK_TURNS),
        BoundStatement::new(&HELD),
        BoundStatement::new(&TAKEN_BY_OTHERS).bind(/* $1 worker_id */ worker),
        BoundStatement::new(&RUNS_BY_TIME)
            .bind(/* $1 max */ max as i64)
            .bind(/* $2 all */ all),
        BoundStatement::new(&READY_LANES)
            .bind(/* $1 workspace_id */ workspace)
            .bind(/* $2 account_id */ account)
            .bind(/* $3 most */ max_lanes as i32),
    ];
    let mut results = transaction.pipeline(&statements).await?.into_iter().skip(1);
    let missing = || DatabaseError::rolled_back(HELD.name);
    let mut next = || results.next().ok_or_else(missing);
    let (hold, others, due, lanes) = (next()?, next()?, next()?, next()?);
    let hold = hold.first().ok_or_else(missing)?;
    let held: Vec<WorkspaceId> = hold.try_get("held")?;
    let of: Vec<WorkspaceId> = hold.try_get("waiting_workspaces")?;
    let waiting: Vec<AccountId> = hold.try_get("waiting")?;
    let taken = |row: &Row| -> Result<(Key, Lane), RowError> {
        Ok(((lane(row)?.workspace, row.try_get("run_id")?), lane(row)?))
    };
    let since = |row| Ok((lane(row)?, Row::try_get(row, "due_at")?));
    let (mut lost, mut taken_by_others) = (Vec::new(), HashMap::new());
    for row in &others {
        if row.try_get("is_lost")? {
            lost.push(Candidate::from_row(row)?);
        } else {
            let (key, lane) = taken(row)?;
            taken_by_others.insert(key, lane);
        }
    }
    // Another worker may have it by now.
    lost.retain(|one: &Candidate| !taken_by_others.contains_key(&(one.lane.workspace, one.run)));
    Ok(Seen {
        holds_all: hold.try_get("holds_all")?,
        held: Held {
            workspaces: held.into_iter().collect(),
            accounts: of.into_iter().zip(waiting).collect(),
        },
        taken_by_others,
        due: due
            .iter()
            .map(Candidate::from_row)
            .collect::<Result<_, _>>()?,
        lost,
        lanes: lanes.iter().map(since).collect::<Result<_, RowError>>()?,
    })
}

/// The first runs of lanes: of each those since a time, at most so many.
pub(super) async fn first_runs(
    transaction: &Transaction<'_>,
    lanes: &[(Lane, SystemTime, usize)],
) -> Result<Vec<Candidate>, DatabaseError> {
    let workspaces: Vec<WorkspaceId> = lanes.iter().map(|(lane, ..)| lane.workspace).collect();
    let accounts: Vec<Uuid> = lanes.iter().map(|(lane, ..)| account_of(*lane)).collect();
    let since: Vec<SystemTime> = lanes.iter().map(|(_, since, _)| *since).collect();
    let most: Vec<i64> = lanes.iter().map(|(.., most)| *most as i64).collect();
    ready_runs(transaction, &workspaces, &accounts, &since, &most).await
}

/// Takes some runs and lets others wait in their lanes; reports what this worker has then. Returns
/// the runs that it has taken.
pub(super) async fn take(
    transaction: &Transaction<'_>,
    chosen: &[Candidate],
    waiting: &[Candidate],
    report: Option<Report<'_>>,
    lease: Duration,
) -> Result<Vec<TakenRun>, DatabaseError> {
    let take = keyed(&TAKE_RUNS, chosen).bind(/* $4 lease_seconds */ lease.as_secs_f64());
    let mut statements = vec![take];
    if !waiting.is_empty() {
        statements.push(keyed(&LET_WAIT, waiting));
    }
    statements.extend(report.map(|report| {
        BoundStatement::new(&REPORT)
            .bind(/* $1 worker_id */ report.worker)
            .bind(/* $2 name */ report.name)
            .bind(/* $3 places */ i32::from(report.places))
            .bind(/* $4 workspaces */ report.workspaces)
            .bind(/* $5 runs */ report.runs)
    }));
    let results = transaction.pipeline(&statements).await?;
    let taken = results.first().into_iter().flatten().map(|row| {
        Ok(TakenRun {
            turn: Turn {
                workspace: row.try_get("workspace_id")?,
                run: row.try_get("run_id")?,
                token: row.try_get("turn")?,
            },
            is_first: row.try_get("is_first")?,
            idle_turns: row.try_get("idle_turns")?,
            is_cancelled: row.try_get("is_cancelled")?,
            account: row.try_get("account_id")?,
        })
    });
    taken.collect()
}

/// A statement over runs by key and time.
fn keyed<'p>(statement: &'static Statement, runs: &[Candidate]) -> BoundStatement<'p> {
    BoundStatement::new(statement)
        .column(
            /* $1 workspace_id */ runs.iter().map(|one| one.lane.workspace),
        )
        .column(/* $2 run_id */ runs.iter().map(|one| one.run))
        .column(/* $3 due_at */ runs.iter().map(|one| one.due_at))
}

/// The account of a lane, as it is stored: nil if it is not known.
fn account_of(lane: Lane) -> Uuid {
    let account = lane.account.as_ref().map(AccountId::as_bytes);
    account.map_or(Uuid::nil(), |bytes| Uuid::from_bytes(*bytes))
}

fn lane(row: &Row) -> Result<Lane, RowError> {
    Ok(Lane {
        workspace: row.try_get("workspace_id")?,
        account: row.try_get("account_id")?,
    })
}

impl FromRow for Candidate {
    fn from_row(row: &Row) -> Result<Self, RowError> {
        Ok(Self {
            run: row.try_get("run_id")?,
            lane: lane(row)?,
            due_at: row.try_get("due_at")?,
        })
    }
}
