//! The worker as a whole: how its parts are started, held together, and stopped in order.

use std::time::Duration;

use letterbox_common::{
    broker::{self, publisher},
    database::health,
    process::{admin, readiness::Readiness, shutdown::Deadline},
};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Config,
    consumer::{Consumer, Runs},
    executor::{Executor, relay},
};

/// Wakes of runs and dead letters are few: one channel, and patience.
const PUBLISH_CHANNELS: u16 = 1;
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs until `stop`, then stops in order: not ready, fetch nothing, finish what was fetched, close
/// the connections.
pub async fn run(
    config: Config,
    admin_socket: TcpListener,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let readiness = Readiness::default();
    let (running, database) = (readiness.part("process"), readiness.part("database"));
    let (publishes, consumes) = (readiness.part("publisher"), readiness.part("consumer"));
    let background = TaskTracker::new();
    let (publishing, over) = (CancellationToken::new(), CancellationToken::new());

    background.spawn(admin::serve(
        admin_socket,
        readiness.clone(),
        metrics,
        over.clone(),
    ));
    background.spawn(health::watch(config.pool.clone(), database, over.clone()));

    let (publisher, session) = publisher(PUBLISH_CHANNELS, PUBLISH_TIMEOUT);
    let publishing_task = {
        let (target, name, publishing) = (
            config.broker.clone(),
            format!("{} (publish)", config.name),
            publishing.clone(),
        );
        tokio::spawn(async move {
            broker::supervise(target, &name, publishes, session, publishing).await
        })
    };
    let executor = Executor {
        pool: config.pool.clone(),
        keys: config.keys,
        egress: config.egress,
        patience: config.patience,
    };
    let relaying = tokio::spawn(relay(
        config.pool.clone(),
        publisher.clone(),
        config.name.clone(),
        stop.clone(),
    ));
    let consumer = Consumer {
        pool: config.pool.clone(),
        runs: Runs {
            executor,
            publisher: publisher.clone(),
            concurrency: config.run_concurrency,
        },
        publisher,
        prefetch: config.prefetch,
        batch_size: config.batch_size,
        name: config.name.clone(),
    };
    let consuming_task = {
        let (target, name, stop) = (config.broker, config.name, stop.clone());
        tokio::spawn(
            async move { broker::supervise(target, &name, consumes, consumer, stop).await },
        )
    };
    running.ready();
    stop.cancelled().await;

    let deadline = Deadline::after(config.shutdown_timeout);
    running.waits_for("stopping");
    let mut in_order = deadline
        .step("consumer", async { drop(consuming_task.await) })
        .await;
    in_order &= deadline.step("relay", async { drop(relaying.await) }).await;
    publishing.cancel();
    in_order &= deadline
        .step("publisher", async { drop(publishing_task.await) })
        .await;
    config.pool.close();
    over.cancel();
    background.close();
    in_order &= deadline.step("admin", background.wait()).await;
    tracing::info!(in_order, "stopped");
}
