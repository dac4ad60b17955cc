//! Gauges of waiting work and its age, refreshed every few seconds.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use letterbox_common::states::ActiveState;
use letterbox_database::{Database, FromRow, statements};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{consumer::InHand, metrics};

/// How often the entries held by this worker are examined.
const EVERY: Duration = Duration::from_secs(5);
/// How often the database is queried.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// After this time without an answer from the database the last result is dropped, because another
/// worker may report by now.
const FORGET_AFTER: Duration = Duration::from_secs(60);

statements! {
    /// Whether no other worker has been alive for longer: ids of workers sort by their start.
    pub(crate) fn is_oldest_worker(worker: Uuid) -> (bool,) = "
SELECT NOT EXISTS (SELECT FROM workers
                   WHERE is_alive(seen_at, 15) AND worker_id < $1) AS is_oldest";

    /// What waits. The oldest due run is that of those that no worker has taken: the first ready
    /// one of each lane, and the first whose time has come. Runs of held workspaces are not late,
    /// nor are those whose account waits. Counts up to 10,000, in the order of the indexes, so that
    /// no plan reads the runs of one state to count those of another. Index entries kept by an old
    /// snapshot still cost time, so only one worker asks, and not often.
    fn backlog() -> Backlog = "
WITH unseen AS (
    SELECT workspace_id, account_id, due_at FROM active_runs
    WHERE (state = 'ready') IS FALSE AND state = 'scheduled' AND due_at <= now()
    ORDER BY due_at LIMIT 1000
), due AS (
    SELECT workspace_id, account_id, due_at
    FROM ready_lanes('00000000-0000-0000-0000-000000000000',
        '00000000-0000-0000-0000-000000000000', 10000)
    UNION ALL SELECT workspace_id, account_id, due_at FROM unseen
)
SELECT coalesce(extract(epoch FROM now() - (SELECT min(due_at) FROM due
           WHERE workspace_id NOT IN (SELECT h.workspace_id FROM held_workspaces h)
             AND (workspace_id, account_id) NOT IN (
                 SELECT w.workspace_id, w.account_id FROM waiting_accounts w))), 0)::float8
           AS oldest_due_run,
       coalesce(extract(epoch FROM now() - (SELECT created_at FROM approvals
           WHERE state = 'pending' ORDER BY created_at LIMIT 1)), 0)::float8 AS oldest_approval,
       (SELECT count(*) FROM (SELECT FROM approvals WHERE state = 'pending' LIMIT 10000) AS few)
           AS approvals,
       (SELECT count(*) FROM (SELECT FROM active_runs WHERE state = 'ready'
           ORDER BY workspace_id, account_id, due_at LIMIT 10000) AS few) AS ready,
       (SELECT count(*) FROM taken_runs) AS taken,
       (SELECT count(*) FROM (SELECT FROM active_runs
           WHERE (state = 'ready') IS FALSE AND state = 'scheduled'
           ORDER BY due_at LIMIT 10000) AS few) AS scheduled,
       (SELECT count(*) FROM (SELECT workspace_id FROM deaf_webhooks LIMIT 10000) AS few)
           AS deaf_webhooks";

    /// How far behind the subscriptions are that go on.
    fn subscription_lags() -> Vec<Lag> = "
SELECT name, signals, seconds FROM subscription_lags WHERE paused_at IS NULL
ORDER BY seconds DESC LIMIT 1000";
}

/// What waits; ages are in seconds.
#[derive(Default, FromRow)]
struct Backlog {
    oldest_due_run: f64,
    oldest_approval: f64,
    approvals: i64,
    ready: i64,
    taken: i64,
    scheduled: i64,
    deaf_webhooks: i64,
}

/// How far behind a subscription is.
#[derive(FromRow)]
struct Lag {
    /// Its queue, or its id.
    name: String,
    /// Signals that it has not looked at, counted up to 10,000.
    signals: i64,
    /// How long ago the first of them was stored.
    seconds: f64,
}

/// Refreshes the gauges until `stop`. Only the worker that has been alive for longest reports what
/// waits in the database: every worker would see the same.
pub(crate) async fn watch(
    database: Database,
    worker: Uuid,
    in_hand: InHand,
    stop: CancellationToken,
) {
    let looking = async {
        // When the database was asked last, and how long the oldest run had been due then.
        let mut seen: Option<(Instant, f64)> = None;
        let mut subscribed = HashSet::new();
        loop {
            for (queue, oldest) in in_hand.oldest() {
                let now = Timestamp::now();
                let age = now.duration_since(oldest.unwrap_or(now)).as_secs_f64();
                // Two machines' clocks may differ: a negative age counts as 0.
                metrics::OLDEST_ENTRY.set_under([queue], age.max(0.0));
            }
            if seen.is_none_or(|(at, _)| at.elapsed() > LOOK_EVERY) {
                match is_oldest_worker(&database, worker).await {
                    Ok((true,)) => {
                        if let Ok(backlog) = backlog(&database).await {
                            tell(&backlog);
                            tell_lags(&database, &mut subscribed).await;
                            seen = Some((Instant::now(), backlog.oldest_due_run));
                        }
                    }
                    Ok((false,)) => seen = None,
                    // The database crate logs the failure.
                    Err(_) => {}
                }
            }
            seen = seen.filter(|(at, _)| at.elapsed() < FORGET_AFTER);
            if seen.is_none() {
                tell(&Backlog::default());
                forget_lags(subscribed.drain());
            }
            let due_age = seen.map_or(0.0, |(at, age)| due_age(age, at.elapsed()));
            metrics::OLDEST_DUE_RUN.set(due_age);
            tokio::time::sleep(EVERY).await;
        }
    };
    stop.run_until_cancelled(looking).await;
}

/// How long the oldest run has been due, as it was seen some time ago.
fn due_age(seen: f64, since: Duration) -> f64 {
    // A due query has failed: without the database no run is taken, so the age grows.
    match seen > 0.0 && since > LOOK_EVERY {
        true => seen + since.as_secs_f64(),
        false => seen,
    }
}

fn tell(backlog: &Backlog) {
    metrics::OLDEST_APPROVAL.set(backlog.oldest_approval);
    metrics::APPROVALS.set(backlog.approvals as f64);
    metrics::DEAF_WEBHOOKS.set(backlog.deaf_webhooks as f64);
    for (state, runs) in [
        (ActiveState::Ready, backlog.ready),
        (ActiveState::Taken, backlog.taken),
        (ActiveState::Scheduled, backlog.scheduled),
    ] {
        metrics::WAITING_RUNS.set_under([state.as_str()], runs as f64);
    }
}

/// Reports how far behind subscriptions are; `told` are those that were reported last.
async fn tell_lags(database: &Database, told: &mut HashSet<String>) {
    // The database crate logs the failure.
    let Ok(lags) = subscription_lags(database).await else {
        return;
    };
    let mut gone = std::mem::take(told);
    for lag in lags {
        gone.remove(&lag.name);
        metrics::SUBSCRIPTION_LAG.set_under([lag.name.clone()], lag.signals as f64);
        metrics::SUBSCRIPTION_LAG_SECONDS.set_under([lag.name.clone()], lag.seconds);
        told.insert(lag.name);
    }
    forget_lags(gone);
}

/// Nobody waits for these, or another worker reports them.
fn forget_lags(names: impl IntoIterator<Item = String>) {
    for name in names {
        metrics::SUBSCRIPTION_LAG.set_under([name.clone()], 0.0);
        metrics::SUBSCRIPTION_LAG_SECONDS.set_under([name], 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_gets_older_where_nobody_can_look() {
        assert_eq!(due_age(2.0, Duration::from_secs(10)), 2.0);
        assert_eq!(due_age(2.0, Duration::from_secs(40)), 42.0);
        assert_eq!(due_age(0.0, Duration::from_secs(40)), 0.0);
    }
}
