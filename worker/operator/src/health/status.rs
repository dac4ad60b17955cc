//! The status of everything at one look: the parts that must work, what waits and for how long, and
//! whether something is late. Of each kind only a handful of rows is read, however many there are.

use std::collections::BTreeMap;

use jiff::Timestamp;
use letterbox_broker::{BrokerTarget, QueueLength};
use letterbox_common::{
    ids::WorkspaceId,
    states::{AccountWait, RunState},
    webhook::DeliveryFault,
};
use letterbox_database::{DatabaseError, FromRow, health, statements};
use serde::Serialize;

use super::{
    broker::is_dead,
    data::{Behind, Count, LATE_SECONDS, subscriptions_behind},
    finding::{Finding, Verdict},
};
use crate::{Operator, Result, dead_letters};

/// Why something is late.
const UNSTORED: &str = "not stored for over a minute";
const UNTAKEN: &str = "not taken by a worker for over a minute";
const UNCONSUMED: &str = "no worker consumes this queue";
const DEAD: &str = "could not be processed: see dead-letters list";

statements! {
    /// Runs that are due and that no worker has taken: those that are ready, and those whose time
    /// has come. Held workspaces are not late, nor are runs whose account waits.
    fn due_runs() -> DueRuns = "
WITH due AS (
    (SELECT workspace_id, account_id, due_at FROM active_runs WHERE state = 'ready'
     LIMIT 1000000)
    UNION ALL
    (SELECT workspace_id, account_id, due_at FROM active_runs
     WHERE (state = 'ready') IS FALSE AND state = 'scheduled' AND due_at <= now()
     LIMIT 1000000)
)
SELECT count(*) AS count, extract(epoch FROM now() - min(due_at))::float8 AS oldest_seconds,
       extract(epoch FROM now() - min(due_at) FILTER (WHERE workspace_id NOT IN (
           SELECT h.workspace_id FROM held_workspaces h) AND account_id NOT IN (
           SELECT a.account_id FROM waiting_accounts a)))::float8
           AS late_seconds
FROM due";

    /// Questions that wait for a person.
    fn pending_approvals() -> Count = "
SELECT count(*) AS count, extract(epoch FROM now() - min(created_at))::float8 AS oldest_seconds
FROM approvals WHERE state = 'pending'";

    /// Runs that are not over, by state.
    fn runs_under_way() -> Vec<(RunState, i64)> = "
SELECT r.state, count(*) AS count
FROM active_runs a JOIN visible_runs r USING (workspace_id, run_id) GROUP BY r.state";

    /// Runs that ended in the last hour, by state.
    fn runs_ended() -> Vec<(RunState, i64)> = "
SELECT state, count(*) AS count FROM runs
WHERE finished_at > now() - interval '1 hour' GROUP BY state";

    /// Accounts that runs wait for because an attempt came to nothing, with the error of the one
    /// that is due next. No pause is longer than 75 minutes; only that far it is looked ahead.
    fn retrying_accounts() -> Vec<Retrying> = "
WITH soon AS (
    SELECT workspace_id, run_id, account_id, due_at FROM active_runs
    WHERE (state = 'ready') IS FALSE AND state = 'scheduled'
      AND due_at < now() + interval '76 minutes'
    ORDER BY due_at LIMIT 10000
)
SELECT w.name AS workspace_name, coalesce(c.name, '-') AS account, count(*) AS runs,
       min(soon.due_at) AS next_at,
       coalesce((array_agg(a.error ORDER BY soon.due_at))[1], '-') AS error
FROM soon
JOIN run_actions a ON a.workspace_id = soon.workspace_id AND a.run_id = soon.run_id
    AND a.state = 'retrying'
JOIN workspaces w ON w.workspace_id = soon.workspace_id
LEFT JOIN connected_accounts c ON c.workspace_id = soon.workspace_id
    AND c.account_id = soon.account_id
GROUP BY w.name, w.workspace_id, c.name, c.account_id ORDER BY runs DESC LIMIT 20";

    /// The accounts that get no token, and how many runs wait for them.
    fn unconnected_accounts() -> Vec<Unconnected> = "
SELECT w.name AS workspace_name, c.name AS account, c.waits_for, g.error,
       (SELECT count(*) FROM active_runs r WHERE r.workspace_id = c.workspace_id
           AND r.account_id = c.account_id AND r.state = 'ready') AS runs
FROM connected_accounts c
JOIN grants g ON g.workspace_id = c.workspace_id AND g.account_id = c.account_id
JOIN workspaces w ON w.workspace_id = c.workspace_id
WHERE (c.waits_for = 'owner' OR c.is_refused OR c.waits_for = 'token' AND g.failures > 0)
  AND c.disconnected_at IS NULL
ORDER BY runs DESC LIMIT 20";

    /// The webhooks that lose events, with the last refusal.
    fn deaf_webhooks() -> Vec<Deaf> = "
SELECT w.name AS workspace_name, d.name, d.refused_at, d.reason, d.detail
FROM deaf_webhooks d JOIN workspaces w USING (workspace_id)
ORDER BY d.told_on DESC, d.refused_at DESC LIMIT 20";

    /// What is remembered, and about how many claims are not moved yet.
    fn status_memory() -> MemoryRow = "
SELECT keys, segments, bytes, deliveries + submissions AS claims FROM memory_size";

    /// The workspaces that are held.
    fn held_workspaces() -> Vec<Held> = "
SELECT NULL::uuid AS workspace_id, 'all workspaces' AS name, held_at
FROM all_workspaces WHERE held_at IS NOT NULL
UNION ALL
SELECT workspace_id, name, held_at FROM workspaces WHERE held_at IS NOT NULL
ORDER BY held_at LIMIT 100";
}

/// A part that everything else needs.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    /// Its name.
    pub part: &'static str,
    /// Whether it works.
    pub is_ready: bool,
    /// Its condition, for people.
    pub detail: String,
}

impl From<Finding> for Part {
    fn from(found: Finding) -> Self {
        Self {
            part: found.about,
            is_ready: found.verdict == Verdict::Fine,
            detail: found.detail,
        }
    }
}

/// Everything of one kind that waits.
#[derive(Debug, Clone, Serialize)]
pub struct BacklogKind {
    /// The kind: a queue, or a name such as `due runs`.
    pub kind: String,
    /// How many wait.
    pub count: i64,
    /// How long the oldest has been waiting, in seconds; `None` if that is not known.
    pub oldest_seconds: Option<f64>,
    /// Why an operator should look; `None` if it is not late.
    pub late_because: Option<&'static str>,
}

/// A workspace whose runs begin no action.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Held {
    /// `None` for all workspaces.
    pub workspace_id: Option<WorkspaceId>,
    /// For people.
    pub name: String,
    /// Since when, by the database's clock.
    pub held_at: Timestamp,
}

/// An account that runs wait for because an attempt came to nothing.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Retrying {
    /// Its workspace, for people.
    pub workspace_name: String,
    /// Its name.
    pub account: String,
    /// How many runs wait.
    pub runs: i64,
    /// When the next attempt is due, by the database's clock.
    pub next_at: Timestamp,
    /// Why the last attempt of that run came to nothing.
    pub error: String,
}

/// An account that gets no token, and with it every run that is to call it waits.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Unconnected {
    /// Its workspace, for people.
    pub workspace_name: String,
    /// Its name.
    pub account: String,
    /// How many runs wait.
    pub runs: i64,
    /// What it waits for; `None` if it still has a token, which it refuses.
    pub waits_for: Option<AccountWait>,
    /// Why it gets no token; `None` if it never had one.
    pub error: Option<String>,
}

/// A webhook that loses events, as its owners were told today or yesterday.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Deaf {
    /// Its workspace, for people.
    pub workspace_name: String,
    /// Its name.
    pub name: String,
    /// When it refused the last one, by the gateway's clock.
    pub refused_at: Timestamp,
    /// Why.
    pub reason: DeliveryFault,
    /// What was received, as far as that explains it.
    pub detail: Option<String>,
}

/// The state of the whole installation.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Whether a part is not ready, or something has waited too long.
    pub is_late: bool,
    /// The parts that everything else needs.
    pub parts: Vec<Part>,
    /// Everything that waits.
    pub backlog: Vec<BacklogKind>,
    /// Runs that are not over, by state.
    pub runs: BTreeMap<String, i64>,
    /// Runs that ended in the last hour, by state.
    pub ended_last_hour: BTreeMap<String, i64>,
    /// The accounts that runs wait for because an attempt came to nothing; at most 20.
    pub retrying: Vec<Retrying>,
    /// The accounts that wait for their owners; at most 20.
    pub unconnected: Vec<Unconnected>,
    /// The subscriptions that are behind; at most 20.
    pub behind: Vec<Behind>,
    /// The webhooks that lose events; at most 20.
    pub deaf: Vec<Deaf>,
    /// The workspaces that are held.
    pub held: Vec<Held>,
    /// Whether workers are alive of which none ever deletes what people have sent.
    pub keeps_all: bool,
}

/// Runs that wait for a worker.
#[derive(FromRow)]
struct DueRuns {
    #[row(flatten)]
    all: Count,
    /// How long the oldest run has been due that is not held.
    late_seconds: Option<f64>,
}

/// What is remembered.
#[derive(FromRow)]
struct MemoryRow {
    keys: i64,
    segments: i64,
    bytes: i64,
    claims: i64,
}

impl Operator {
    /// Gives the state of everything; of the queues only if a broker is given.
    pub async fn status(&self, broker: Option<&BrokerTarget>) -> Result<Status> {
        let processes = self.processes().await?;
        let writes = health::takes_writes(&self.database).await;
        let takes_writes = !writes.as_ref().is_err_and(DatabaseError::is_read_only);
        let memory = status_memory(self).await?;
        let mut parts = vec![part(
            "database",
            writes.err().map(|error| error.to_string()),
        )];
        parts.extend(processes.found(takes_writes).map(Part::from));
        parts.push(memory.part());
        let mut backlog = Vec::new();
        if let Some(broker) = broker {
            let lengths = self.queue_lengths(broker).await;
            parts.push(part("broker", lengths.as_ref().err().cloned()));
            for length in lengths.iter().flatten() {
                backlog.push(queue(broker, length).await);
            }
        }
        backlog.extend(self.database_backlog().await?);
        let behind = subscriptions_behind(self, LATE_SECONDS).await?;
        Ok(Status {
            is_late: parts.iter().any(|part| !part.is_ready)
                || backlog.iter().any(|kind| kind.late_because.is_some())
                // Among them are those that have just failed, which is not late yet.
                || behind.iter().any(|one| one.seconds > LATE_SECONDS),
            parts,
            backlog,
            runs: by_state(runs_under_way(self).await?),
            ended_last_hour: by_state(runs_ended(self).await?),
            retrying: retrying_accounts(self).await?,
            unconnected: unconnected_accounts(self).await?,
            behind,
            deaf: deaf_webhooks(self).await?,
            held: held_workspaces(self).await?,
            keeps_all: processes.keeps_all(),
        })
    }

    /// Everything that waits in the database.
    async fn database_backlog(&self) -> Result<[BacklogKind; 4]> {
        let [spilled, interrupted] = self.open_batches().await?;
        let due = due_runs(self).await?;
        let approvals = pending_approvals(self).await?;
        let late = |seconds: Option<f64>, because| {
            seconds.and_then(|seconds| (seconds > LATE_SECONDS).then_some(because))
        };
        let kind = |kind: &str, waiting: Count, late_because| BacklogKind {
            kind: kind.to_owned(),
            count: waiting.count,
            oldest_seconds: waiting.oldest_seconds,
            late_because,
        };
        let unstored = late(spilled.oldest_seconds, UNSTORED);
        Ok([
            kind("spilled messages", spilled, unstored),
            kind("interrupted batches", interrupted, None),
            kind("due runs", due.all, late(due.late_seconds, UNTAKEN)),
            // A person takes the time that a person takes.
            kind("approvals", approvals, None),
        ])
    }
}

impl MemoryRow {
    /// The claims that are far more than a mover leaves are told by an alert: some may be young, or
    /// not recorded yet.
    fn part(&self) -> Part {
        let (keys, segments, claims) = (self.keys, self.segments, self.claims);
        let megabytes = self.bytes / 1_000_000;
        Part {
            part: "memory",
            is_ready: true,
            detail: format!(
                "{keys} keys in {segments} segments, {megabytes} MB; about {claims} claims are not \
                 moved yet"
            ),
        }
    }
}

fn by_state(counted: Vec<(RunState, i64)>) -> BTreeMap<String, i64> {
    let counted = counted.into_iter();
    counted
        .map(|(state, count)| (state.to_string(), count))
        .collect()
}

/// A part that answers or says why it does not.
fn part(part: &'static str, error: Option<String>) -> Part {
    Part {
        part,
        is_ready: error.is_none(),
        detail: error.unwrap_or_else(|| "answers".to_owned()),
    }
}

/// A queue without consumers is late as soon as a message is in it; so is a dead letter.
async fn queue(broker: &BrokerTarget, length: &QueueLength) -> BacklogKind {
    let is_dead = is_dead(length);
    let dead_since = if is_dead && length.ready > 0 {
        dead_letters::oldest(broker).await.ok().flatten()
    } else {
        None
    };
    let age = dead_since.map(|since| Timestamp::now().duration_since(since).as_secs_f64());
    let late_because = match (length.ready, length.consumers) {
        (0, _) => None,
        _ if is_dead => Some(DEAD),
        (_, 0) => Some(UNCONSUMED),
        _ => None,
    };
    BacklogKind {
        kind: length.queue.clone(),
        count: i64::from(length.ready),
        oldest_seconds: age,
        late_because,
    }
}
