//! The relay: hands what is due in the outbox to RabbitMQ, and puts it off when the broker has
//! confirmed. Dying in between, it hands it over once more, which wakes a run twice and changes
//! nothing; and should the broker lose it (somebody empties a queue), it is due again some minutes
//! later.

mod store;

use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::Pool;
use futures_util::future;
use letterbox_common::{
    broker::{Envelope, Message, Publisher, RunWake, topology},
    database::{Checkout, DatabaseError},
    ids::{RunId, WorkspaceId},
};
use tokio_util::sync::CancellationToken;

pub use self::store::{STATEMENTS, wake_again};

const PAGE: i64 = 200;
/// Pause when nothing is due.
const IDLE: Duration = Duration::from_millis(100);
/// Pause when a server is away.
const OUTAGE: Duration = Duration::from_secs(1);

/// Relays until `stop`. `app_id` names the publishing process.
pub async fn relay(pool: Pool, publisher: Publisher, app_id: String, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let pause = match relay_page(&pool, &publisher, &app_id).await {
            Ok((due, handed)) if due == handed && due as i64 == PAGE => continue,
            Ok((due, handed)) if due == handed => IDLE,
            Ok(_) => OUTAGE,
            Err(error) => {
                tracing::debug!(%error, "the outbox could not be read");
                OUTAGE
            }
        };
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}

/// How many were due, and how many of them the broker has now.
async fn relay_page(
    pool: &Pool,
    publisher: &Publisher,
    app_id: &str,
) -> Result<(usize, usize), DatabaseError> {
    let mut client = Checkout::get(pool).await?;
    let transaction = client.transaction().await?;
    let due = store::due_wakes(&transaction, PAGE).await?;
    let publishing = due
        .iter()
        .map(|(workspace, run)| publisher.publish(message(*workspace, *run, app_id)));
    let confirms = future::join_all(publishing).await;
    let confirmed = due
        .iter()
        .zip(&confirms)
        .filter(|(_, confirm)| confirm.is_ok());
    let handed: Vec<_> = confirmed.map(|(wake, _)| *wake).collect();
    if !handed.is_empty() {
        store::handed_over(&transaction, &handed).await?;
    }
    transaction.commit().await?;
    client.done();
    metrics::counter!("letterbox_run_wakes_total").increment(handed.len() as u64);
    Ok((due.len(), handed.len()))
}

fn message(workspace: WorkspaceId, run: RunId, app_id: &str) -> Message {
    Message {
        exchange: topology::EXCHANGE,
        routing_key: topology::RUNS_KEY.into(),
        properties: Envelope::RunWake(RunWake { workspace, run }).properties(app_id),
        body: Bytes::from_static(b"{}"),
    }
}
