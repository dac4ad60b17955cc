//! The data: what was claimed, what waits, what was stored, what runs and what is asked, and
//! whether all of it agrees.

use std::time::Duration;

use letterbox_database::{FromRow, Statement, ask, statements};
use serde::Serialize;

use super::finding::{Finding, Verdict};
use crate::{Operator, Result};

/// What has waited for longer than this is late.
pub(super) const LATE_SECONDS: f64 = 60.0;

/// After how long what is not fine is counted again.
const AGAIN: Duration = Duration::from_secs(1);

statements! {
    // Of both only those of workspaces whose doors are not all closed: those may be being deleted.
    // When it was claimed is part of its id, in milliseconds since 1970.

    /// Deliveries that were accepted, do not wait in the spill, and are no signal yet.
    UNPROCESSED_DELIVERIES = check_deliveries "
SELECT count(*) AS count,
       extract(epoch FROM clock_timestamp())::float8 - min(claimed) AS oldest_seconds
FROM (
    SELECT *, (('x' || left(translate(claim_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
        ::float8 AS claimed
    FROM webhook_deliveries) AS c
WHERE claimed > extract(epoch FROM clock_timestamp())::float8 - $1::float8 * 3600
  AND NOT EXISTS (SELECT FROM signals s
                  WHERE s.workspace_id = c.workspace_id AND s.signal_id = c.claim_id)
  AND EXISTS (SELECT FROM webhooks w
              WHERE w.workspace_id = c.workspace_id AND w.deleted_at IS NULL)
  AND NOT EXISTS (SELECT FROM open_batches o WHERE o.batch_id = c.batch_id)
  AND NOT EXISTS (SELECT FROM spilled_messages s WHERE s.batch_id = c.batch_id)";

    /// Submissions that were accepted, do not wait in the spill, and are no run yet, nor one that
    /// retention has deleted.
    UNPROCESSED_SUBMISSIONS = check_submissions "
SELECT count(*) AS count,
       extract(epoch FROM clock_timestamp())::float8 - min(claimed) AS oldest_seconds
FROM (
    SELECT *, (('x' || left(translate(claim_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
        ::float8 AS claimed
    FROM form_submissions) AS c
WHERE claimed > extract(epoch FROM clock_timestamp())::float8 - $1::float8 * 3600
  AND NOT EXISTS (SELECT FROM runs r
                  WHERE r.workspace_id = c.workspace_id AND r.run_id = c.claim_id)
  AND NOT EXISTS (SELECT FROM erased_runs e
                  WHERE e.workspace_id = c.workspace_id AND e.run_id = c.claim_id)
  AND EXISTS (SELECT FROM workflows w
              WHERE w.workspace_id = c.workspace_id AND w.state <> 'deleted')
  AND NOT EXISTS (SELECT FROM open_batches o WHERE o.batch_id = c.batch_id)
  AND NOT EXISTS (SELECT FROM spilled_messages s WHERE s.batch_id = c.batch_id)";

    /// Batches that were claimed, and of which nobody knows whether they were published.
    INTERRUPTED_BATCHES = interrupted_batches_status "
SELECT count(*) AS count, extract(epoch FROM now() - min(lease_until))::float8 AS oldest_seconds
FROM interrupted_batches";

    /// Messages that wait in the spill.
    SPILLED_MESSAGES = spilled_messages "
SELECT count(*) AS count, extract(epoch FROM now() - min(spilled_at))::float8 AS oldest_seconds
FROM spilled_messages";

    /// Bodies that have become more than one signal of a webhook, or of those that it has replaced.
    DOUBLED_SIGNALS = check_doubled_signals "
SELECT count(*) AS count, NULL::float8 AS oldest_seconds FROM (
    SELECT FROM signals s JOIN webhooks w USING (workspace_id, webhook_id)
    WHERE s.received_at > clock_timestamp() - $1::float8 * interval '1 hour'
      AND s.body IS NOT NULL AND w.same_by <> 'id'
    GROUP BY s.workspace_id, coalesce(w.memory_id, w.webhook_id), sha256(s.body)
    HAVING count(*) > 1) AS doubled";

    /// Runs that are not over, and that no worker will ever take. Those of deleted workflows are
    /// left out: their workspace may be being emptied.
    STRAY_RUNS = check_stray_runs "
SELECT count(*) AS count,
       extract(epoch FROM clock_timestamp() - min(r.created_at))::float8 AS oldest_seconds
FROM runs r
JOIN workflows w ON w.workspace_id = r.workspace_id AND w.workflow_id = r.workflow_id
    AND w.state <> 'deleted'
WHERE r.state IN ('queued', 'running', 'waiting_approval')
  AND NOT EXISTS (SELECT FROM active_runs a
                  WHERE a.workspace_id = r.workspace_id AND a.run_id = r.run_id)";

    /// Runs that workers take although they are over.
    FINISHED_RUNS = check_finished_runs "
SELECT count(*) AS count, NULL::float8 AS oldest_seconds
FROM active_runs a JOIN runs r USING (workspace_id, run_id) WHERE r.finished_at IS NOT NULL";

    /// Questions about runs that are over.
    IDLE_QUESTIONS = check_idle_questions "
SELECT count(*) AS count,
       extract(epoch FROM clock_timestamp() - min(q.created_at))::float8 AS oldest_seconds
FROM approvals q JOIN runs r USING (workspace_id, run_id)
WHERE q.state = 'pending' AND r.finished_at IS NOT NULL";

    /// Subscriptions whose cursor is beyond every signal: they would leave out what comes next.
    CURSORS_AHEAD = check_cursors "
SELECT count(*) AS count, NULL::float8 AS oldest_seconds
FROM subscriptions
WHERE CASE WHEN pg_is_in_recovery() THEN false ELSE position > settled_position() END";

    /// Subscriptions that are behind: nothing was confirmed last, or for over a minute.
    pub(super) fn subscriptions_behind(late_seconds: f64) -> Vec<Behind> = "
SELECT w.name AS workspace_name, s.queue, s.url, l.signals, l.seconds, s.failure, s.received
FROM subscription_lags l JOIN subscriptions s USING (workspace_id, subscription_id)
JOIN workspaces w USING (workspace_id)
WHERE s.paused_at IS NULL AND (s.failure IS NOT NULL OR l.seconds > $1)
ORDER BY l.seconds DESC LIMIT 20";

    /// Workspaces whose policy lets no action go on by itself.
    fn doctor_policies() -> Vec<(String,)> = "
SELECT w.name FROM workspaces w
JOIN LATERAL (SELECT p.policy::json AS policy FROM policies p
              WHERE p.workspace_id = w.workspace_id ORDER BY p.version DESC LIMIT 1) AS latest
    ON latest.policy ->> 'default' <> 'allow'
WHERE NOT EXISTS (SELECT FROM json_array_elements(latest.policy -> 'rules') AS rule
                  WHERE rule ->> 'decision' = 'allow')
ORDER BY w.name LIMIT 20";
}

/// How many of one kind there are, and how old the oldest is.
#[derive(FromRow)]
pub(super) struct Count {
    pub(super) count: i64,
    pub(super) oldest_seconds: Option<f64>,
}

/// A subscription whose queue or URL does not get what it should.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Behind {
    /// Its workspace, for people.
    pub workspace_name: String,
    /// Its queue; `None` if it is to a URL.
    pub queue: Option<String>,
    /// The URL.
    pub url: Option<String>,
    /// Signals that it has not looked at, counted up to 10,000.
    pub signals: i64,
    /// How long ago the first of them was stored.
    pub seconds: f64,
    /// Why; `None` if no worker has said.
    pub failure: Option<String>,
    /// The beginning of the answer that is the failure.
    pub received: Option<String>,
}

/// What is looked at, how bad it is, and what mends it.
struct DataCheck {
    about: &'static str,
    statement: &'static Statement,
    verdict: Verdict,
    /// Younger ones are under way.
    from_seconds: f64,
    what: &'static str,
    mend: &'static str,
}

/// Where something may be that was published and is not stored.
const UNPROCESSED: &str = "they wait in a queue (letterbox status), in a worker (the dashboard \
     counts them as unacknowledged), or among the dead letters (letterbox dead-letters list); \
     otherwise they are lost, or their dead letter was discarded";

static LOOKS: &[DataCheck] = &[
    DataCheck {
        about: "deliveries",
        statement: &UNPROCESSED_DELIVERIES,
        verdict: Verdict::Warning,
        from_seconds: LATE_SECONDS,
        what: "accepted, and no signal yet",
        mend: UNPROCESSED,
    },
    DataCheck {
        about: "submissions",
        statement: &UNPROCESSED_SUBMISSIONS,
        verdict: Verdict::Warning,
        from_seconds: LATE_SECONDS,
        what: "accepted, and no run yet",
        mend: UNPROCESSED,
    },
    DataCheck {
        about: "claims",
        statement: &INTERRUPTED_BATCHES,
        verdict: Verdict::Fine,
        from_seconds: 0.0,
        what: "batches were claimed and perhaps not published; unless their gateway or the \
               database ended just then, or lost sight of each other, their senders were not told \
               2xx, and take them over when they try again",
        mend: "",
    },
    DataCheck {
        about: "spill",
        statement: &SPILLED_MESSAGES,
        verdict: Verdict::Warning,
        from_seconds: LATE_SECONDS,
        what: "messages wait in the spill",
        mend: "letterbox status: the workers are away, a row of their workspace is locked, or they \
               are to be dead letters and the broker is away",
    },
    DataCheck {
        about: "signals",
        statement: &DOUBLED_SIGNALS,
        verdict: Verdict::Failure,
        from_seconds: 0.0,
        what: "bodies have become more than one signal",
        mend: "tell those who read signals: compare body_sha256; please report this as a bug",
    },
    DataCheck {
        about: "runs",
        statement: &STRAY_RUNS,
        verdict: Verdict::Failure,
        from_seconds: 0.0,
        what: "are not over, and no worker will take them",
        mend: "please report this as a bug; workers take them up after: INSERT INTO active_runs \
               (workspace_id, run_id, is_cancelled) SELECT workspace_id, run_id, cancel_reason IS \
               NOT NULL FROM runs r JOIN workflows w USING (workspace_id, workflow_id) WHERE \
               r.state IN ('queued', 'running', 'waiting_approval') AND w.state <> 'deleted' ON \
               CONFLICT DO NOTHING",
    },
    DataCheck {
        about: "finished runs",
        statement: &FINISHED_RUNS,
        verdict: Verdict::Failure,
        from_seconds: 0.0,
        what: "are over, and taken by workers all the same",
        mend: "please report this as a bug; workers leave them alone after: DELETE FROM \
               active_runs a USING runs r WHERE r.workspace_id = a.workspace_id AND r.run_id = \
               a.run_id AND r.finished_at IS NOT NULL",
    },
    DataCheck {
        about: "approvals",
        statement: &IDLE_QUESTIONS,
        verdict: Verdict::Warning,
        from_seconds: 0.0,
        what: "wait for an answer about a run that is over",
        mend: "please report this as a bug; they are withdrawn after: UPDATE approvals q SET \
               state = 'withdrawn', decided_at = clock_timestamp() FROM runs r WHERE q.state = \
               'pending' AND r.workspace_id = q.workspace_id AND r.run_id = q.run_id AND \
               r.finished_at IS NOT NULL",
    },
    DataCheck {
        about: "subscriptions",
        statement: &CURSORS_AHEAD,
        verdict: Verdict::Failure,
        from_seconds: 0.0,
        what: "are ahead of every signal, as after a restore of an older database",
        mend: "letterbox signal rewind, for each that letterbox signal subscriptions shows",
    },
];

impl Operator {
    /// Compares what is stored, of the last `hours` where everything would take too long.
    pub(super) async fn compare(&self, hours: f64) -> Vec<Finding> {
        let mut found = Vec::new();
        for look in LOOKS {
            found.push(self.look(look, hours).await);
        }
        found
    }

    /// Messages that wait in the spill, and batches that were perhaps not published.
    pub(super) async fn open_batches(&self) -> Result<[Count; 2]> {
        let spilled = ask(self, &SPILLED_MESSAGES, &[]).await?;
        Ok([spilled, ask(self, &INTERRUPTED_BATCHES, &[]).await?])
    }

    pub(super) async fn examine_policies(&self) -> Result<Finding> {
        let waiting = doctor_policies(self).await?;
        Ok(Finding::of_list(
            "policies",
            waiting.into_iter().map(|(name,)| name),
            Verdict::Warning,
            "none makes every action wait",
            "letterbox policy set, with a rule that allows: no action goes on by itself",
        ))
    }

    /// What is wrong for a moment only is not: whatever is not fine is counted twice.
    async fn look(&self, look: &DataCheck, hours: f64) -> Finding {
        let mut found = self.look_once(look, hours).await;
        if found.verdict != Verdict::Fine {
            tokio::time::sleep(AGAIN).await;
            found = self.look_once(look, hours).await;
        }
        found
    }

    async fn look_once(&self, look: &DataCheck, hours: f64) -> Finding {
        // A look may take longer than what processes ask.
        let patience = [("statement_timeout", "25s".to_owned())];
        let database = self.database.saying(patience);
        // Some look back so many hours only.
        let counting = match look.statement.sql.contains("$1") {
            true => ask(&database, look.statement, &[&hours]).await,
            false => ask(&database, look.statement, &[]).await,
        };
        match counting {
            Ok(count) => look.found(&count),
            Err(error) => {
                let detail = format!("not looked at: {error}");
                let mend = "fewer --hours, where it took too long";
                Finding::new(look.about, false, Verdict::Warning, detail, mend)
            }
        }
    }
}

impl DataCheck {
    fn found(&self, count: &Count) -> Finding {
        let is_late = count
            .oldest_seconds
            .is_none_or(|age| age >= self.from_seconds);
        let is_fine = count.count == 0 || !is_late;
        let age = count.oldest_seconds.unwrap_or_default();
        let detail = match count.count {
            0 => "all agree".to_owned(),
            many if age > 0.0 => format!("{many} {}, the oldest for {age:.0} s", self.what),
            many => format!("{many} {}", self.what),
        };
        Finding::new(self.about, is_fine, self.verdict, detail, self.mend)
    }
}

/// Whether every sealed value opens.
pub(super) fn secrets(closed: &[String]) -> Finding {
    let detail = match closed.len() {
        0 => "all open".to_owned(),
        many => format!("{many} do not open: {}", closed[..many.min(5)].join(", ")),
    };
    let mend = "name the key that sealed them beside the others; where it is lost, replace them: \
                webhooks by letterbox webhook replace ID --overlap 0s, connected_accounts by \
                letterbox account rotate ID --value-file FILE, grants by letterbox account rotate \
                ID --client-secret-file FILE, run_actions by letterbox run erase ID, subscriptions \
                by letterbox signal unsubscribe, and subscribe --from";
    let is_fine = closed.is_empty();
    Finding::new("secrets", is_fine, Verdict::Failure, detail, mend)
}
