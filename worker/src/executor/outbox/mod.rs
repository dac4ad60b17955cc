//! The relay: hands what is due in the outbox to RabbitMQ, and puts it off when the broker has
//! confirmed. If it dies in between it hands it over again, which wakes a run twice and changes
//! nothing. If the broker loses it (somebody empties a queue), it is due again some minutes later.

mod store;

use std::time::Duration;

use futures_util::future;
use letterbox_broker::{Message, Publisher, RunWake};
use letterbox_common::ids::{RunId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, Transaction, Work};
use tokio_util::sync::CancellationToken;

use crate::metrics;

pub(super) use self::store::STATEMENTS;
pub(crate) use self::store::wake_again;

/// Maximum number of wakes in one transaction.
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
    while !stop.is_cancelled() {
        let pause = match relay_page(&database, &publisher, &app_id).await {
            Ok(page) if page.due > page.confirmed => OUTAGE_PAUSE,
            // There may be more.
            Ok(page) if page.due == PAGE => continue,
            Ok(_) => IDLE_PAUSE,
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

async fn relay_page(
    database: &Database,
    publisher: &Publisher,
    app_id: &str,
) -> Result<Page, DatabaseError> {
    let work = RelayPage { publisher, app_id };
    let page = database
        .transaction("relay_wakes", &work)
        .await?
        .unwrap_or(Page {
            due: 0,
            confirmed: 0,
        });
    metrics::RUN_WAKES.increment(page.confirmed as u64);
    Ok(page)
}

struct RelayPage<'a> {
    publisher: &'a Publisher,
    app_id: &'a str,
}

impl Work for RelayPage<'_> {
    type Output = Page;

    async fn run(&self, transaction: &Transaction<'_>) -> Result<Option<Page>, DatabaseError> {
        let due = store::due_wakes(transaction, PAGE).await?;
        let publishing = due.iter().map(|(workspace, run)| {
            self.publisher
                .publish(message(*workspace, *run, self.app_id))
        });
        let results = future::join_all(publishing).await;
        let confirmed: Vec<_> = due
            .iter()
            .zip(results)
            .filter_map(|(wake, result)| result.is_ok().then_some(*wake))
            .collect();
        if !confirmed.is_empty() {
            store::put_off(transaction, &confirmed).await?;
        }
        Ok(Some(Page {
            due: due.len(),
            confirmed: confirmed.len(),
        }))
    }
}

fn message(workspace: WorkspaceId, run: RunId, app_id: &str) -> Message {
    RunWake { workspace, run }.message(app_id)
}
