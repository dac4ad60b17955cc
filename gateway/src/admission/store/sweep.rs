//! Deletes rate limits without a hit in the last minute.

use std::time::Duration;

use letterbox_database::{Database, statements};
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_secs(60);
const PAGE: i64 = 5_000;

statements! {
    /// Deletes keys without a hit in the last 60 seconds, and skips those that are in use.
    fn sweep_rate_limits(most: i64) -> u64 = "
DELETE FROM rate_limits WHERE key IN (
    SELECT key FROM rate_limits
    WHERE coalesce(hits[cardinality(hits)], '-infinity')
        <= clock_timestamp() - interval '60 seconds'
    LIMIT $1 FOR UPDATE SKIP LOCKED)";
}

/// Sweeps periodically until `stop`.
pub(crate) async fn sweep(database: Database, stop: CancellationToken) {
    let pause = || tokio::time::sleep(PERIOD);
    while stop.run_until_cancelled(pause()).await.is_some() {
        // A failure is logged where it happens; the next sweep catches up.
        while matches!(
            sweep_rate_limits(&database, PAGE).await,
            Ok(swept) if swept == PAGE as u64
        ) {}
    }
}
