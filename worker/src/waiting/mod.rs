//! What waits, and for how long: looked at every few seconds, for the metrics.

mod store;

use std::time::Duration;

use jiff::Timestamp;
use letterbox_database::Database;
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;
use crate::{consumer::InHand, metrics};

/// How often to look.
const EVERY: Duration = Duration::from_secs(5);

/// Looks until `stop`. Every worker does: one that can't leaves it to the others.
pub(crate) async fn watch(database: Database, in_hand: InHand, stop: CancellationToken) {
    let looking = async {
        loop {
            for (queue, oldest) in in_hand.oldest() {
                let now = Timestamp::now();
                let age = now.duration_since(oldest.unwrap_or(now)).as_secs_f64();
                // By the clocks of two machines: what seems to be negative is none.
                let age = age.max(0.0);
                metrics::OLDEST_ENTRY.set_under([queue], age);
            }
            // A failure is logged where it happens, and the next look comes.
            if let Ok(waiting) = store::waiting(&database).await {
                metrics::OLDEST_DUE_RUN.set(waiting.oldest_due_run);
                metrics::OLDEST_APPROVAL.set(waiting.oldest_approval);
                metrics::APPROVALS.set(waiting.approvals as f64);
                for (state, runs) in waiting.runs {
                    metrics::WAITING_RUNS.set_under([state.as_str()], runs as f64);
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    stop.run_until_cancelled(looking).await;
}
