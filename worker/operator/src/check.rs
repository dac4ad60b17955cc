//! Whether the data agree: what was claimed, what waits, what was stored, what runs and what is
//! asked. Looks only, and mends what can be mended where that is ordered.

use std::time::Duration;

use letterbox_broker::{BrokerTarget, QueueLength, topology::DEAD_LETTERS_QUEUE};
use letterbox_database::{Database, Statement, statements};

use crate::{Finding, KeyRings, Operator, OperatorError, Verdict, status::Count};

/// What was accepted this long ago should have been processed.
const LATE_SECONDS: f64 = 60.0;

/// After how long what is not fine is counted again.
const AGAIN: Duration = Duration::from_secs(1);
/// The time in an id, as seconds since 1970.
macro_rules! seconds_of {
    ($id:literal) => {
        concat!(
            "(('x' || left(translate(",
            $id,
            "::text, '-', ''), 12))::bit(48)::bigint / 1000.0)::float8"
        )
    };
}

/// Claims of the last hours that were published, and of which nothing was stored, in workspaces
/// whose doors are not all closed: those may be being deleted.
macro_rules! unprocessed {
    ($claims:literal, $id:literal, $stored:literal, $door:literal) => {
        concat!(
            "
SELECT count(*) AS count, extract(epoch FROM clock_timestamp())::float8 - min(",
            seconds_of!($id),
            ") AS oldest_seconds
FROM ",
            $claims,
            " c
WHERE ",
            seconds_of!($id),
            " > extract(epoch FROM clock_timestamp())::float8 - $1::float8 * 3600
  AND NOT EXISTS (",
            $stored,
            ")
  AND EXISTS (",
            $door,
            ")
  AND NOT EXISTS (SELECT FROM open_batches o WHERE o.batch_id = c.batch_id)"
        )
    };
}

statements! {
    /// Deliveries that were accepted, do not wait in the spill, and are no signal yet.
    UNPROCESSED_DELIVERIES = check_deliveries unprocessed!("webhook_deliveries", "delivery_id",
        "SELECT FROM signals s
         WHERE s.workspace_id = c.workspace_id AND s.signal_id = c.delivery_id",
        "SELECT FROM webhooks w
         WHERE w.workspace_id = c.workspace_id AND w.deleted_at IS NULL");

    /// Submissions that were accepted, do not wait in the spill, and are no run yet, nor one that
    /// retention has deleted.
    UNPROCESSED_SUBMISSIONS = check_submissions unprocessed!("form_submissions", "submission_id",
        "SELECT FROM runs r
         WHERE r.workspace_id = c.workspace_id AND r.run_id = c.submission_id
         UNION ALL
         SELECT FROM erased_runs e
         WHERE e.workspace_id = c.workspace_id AND e.run_id = c.submission_id",
        "SELECT FROM workflows w
         WHERE w.workspace_id = c.workspace_id AND w.state <> 'deleted'");

    /// Batches that were claimed, and of which nobody knows whether they were published.
    OPEN = check_open_batches "
SELECT count(*) AS count,
       extract(epoch FROM clock_timestamp() - min(lease_until))::float8 AS oldest_seconds
FROM interrupted_batches";

    /// Messages that wait for the broker.
    SPILLED = check_spill "
SELECT count(*) AS count,
       extract(epoch FROM clock_timestamp() - min(spilled_at))::float8 AS oldest_seconds
FROM open_batches WHERE spilled_at IS NOT NULL";

    /// Bodies that have become more than one signal of a webhook, or of those that it has replaced.
    DOUBLED_SIGNALS = check_doubled_signals "
SELECT count(*) AS count, NULL::float8 AS oldest_seconds FROM (
    SELECT FROM signals s JOIN webhooks w USING (workspace_id, webhook_id)
    WHERE s.received_at > clock_timestamp() - $1::float8 * interval '1 hour'
      AND s.body IS NOT NULL AND NOT w.same_by_id
    GROUP BY s.workspace_id, coalesce(w.memory_id, w.webhook_id), sha256(s.body)
    HAVING count(*) > 1) AS doubled";

    /// Runs that are not over, and that no worker will ever take.
    STRAY_RUNS = check_stray_runs "
SELECT count(*) AS count,
       extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS oldest_seconds
FROM stray_runs()";

    /// Takes up stray runs.
    MEND_STRAY_RUNS = take_up_stray_runs "SELECT take_up_stray_runs() AS mended";

    /// Runs that workers take although they are over.
    FINISHED_RUNS = check_finished_runs "
SELECT count(*) AS count, NULL::float8 AS oldest_seconds
FROM active_runs a JOIN runs r USING (workspace_id, run_id) WHERE r.finished_at IS NOT NULL";

    /// Leaves them alone.
    MEND_FINISHED_RUNS = let_finished_runs_go "SELECT let_finished_runs_go() AS mended";

    /// Questions about runs that are over.
    IDLE_QUESTIONS = check_idle_questions "
SELECT count(*) AS count,
       extract(epoch FROM clock_timestamp() - min(q.created_at))::float8 AS oldest_seconds
FROM approvals q JOIN runs r USING (workspace_id, run_id)
WHERE q.state = 'pending' AND r.finished_at IS NOT NULL";

    /// Withdraws them.
    MEND_IDLE_QUESTIONS = withdraw_idle_questions "SELECT withdraw_idle_questions() AS mended";

    /// Subscriptions whose cursor is beyond every signal: they would leave out what comes next.
    CURSORS_AHEAD = check_cursors "
SELECT count(*) AS count, NULL::float8 AS oldest_seconds
FROM subscriptions
WHERE CASE WHEN pg_is_in_recovery() THEN false ELSE position > settled_position() END";
}

/// What is looked at, how bad it is, and what mends it.
struct Look {
    about: &'static str,
    statement: &'static Statement,
    verdict: Verdict,
    /// Younger ones are under way.
    from_seconds: f64,
    what: &'static str,
    mend: &'static str,
    repair: Option<&'static Statement>,
    /// Whether it looks back so many hours only.
    is_recent: bool,
}

/// Where something may be that was published and is not stored.
const UNPROCESSED: &str = "they wait in a queue (letterbox status), in a worker (the dashboard \
     counts them as unacknowledged), or among the dead letters (letterbox dead-letters list); \
     otherwise they are lost, or their dead letter was discarded";

static LOOKS: &[Look] = &[
    Look {
        about: "deliveries",
        statement: &UNPROCESSED_DELIVERIES,
        verdict: Verdict::Warning,
        from_seconds: LATE_SECONDS,
        what: "accepted, and no signal yet",
        mend: UNPROCESSED,
        repair: None,
        is_recent: true,
    },
    Look {
        about: "submissions",
        statement: &UNPROCESSED_SUBMISSIONS,
        verdict: Verdict::Warning,
        from_seconds: LATE_SECONDS,
        what: "accepted, and no run yet",
        mend: UNPROCESSED,
        repair: None,
        is_recent: true,
    },
    Look {
        about: "claims",
        statement: &OPEN,
        verdict: Verdict::Fine,
        from_seconds: 0.0,
        what: "batches were claimed and perhaps not published; unless their gateway or the \
               database ended just then, or lost sight of each other, their senders were not told \
               2xx, and take them over when they try again",
        mend: "",
        repair: None,
        is_recent: false,
    },
    Look {
        about: "spill",
        statement: &SPILLED,
        verdict: Verdict::Warning,
        from_seconds: LATE_SECONDS,
        what: "messages wait for the broker",
        mend: "letterbox status: the broker or the workers are away",
        repair: None,
        is_recent: false,
    },
    Look {
        about: "signals",
        statement: &DOUBLED_SIGNALS,
        verdict: Verdict::Failure,
        from_seconds: 0.0,
        what: "bodies have become more than one signal",
        mend: "tell those who read signals: compare body_sha256; please report this as a bug",
        repair: None,
        is_recent: true,
    },
    Look {
        about: "runs",
        statement: &STRAY_RUNS,
        verdict: Verdict::Failure,
        from_seconds: 0.0,
        what: "are not over, and no worker will take them",
        mend: "letterbox check --repair: workers take them up where they are",
        repair: Some(&MEND_STRAY_RUNS),
        is_recent: false,
    },
    Look {
        about: "finished runs",
        statement: &FINISHED_RUNS,
        verdict: Verdict::Failure,
        from_seconds: 0.0,
        what: "are over, and taken by workers all the same",
        mend: "letterbox check --repair: they are left alone",
        repair: Some(&MEND_FINISHED_RUNS),
        is_recent: false,
    },
    Look {
        about: "approvals",
        statement: &IDLE_QUESTIONS,
        verdict: Verdict::Warning,
        from_seconds: 0.0,
        what: "wait for an answer about a run that is over",
        mend: "letterbox check --repair: they are withdrawn",
        repair: Some(&MEND_IDLE_QUESTIONS),
        is_recent: false,
    },
    Look {
        about: "subscriptions",
        statement: &CURSORS_AHEAD,
        verdict: Verdict::Failure,
        from_seconds: 0.0,
        what: "are ahead of every signal, as after a restore of an older database",
        mend: "letterbox signal rewind, for each that letterbox signal subscriptions shows",
        repair: None,
        is_recent: false,
    },
];

impl Operator {
    /// Compares what is stored, of the last `hours` where everything would take too long; with
    /// `keys`, opens every sealed value, and with a broker, looks at its queues. Changes nothing.
    pub async fn check(
        &self,
        hours: f64,
        keys: Option<&KeyRings>,
        broker: Option<&BrokerTarget>,
    ) -> Result<Vec<Finding>, OperatorError> {
        let mut found = Vec::new();
        for look in LOOKS {
            found.push(self.look(look, hours).await);
        }
        found.push(match keys {
            None => Finding::unseen("secrets", "set the sealing keys to open all of them"),
            Some(keys) => secrets(&self.closed_values(keys).await?),
        });
        found.push(match broker {
            None => Finding::unseen("queues", "set AMQP_URL"),
            Some(broker) => queues(&self.queue_lengths(broker).await),
        });
        Ok(found)
    }

    /// Mends what can be mended, and says how many of each.
    ///
    /// # Errors
    /// When the database can't be asked. What was mended until then stays so.
    pub async fn repair(&self) -> Result<Vec<Finding>, OperatorError> {
        let mut mended = Vec::new();
        for look in LOOKS {
            let Some(statement) = look.repair else {
                continue;
            };
            let row = self.patient().query_one(statement, &[]).await?;
            let count: i64 = row.try_get("mended")?;
            if count > 0 {
                let detail = format!("{count} mended");
                mended.push(Finding::new(look.about, true, Verdict::Fine, detail, ""));
            }
        }
        Ok(mended)
    }

    /// A look may take longer than what processes ask.
    fn patient(&self) -> Database {
        self.database
            .saying([("statement_timeout", "25s".to_owned())])
    }

    /// What is wrong for a moment only is not: whatever is not fine is counted twice.
    async fn look(&self, look: &Look, hours: f64) -> Finding {
        let mut found = self.look_once(look, hours).await;
        if found.verdict != Verdict::Fine {
            tokio::time::sleep(AGAIN).await;
            found = self.look_once(look, hours).await;
        }
        found
    }

    async fn look_once(&self, look: &Look, hours: f64) -> Finding {
        let database = self.patient();
        let counting = match look.is_recent {
            true => database.fetch_one(look.statement, &[&hours]).await,
            false => database.fetch_one(look.statement, &[]).await,
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

impl Look {
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
        Finding {
            repairs: !is_fine && self.repair.is_some(),
            ..Finding::new(self.about, is_fine, self.verdict, detail, self.mend)
        }
    }
}

fn secrets(closed: &[String]) -> Finding {
    let detail = match closed.len() {
        0 => "all open".to_owned(),
        many => format!("{many} do not open: {}", closed[..many.min(5)].join(", ")),
    };
    let mend = "name the key that sealed them beside the others; where it is lost, replace them: \
                webhooks by letterbox webhook replace ID --overlap 0s, connected_accounts by \
                letterbox account rotate ID --value-file FILE, grants by letterbox account rotate \
                ID --client-secret-file FILE, run_actions by letterbox run erase ID";
    let is_fine = closed.is_empty();
    Finding::new("secrets", is_fine, Verdict::Failure, detail, mend)
}

fn queues(lengths: &Result<Vec<QueueLength>, String>) -> Finding {
    let lengths = match lengths {
        Ok(lengths) => lengths,
        Err(error) => {
            let mend = "letterbox doctor";
            return Finding::new("queues", false, Verdict::Failure, error.clone(), mend);
        }
    };
    let (dead, waiting): (Vec<_>, Vec<_>) = lengths
        .iter()
        .partition(|one| one.queue == DEAD_LETTERS_QUEUE);
    let sum = |queues: &[&QueueLength]| queues.iter().map(|one| u64::from(one.ready)).sum::<u64>();
    let (dead, waiting) = (sum(&dead), sum(&waiting));
    let detail = format!("{waiting} messages wait, {dead} are dead letters");
    let mend = "letterbox dead-letters list, then redrive or discard";
    Finding::new("queues", dead == 0, Verdict::Warning, detail, mend)
}
