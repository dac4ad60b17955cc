//! Gauges of waiting work and its age, refreshed every few seconds.

mod store;

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use letterbox_database::Database;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::store::Backlog;
pub(crate) use self::store::{STATEMENTS, is_oldest_worker};
use crate::{consumer::InHand, metrics, subscriptions};

/// How often the entries held by this worker are examined.
const EVERY: Duration = Duration::from_secs(5);
/// How often the database is queried.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// After this time without an answer from the database the last result is dropped, because another
/// worker may report by now.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Refreshes the gauges until `stop`. Only the worker that has been alive for longest reports what
/// waits in the database: every worker would see the same.
pub(crate) async fn watch(
    database: Database,
    worker: Uuid,
    in_hand: InHand,
    stop: CancellationToken,
) {
    let looking = async {
        let mut seen: Option<SeenLabels> = None;
        let mut subscribed = HashSet::new();
        loop {
            for (queue, oldest) in in_hand.oldest() {
                let now = Timestamp::now();
                let age = now.duration_since(oldest.unwrap_or(now)).as_secs_f64();
                // Two machines' clocks may differ: a negative age counts as 0.
                metrics::OLDEST_ENTRY.set_under([queue], age.max(0.0));
            }
            if seen.is_none_or(|seen| seen.at.elapsed() > LOOK_EVERY) {
                match store::waiting(&database, worker).await {
                    Ok(Some(waiting)) => {
                        tell(&waiting);
                        tell_lags(&database, &mut subscribed).await;
                        seen = Some(SeenLabels {
                            at: Instant::now(),
                            oldest_due_run: waiting.oldest_due_run,
                        });
                    }
                    Ok(None) => seen = None,
                    // The database crate logs the failure.
                    Err(_) => {}
                }
            }
            seen = seen.filter(|seen| seen.at.elapsed() < FORGET_AFTER);
            if seen.is_none() {
                tell(&Backlog::NOTHING);
                forget_lags(subscribed.drain());
            }
            let due_age = |seen: SeenLabels| seen.due_age(seen.at.elapsed());
            metrics::OLDEST_DUE_RUN.set(seen.map_or(0.0, due_age));
            tokio::time::sleep(EVERY).await;
        }
    };
    stop.run_until_cancelled(looking).await;
}

/// The result of the last query.
#[derive(Clone, Copy)]
struct SeenLabels {
    at: Instant,
    /// In seconds.
    oldest_due_run: f64,
}

impl SeenLabels {
    /// How long the oldest run has been due.
    fn due_age(self, since: Duration) -> f64 {
        // A due query has failed: without the database no run is taken, so the age grows.
        if self.oldest_due_run > 0.0 && since > LOOK_EVERY {
            self.oldest_due_run + since.as_secs_f64()
        } else {
            self.oldest_due_run
        }
    }
}

fn tell(waiting: &Backlog) {
    metrics::OLDEST_APPROVAL.set(waiting.oldest_approval);
    metrics::APPROVALS.set(waiting.approvals as f64);
    for (state, runs) in waiting.runs {
        metrics::WAITING_RUNS.set_under([state.as_str()], runs as f64);
    }
}

/// Reports how far behind subscriptions are; `told` are the queues that were reported last.
async fn tell_lags(database: &Database, told: &mut HashSet<String>) {
    // The database crate logs the failure.
    let Ok(lags) = subscriptions::subscription_lags(database).await else {
        return;
    };
    let mut gone = std::mem::take(told);
    for lag in lags {
        gone.remove(&lag.queue);
        metrics::SUBSCRIPTION_LAG.set_under([lag.queue.clone()], lag.signals as f64);
        metrics::SUBSCRIPTION_LAG_SECONDS.set_under([lag.queue.clone()], lag.seconds);
        told.insert(lag.queue);
    }
    forget_lags(gone);
}

/// Nobody waits for these, or another worker reports them.
fn forget_lags(queues: impl IntoIterator<Item = String>) {
    for queue in queues {
        metrics::SUBSCRIPTION_LAG.set_under([queue.clone()], 0.0);
        metrics::SUBSCRIPTION_LAG_SECONDS.set_under([queue], 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_gets_older_where_nobody_can_look() {
        let seen = |oldest_due_run| SeenLabels {
            at: Instant::now(),
            oldest_due_run,
        };
        assert_eq!(seen(2.0).due_age(Duration::from_secs(10)), 2.0);
        assert_eq!(seen(2.0).due_age(Duration::from_secs(40)), 42.0);
        assert_eq!(seen(0.0).due_age(Duration::from_secs(40)), 0.0);
    }
}
