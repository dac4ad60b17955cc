//! The statements behind the outbox. Rows come into it, and become due, with whatever makes them
//! necessary (`executor/store/step.rs`, `runs/store.rs`, the answer to an approval); here is what
//! the relay does with them. Only the relay that holds the lease lets them be ready, or hands them
//! over.

use std::{
    collections::{BTreeMap, HashSet},
    time::SystemTime,
};

use letterbox_common::{
    ids::{AccountId, RunId, WorkspaceId},
    states::WakeState,
};
use letterbox_database::{BoundStatement, Database, DatabaseError, Transaction, statements};
use tokio_postgres::Row;
use uuid::Uuid;

use super::fairness::{Candidate, Lane};

statements! {
    /// Says that a worker is alive, and with how many places.
    NOTE_WORKER = note_worker "
INSERT INTO workers (worker_id, name, places) VALUES ($1, $2, $3)
ON CONFLICT (worker_id) DO UPDATE SET seen_at = clock_timestamp()";

    /// Forgets a worker that stops, and those that have been silent for a day; gives its relay's
    /// place to another one.
    FORGET_WORKER = forget_worker "
WITH lease AS (
    UPDATE relay_lease SET until_at = '-infinity' WHERE worker_id = $1
)
DELETE FROM workers WHERE worker_id = $1 OR seen_at < now() - interval '1 day'";

    /// Whether the lease is this worker's, or nobody's.
    MAY_LEAD = may_lead "
SELECT worker_id IS NOT DISTINCT FROM $1 OR until_at <= clock_timestamp() AS may_lead
FROM relay_lease";

    /// One relay at a time, until the end of its transaction. Taken before anything is read, so
    /// that what is read holds.
    LOCK_RELAY = lock_relay "SELECT pg_try_advisory_xact_lock(3829, 18) AS is_alone";

    /// Takes the lease when it is over, or renews the own one before it is.
    TAKE_LEASE = take_lease "
UPDATE relay_lease SET worker_id = $1, until_at = clock_timestamp() + interval '2 seconds'
WHERE CASE WHEN worker_id IS NOT DISTINCT FROM $1
    THEN until_at < clock_timestamp() + interval '1 second'
    ELSE until_at <= clock_timestamp() END";

    /// Whose lease it is, for how many runs the workers have places, and which workspaces are held.
    LEASE_AND_PLACES = lease_and_places "
SELECT worker_id = $1 AS is_mine,
       EXISTS (SELECT FROM all_workspaces WHERE held_at IS NOT NULL) AS holds_all,
       ARRAY(SELECT workspace_id FROM workspaces WHERE held_at IS NOT NULL) AS held,
       (SELECT coalesce(sum(places), 0) FROM workers
        WHERE seen_at > clock_timestamp() - interval '30 seconds') AS places
FROM relay_lease";

    /// Wakes that are due, the oldest first; ready ones are not among them. $2: whether to look at
    /// those, too, that have been due for long. Usually there are none, and where an old snapshot
    /// keeps dead entries from being cleared away, looking through them takes its time. Searched by
    /// `now()`, which does not change while the statement runs, as `clock_timestamp()` does.
    DUE_WAKES = due_wakes "
SELECT workspace_id, run_id, nullif(account_id, '00000000-0000-0000-0000-000000000000')
           AS account_id, state, handovers, due_at
FROM run_wakes
WHERE state <> 'ready' AND due_at <= now()
  AND due_at > CASE WHEN $2 THEN '-infinity' ELSE now() - interval '5 minutes' END
ORDER BY due_at LIMIT $1";

    /// Which of these are in flight no more. Found by their keys only: the index of what is in
    /// flight is small, but not where an old snapshot keeps what was.
    LANDED_WAKES = landed_wakes "
SELECT known.workspace_id, known.run_id
FROM unnest($1::uuid[], $2::uuid[]) AS known (workspace_id, run_id)
LEFT JOIN run_wakes w ON w.workspace_id = known.workspace_id AND w.run_id = known.run_id
WHERE w.state IS DISTINCT FROM 'handed_over'";

    /// Everything that is in flight.
    WAKES_IN_FLIGHT = wakes_in_flight "
SELECT workspace_id, run_id, nullif(account_id, '00000000-0000-0000-0000-000000000000')
           AS account_id
FROM run_wakes WHERE state = 'handed_over'";

    /// Every lane in which wakes are ready, and since when the first of them is due.
    READY_LANES = ready_lanes "
SELECT workspace_id, due_at,
       nullif(account_id, '00000000-0000-0000-0000-000000000000') AS account_id
FROM ready_lanes";

    /// The wakes of some lanes that are due for longest. None of a lane is older than $3.
    READY_WAKES = ready_wakes "
SELECT lane.workspace_id, lane.account_id, ready.run_id, ready.due_at
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::bigint[])
     AS lane (workspace_id, account_id, since, most)
CROSS JOIN LATERAL (
    SELECT run_id, due_at FROM run_wakes w
    WHERE w.state = 'ready' AND w.workspace_id = lane.workspace_id
      AND w.account_id = coalesce(lane.account_id, '00000000-0000-0000-0000-000000000000')
      AND w.due_at >= lane.since
    ORDER BY w.due_at LIMIT lane.most) AS ready";

    /// Hands over, unless somebody has set the time meanwhile. Due again after 30 seconds, or twice
    /// as long as the last time: should the broker lose it, or this process end before it
    /// publishes, it is handed over once more.
    HAND_OVER = hand_over "
UPDATE run_wakes w SET state = 'handed_over', handovers = handovers + 1, due_at = clock_timestamp()
    + least(interval '30 seconds' * 2 ^ least(handovers, 10), interval '1 hour')
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS taken (workspace_id, run_id, due_at)
WHERE w.workspace_id = taken.workspace_id AND w.run_id = taken.run_id AND w.due_at = taken.due_at
RETURNING w.workspace_id, w.run_id, w.due_at,
    nullif(w.account_id, '00000000-0000-0000-0000-000000000000') AS account_id";

    /// Lets wakes be ready, unless somebody has set their time meanwhile.
    LET_WAIT = let_wait "
UPDATE run_wakes w SET state = 'ready'
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS due (workspace_id, run_id, due_at)
WHERE w.workspace_id = due.workspace_id AND w.run_id = due.run_id AND w.due_at = due.due_at";

    /// Takes wakes back that the broker did not take.
    TAKE_BACK = take_back "
UPDATE run_wakes w SET state = 'scheduled', due_at = clock_timestamp()
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS lost (workspace_id, run_id, due_at)
WHERE w.workspace_id = lost.workspace_id AND w.run_id = lost.run_id AND w.due_at = lost.due_at
  AND w.state = 'handed_over'";

    /// Wakes again what arrived where no executor is. After a while, so that it does not go round
    /// in a circle.
    WAKE_AGAIN = wake_again "
INSERT INTO run_wakes (workspace_id, run_id, due_at)
SELECT r.workspace_id, r.run_id, clock_timestamp() + interval '1 second'
FROM unnest($1::uuid[], $2::uuid[]) AS lost (workspace_id, run_id)
JOIN runs r ON r.workspace_id = lost.workspace_id AND r.run_id = lost.run_id
    AND r.state IN ('queued', 'running', 'waiting_approval')
ORDER BY r.workspace_id, r.run_id
ON CONFLICT (workspace_id, run_id) DO UPDATE
SET due_at = least(run_wakes.due_at, EXCLUDED.due_at), handovers = 0
WHERE run_wakes.state <> 'ready'";
}

/// A wake whose time has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct DueWake {
    pub(super) candidate: Candidate,
    /// It was handed over before.
    pub(super) is_in_flight: bool,
    /// How often, since a worker took the run.
    pub(super) handovers: i32,
}

/// Where wakes are ready, and a time before which none of them was due.
pub(super) type Lanes = BTreeMap<Lane, SystemTime>;

/// A wake that was handed over, until a time.
#[derive(Debug, Clone)]
pub(super) struct HandedOver {
    pub(super) run: RunId,
    pub(super) lane: Lane,
    due_at: SystemTime,
}

/// What a relay is told before anything else.
#[derive(Default)]
pub(super) struct Standing {
    /// No other relay is at work, and the lease is this one's.
    pub(super) leads: bool,
    /// Runs that the workers execute at once, all together; none while everything is held.
    pub(super) places: usize,
    /// Workspaces whose runs wait.
    pub(super) held: HashSet<WorkspaceId>,
}

fn lane(row: &Row) -> Result<Lane, tokio_postgres::Error> {
    Ok(Lane {
        workspace: row.try_get("workspace_id")?,
        account: row.try_get("account_id")?,
    })
}

/// Says that the worker is alive.
pub(super) async fn note_worker(
    database: &Database,
    worker: Uuid,
    name: &str,
    places: u16,
) -> Result<(), DatabaseError> {
    let places = i32::from(places);
    database
        .execute(&NOTE_WORKER, &[&worker, &name, &places])
        .await
        .map(drop)
}

/// Forgets a worker that stops.
pub(super) async fn forget_worker(database: &Database, worker: Uuid) -> Result<(), DatabaseError> {
    database.execute(&FORGET_WORKER, &[&worker]).await.map(drop)
}

/// Whether this worker's relay may hand over.
pub(super) async fn may_lead(database: &Database, worker: Uuid) -> Result<bool, DatabaseError> {
    let row = database.query_one(&MAY_LEAD, &[&worker]).await?;
    Ok(row.try_get("may_lead")?)
}

/// What a relay has to know of the outbox, beside what it remembers.
pub(super) struct News {
    pub(super) standing: Standing,
    pub(super) due: Vec<DueWake>,
    /// Of what is known to be in flight, what is not any more.
    pub(super) landed: Vec<(WorkspaceId, RunId)>,
}

/// Locks the relay, and asks for the news: at most `max` due wakes, also those that have been due
/// for long where it shall look at `all`.
pub(super) async fn news(
    transaction: &Transaction<'_>,
    worker: Uuid,
    known: (&[WorkspaceId], &[RunId]),
    max: usize,
    all: bool,
) -> Result<News, DatabaseError> {
    let statements = [
        BoundStatement::new(&LOCK_RELAY),
        BoundStatement::new(&TAKE_LEASE).bind(/* $1 worker_id */ worker),
        BoundStatement::new(&LEASE_AND_PLACES).bind(/* $1 worker_id */ worker),
        BoundStatement::new(&DUE_WAKES)
            .bind(/* $1 max */ max as i64)
            .bind(/* $2 all */ all),
        BoundStatement::new(&LANDED_WAKES)
            .bind(/* $1 workspace_id */ known.0)
            .bind(/* $2 run_id */ known.1),
    ];
    let mut results = transaction.pipeline(&statements).await?.into_iter();
    let mut next = || results.next().unwrap_or_default();
    let (lock, _, lease, due, landed) = (next(), next(), next(), next(), next());
    Ok(News {
        standing: standing(lock.first(), lease.first())?,
        due: due.iter().map(due_wake).collect::<Result<_, _>>()?,
        landed: landed.iter().map(key).collect::<Result<_, _>>()?,
    })
}

fn standing(lock: Option<&Row>, lease: Option<&Row>) -> Result<Standing, tokio_postgres::Error> {
    let (Some(lock), Some(lease)) = (lock, lease) else {
        return Ok(Standing::default());
    };
    let is_mine: Option<bool> = lease.try_get("is_mine")?;
    let places: i64 = match lease.try_get("holds_all")? {
        true => 0,
        false => lease.try_get("places")?,
    };
    let held: Vec<WorkspaceId> = lease.try_get("held")?;
    Ok(Standing {
        leads: lock.try_get("is_alone")? && is_mine.unwrap_or_default(),
        places: usize::try_from(places).unwrap_or_default(),
        held: held.into_iter().collect(),
    })
}

fn due_wake(row: &Row) -> Result<DueWake, tokio_postgres::Error> {
    Ok(DueWake {
        candidate: candidate(row)?,
        is_in_flight: row.try_get::<_, WakeState>("state")? == WakeState::HandedOver,
        handovers: row.try_get("handovers")?,
    })
}

fn candidate(row: &Row) -> Result<Candidate, tokio_postgres::Error> {
    Ok(Candidate {
        run: row.try_get("run_id")?,
        lane: lane(row)?,
        due_at: row.try_get("due_at")?,
    })
}

fn key(row: &Row) -> Result<(WorkspaceId, RunId), tokio_postgres::Error> {
    Ok((row.try_get("workspace_id")?, row.try_get("run_id")?))
}

/// Everything that is in flight, and every lane in which wakes are ready.
pub(super) async fn everything(
    transaction: &Transaction<'_>,
) -> Result<(Vec<(RunId, Lane)>, Lanes), DatabaseError> {
    let statements = [
        BoundStatement::new(&WAKES_IN_FLIGHT),
        BoundStatement::new(&READY_LANES),
    ];
    let mut results = transaction.pipeline(&statements).await?.into_iter();
    let (in_flight, lanes) = (results.next(), results.next());
    let run = |row| Ok((Row::try_get(row, "run_id")?, lane(row)?));
    let since = |row| Ok((lane(row)?, row.try_get("due_at")?));
    let in_flight = in_flight.iter().flatten().map(run);
    let lanes = lanes.iter().flatten().map(since);
    Ok((
        in_flight.collect::<Result<_, tokio_postgres::Error>>()?,
        lanes.collect::<Result<_, tokio_postgres::Error>>()?,
    ))
}

/// The first wakes of lanes: of each those since a time, at most so many.
pub(super) async fn ready_wakes(
    transaction: &Transaction<'_>,
    lanes: &[(Lane, SystemTime, usize)],
) -> Result<Vec<Candidate>, DatabaseError> {
    let workspaces: Vec<WorkspaceId> = lanes.iter().map(|(lane, ..)| lane.workspace).collect();
    let accounts: Vec<Option<AccountId>> = lanes.iter().map(|(lane, ..)| lane.account).collect();
    let since: Vec<SystemTime> = lanes.iter().map(|(_, since, _)| *since).collect();
    let most: Vec<i64> = lanes.iter().map(|(.., most)| *most as i64).collect();
    let rows = transaction
        .query(
            &READY_WAKES,
            &[
                /* $1 workspace_id */ &workspaces,
                /* $2 account_id */ &accounts,
                /* $3 since */ &since,
                /* $4 most */ &most,
            ],
        )
        .await?;
    rows.iter().map(|row| Ok(candidate(row)?)).collect()
}

/// Hands some wakes over, and lets others be ready. Gives those that were handed over.
pub(super) async fn move_wakes(
    transaction: &Transaction<'_>,
    taken: &[Candidate],
    waiting: &[Candidate],
) -> Result<Vec<HandedOver>, DatabaseError> {
    let statements = [
        keyed(
            &HAND_OVER,
            taken.iter().map(|one| (one.lane, one.run, one.due_at)),
        ),
        keyed(
            &LET_WAIT,
            waiting.iter().map(|one| (one.lane, one.run, one.due_at)),
        ),
    ];
    let results = transaction.pipeline(&statements).await?;
    let handed_over = results.first().into_iter().flatten().map(|row| {
        Ok(HandedOver {
            run: row.try_get("run_id")?,
            lane: lane(row)?,
            due_at: row.try_get("due_at")?,
        })
    });
    handed_over.collect()
}

/// Takes back what the broker did not take.
pub(super) async fn take_back(
    database: &Database,
    wakes: &[&HandedOver],
) -> Result<(), DatabaseError> {
    let workspaces: Vec<WorkspaceId> = wakes.iter().map(|one| one.lane.workspace).collect();
    let runs: Vec<RunId> = wakes.iter().map(|one| one.run).collect();
    let times: Vec<SystemTime> = wakes.iter().map(|one| one.due_at).collect();
    database
        .execute(
            &TAKE_BACK,
            &[
                /* $1 workspace_id */ &workspaces,
                /* $2 run_id */ &runs,
                /* $3 due_at */ &times,
            ],
        )
        .await
        .map(drop)
}

/// A statement over wakes by key and time.
fn keyed<'p>(
    statement: &'static letterbox_database::Statement,
    wakes: impl Iterator<Item = (Lane, RunId, SystemTime)>,
) -> BoundStatement<'p> {
    let (mut workspaces, mut runs, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for (lane, run, due_at) in wakes {
        workspaces.push(lane.workspace);
        runs.push(run);
        times.push(due_at);
    }
    BoundStatement::new(statement)
        .bind(/* $1 workspace_id */ workspaces)
        .bind(/* $2 run_id */ runs)
        .bind(/* $3 due_at */ times)
}

/// Wakes runs again whose wake arrived where no executor is.
pub(crate) async fn wake_again(
    database: &Database,
    wakes: &[(WorkspaceId, RunId)],
) -> Result<(), DatabaseError> {
    let (workspaces, runs): (Vec<WorkspaceId>, Vec<RunId>) = wakes.iter().copied().unzip();
    database
        .execute(&WAKE_AGAIN, &[&workspaces, &runs])
        .await
        .map(drop)
}
