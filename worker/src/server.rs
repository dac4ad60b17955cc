//! Starts the worker's parts, keeps them running and shuts them down in order.

use std::time::Duration;

use letterbox_broker::{Publisher, publisher, supervise};
use letterbox_common::process::{
    admin,
    readiness::Readiness,
    shutdown::Deadline,
    supervisor,
    vital::{spawn_vital, vital},
};
use letterbox_database::health;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Config,
    consumer::{Consumer, InHand},
    executor::{Executor, Relay, RelayHints},
    metrics,
    recorder::Recorder,
    stored_bytes::StoredBytes,
    waiting,
};

/// One channel is enough: only wakes and dead letters are published.
const PUBLISH_CHANNELS: u16 = 1;
/// Shorter than the time after which the relay hands over an unanswered wake again.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(8);

/// Runs until `stop`, then shuts down in order.
pub(crate) async fn run(
    config: Config,
    admin_socket: TcpListener,
    exported: PrometheusHandle,
    stop: CancellationToken,
) {
    let (readiness, background) = (Readiness::default(), TaskTracker::new());
    let process = readiness.component("process");
    // Cancelled after the consumer and the relay have finished, so later than `stop`.
    let (stop_publishing, stop_background) = (CancellationToken::new(), CancellationToken::new());
    background.spawn(admin::serve(
        admin_socket,
        readiness.clone(),
        exported,
        stop_background.clone(),
    ));
    background.spawn(supervisor::tell(readiness.clone(), stop.clone()));
    let watching = health::watch(
        config.database.clone(),
        readiness.component("database"),
        stop_background.clone(),
    );
    background.spawn(vital("health", watching));

    let (publisher, session) = publisher(PUBLISH_CHANNELS, PUBLISH_TIMEOUT);
    let publishing = {
        let target = config.broker.clone().to_publish();
        let name = format!("{} (publish)", config.name);
        let (broker, stop) = (readiness.component("publisher"), stop_publishing.clone());
        spawn_vital("publisher", async move {
            supervise(target, &name, broker, session, stop).await;
        })
    };
    let (database, hints) = (config.database.clone(), RelayHints::default());
    let relay = Relay {
        database: database.clone(),
        publisher: publisher.clone(),
        name: config.name.clone(),
        places: config.run_concurrency,
        limits: config.limits,
        hints: hints.clone(),
    };
    let relaying = spawn_vital("relay", relay.run(stop.clone()));
    let shutdown_timeout = config.shutdown_timeout;
    let recorder = Recorder {
        database: database.clone(),
        stored_bytes: StoredBytes::default(),
        max_daily_bytes: config.max_daily_bytes,
        relay: hints,
    };
    let stored_bytes = recorder.stored_bytes.clone();
    let note = stored_bytes.note(database.clone(), stop_publishing.clone());
    let noting = spawn_vital("stored bytes", note);
    let retention = config.retention.keep(database.clone(), stop.clone());
    background.spawn(vital("retention", retention));
    let in_hand = InHand::default();
    let (watched, relayed) = (database.clone(), recorder.relay.clone());
    let waiting = waiting::watch(watched, in_hand.clone(), relayed, stop_background.clone());
    background.spawn(vital("waiting", waiting));
    let consuming = {
        let broker = readiness.component("consumer");
        let (target, name, stop) = (config.broker.clone(), config.name.clone(), stop.clone());
        let consumer = assemble(config, recorder, publisher, in_hand, stop.clone());
        spawn_vital("consumer", async move {
            supervise(target, &name, broker, consumer, stop).await;
        })
    };
    process.ready();
    stop.cancelled().await;

    // Stop fetching, finish what was fetched, then close the connections.
    let deadline = Deadline::after(shutdown_timeout);
    process.not_ready("stopping");
    let consuming = async { drop(consuming.await) };
    let mut in_order = deadline.step("consumer", consuming).await;
    let relaying = async { drop(relaying.await) };
    in_order &= deadline.step("relay", relaying).await;
    // Only now: the consumer publishes dead letters, and the relay wakes, until they end.
    stop_publishing.cancel();
    let publishing = async { drop(publishing.await) };
    in_order &= deadline.step("publisher", publishing).await;
    let noting = async { drop(noting.await) };
    in_order &= deadline.step("stored bytes", noting).await;
    database.close();
    stop_background.cancel();
    background.close();
    in_order &= deadline.step("admin", background.wait()).await;
    tracing::info!(in_order, "stopped");
}

/// The consumer of every work queue, with the executor of runs.
fn assemble(
    config: Config,
    recorder: Recorder,
    publisher: Publisher,
    in_hand: InHand,
    stop: CancellationToken,
) -> Consumer {
    metrics::PLACES.set(config.run_concurrency.into());
    let relay = recorder.relay.clone();
    Consumer {
        recorder,
        publisher,
        executor: Executor {
            database: config.database,
            keys: config.keys,
            egress: config.egress,
            timeouts: config.timeouts,
            relay,
            stop,
        },
        in_hand,
        prefetch: config.prefetch,
        max_batch: config.max_batch,
        run_concurrency: config.run_concurrency,
        name: config.name,
    }
}
