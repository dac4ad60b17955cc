//! The relay: takes what is due in the outbox, hands it to RabbitMQ, and puts it off when the
//! broker has confirmed. If it dies in between it is due again, which wakes a run twice and changes
//! nothing. If the broker loses it (somebody empties a queue), it is due again some minutes later.

mod store;

use std::time::{Duration, Instant};

use futures_util::future;
use letterbox_broker::{Message, Publisher, RunWake};
use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{Database, DatabaseError};
use tokio_util::sync::CancellationToken;

use crate::metrics;

pub(super) use self::store::STATEMENTS;
pub(crate) use self::store::wake_again;

/// How often to look at wakes, too, that have been due for long.
const ALL_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of wakes that are taken at once.
const PAGE: usize = 200;
/// Pause when nothing is due.
const IDLE_PAUSE: Duration = Duration::from_millis(100);
/// Pause when a server is away.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

/// Relays until `stop`. `app_id` names the publishing process.
pub(crate) async fn relay(
    database: Database,
    publisher: Publisher,
    app_id: String,
    stop: CancellationToken,
) {
    let mut looked_at_all: Option<Instant> = None;
    while !stop.is_cancelled() {
        let all = looked_at_all.is_none_or(|at| at.elapsed() > ALL_EVERY);
        let pause = match relay_page(&database, &publisher, &app_id, all).await {
            Ok(page) if page.due > page.confirmed => OUTAGE_PAUSE,
            // There may be more.
            Ok(page) if page.due == PAGE => continue,
            Ok(_) => {
                looked_at_all = if all {
                    Some(Instant::now())
                } else {
                    looked_at_all
                };
                IDLE_PAUSE
            }
            Err(_) => OUTAGE_PAUSE,
        };
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}

/// How many wakes were due, and how many of them the broker has confirmed.
struct Page {
    due: usize,
    confirmed: usize,
}

/// Takes, publishes and puts off one page. Nothing is locked while the broker is waited for.
async fn relay_page(
    database: &Database,
    publisher: &Publisher,
    app_id: &str,
    all: bool,
) -> Result<Page, DatabaseError> {
    let due = store::take_due(database, PAGE, all).await?;
    let publishing = due
        .iter()
        .map(|wake| publisher.publish(message(wake.workspace, wake.run, app_id)));
    let results = future::join_all(publishing).await;
    let is_confirmed = results.iter().map(Result::is_ok);
    let wakes: Vec<_> = due.into_iter().zip(is_confirmed).collect();
    if !wakes.is_empty() {
        // Where this fails they are due in 30 seconds.
        store::put_off(database, &wakes).await?;
    }
    let confirmed = wakes
        .iter()
        .filter(|(_, is_confirmed)| *is_confirmed)
        .count();
    metrics::RUN_WAKES.increment(confirmed as u64);
    Ok(Page {
        due: wakes.len(),
        confirmed,
    })
}

fn message(workspace: WorkspaceId, run: RunId, app_id: &str) -> Message {
    RunWake { workspace, run }.message(app_id)
}
