//! What waits, and for how long: looked at every few seconds, for the metrics.

mod store;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use letterbox_database::Database;
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;
use self::store::Waiting;
use crate::{consumer::InHand, executor::RelayHints, metrics};

/// How often to look at what this worker has in hand.
const EVERY: Duration = Duration::from_secs(5);
/// How often to look at the database.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Looks until `stop`. At the database looks the worker whose relay hands over, because all would
/// see the same.
pub(crate) async fn watch(
    database: Database,
    in_hand: InHand,
    relay: RelayHints,
    stop: CancellationToken,
) {
    let looking = async {
        let (mut looked, mut due_age): (Option<Instant>, f64) = (None, 0.0);
        loop {
            for (queue, oldest) in in_hand.oldest() {
                let now = Timestamp::now();
                let age = now.duration_since(oldest.unwrap_or(now)).as_secs_f64();
                // By the clocks of two machines: what seems to be negative is none.
                metrics::OLDEST_ENTRY.set_under([queue], age.max(0.0));
            }
            if !relay.leads() {
                (looked, due_age) = (None, 0.0);
                metrics::OLDEST_DUE_RUN.set(0.0);
                tell(&Waiting::NOTHING);
            } else {
                if looked.is_none_or(|at| at.elapsed() > LOOK_EVERY) {
                    // A failure is logged where it happens. Nothing is taken meanwhile: it gets
                    // older.
                    match store::waiting(&database).await {
                        Ok(waiting) => {
                            tell(&waiting);
                            (due_age, looked) = (waiting.oldest_due_run, Some(Instant::now()));
                        }
                        Err(_) => due_age += EVERY.as_secs_f64(),
                    }
                }
                let refused = relay.refused_for().as_secs_f64();
                metrics::OLDEST_DUE_RUN.set(due_age.max(refused));
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    stop.run_until_cancelled(looking).await;
}

fn tell(waiting: &Waiting) {
    metrics::OLDEST_APPROVAL.set(waiting.oldest_approval);
    metrics::APPROVALS.set(waiting.approvals as f64);
    for (state, runs) in waiting.runs {
        metrics::WAITING_RUNS.set_under([state.as_str()], runs as f64);
    }
}
