//! The worker as a whole: how its parts are started, held together, and shut down in order.

use std::time::Duration;

use letterbox_broker::{publisher, supervise};
use letterbox_common::process::{admin, readiness::Readiness, shutdown::Deadline};
use letterbox_database::health;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Config,
    consumer::Consumer,
    executor::{Executor, relay},
};

/// Wakes of runs and dead letters are few: one channel is enough.
const PUBLISH_CHANNELS: u16 = 1;
/// Less than a database call may take: the relay waits for confirms inside a transaction.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(8);

/// Runs until `stop`, then shuts down in order: not ready, fetch nothing, finish what was fetched,
/// close the connections.
pub(crate) async fn run(
    config: Config,
    admin_socket: TcpListener,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let readiness = Readiness::default();
    let (process, database) = (
        readiness.component("process"),
        readiness.component("database"),
    );
    let (publishing, consuming) = (
        readiness.component("publisher"),
        readiness.component("consumer"),
    );
    let background = TaskTracker::new();
    // Cancelled when the work is done, later than `stop`.
    let (stop_publishing, stop_background) = (CancellationToken::new(), CancellationToken::new());

    background.spawn(admin::serve(
        admin_socket,
        readiness.clone(),
        metrics,
        stop_background.clone(),
    ));
    background.spawn(health::watch(
        config.database.clone(),
        database,
        stop_background.clone(),
    ));

    let (publisher, session) = publisher(PUBLISH_CHANNELS, PUBLISH_TIMEOUT);
    let publisher_task = {
        let (target, name) = (config.broker.clone(), format!("{} (publish)", config.name));
        let stop = stop_publishing.clone();
        tokio::spawn(async move { supervise(target, &name, publishing, session, stop).await })
    };
    let relay_task = tokio::spawn(relay(
        config.database.clone(),
        publisher.clone(),
        config.name.clone(),
        stop.clone(),
    ));
    let consumer = Consumer {
        database: config.database.clone(),
        publisher,
        executor: Executor {
            database: config.database.clone(),
            keys: config.keys,
            egress: config.egress,
            timeouts: config.timeouts,
        },
        prefetch: config.prefetch,
        max_batch: config.max_batch,
        run_concurrency: config.run_concurrency,
        name: config.name.clone(),
    };
    let consumer_task = {
        let (target, name, stop) = (config.broker, config.name, stop.clone());
        tokio::spawn(async move { supervise(target, &name, consuming, consumer, stop).await })
    };
    process.ready();
    stop.cancelled().await;

    let deadline = Deadline::after(config.shutdown_timeout);
    process.not_ready("stopping");
    let mut in_order = deadline
        .step("consumer", async { drop(consumer_task.await) })
        .await;
    in_order &= deadline
        .step("relay", async { drop(relay_task.await) })
        .await;
    stop_publishing.cancel();
    in_order &= deadline
        .step("publisher", async { drop(publisher_task.await) })
        .await;
    config.database.close();
    stop_background.cancel();
    background.close();
    in_order &= deadline.step("admin", background.wait()).await;
    tracing::info!(in_order, "stopped");
}
