//! Starts the worker's parts, keeps them running and shuts them down in order.

use std::{sync::Arc, time::Duration};

use letterbox_broker::{publisher, supervise};
use letterbox_common::{
    process::{
        admin,
        readiness::Readiness,
        shutdown::Deadline,
        supervisor,
        vital::{spawn_vital, vital},
    },
    states::Program,
};
use letterbox_database::{health, presence};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use crate::{
    config::Config,
    consumer::{Consumer, InHand},
    executor::{Executor, Hand, Turns},
    grants::Grants,
    memory::Mover,
    notices::Notices,
    recorder::Recorder,
    spill::SpillRelay,
    stored_bytes::StoredBytes,
    subscriptions::Subscriptions,
    waiting,
};

/// One for dead letters and one for what was spilled.
const PUBLISH_CHANNELS: u16 = 2;
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
    // Cancelled after the consumer and the runs have finished, so later than `stop`.
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
    background.spawn(presence::tell(
        config.database.clone(),
        Program::Worker,
        config.name.clone(),
        config.keys.recipient(),
        config.told.clone(),
        readiness.clone(),
        stop.clone(),
    ));

    let (publisher, session) = publisher(PUBLISH_CHANNELS, PUBLISH_TIMEOUT);
    let publishing = {
        let target = config.broker.clone().to_publish();
        let name = format!("{} (publish)", config.name);
        let (broker, stop) = (readiness.component("publisher"), stop_publishing.clone());
        spawn_vital("publisher", async move {
            supervise(target, &name, broker, session, stop).await;
        })
    };
    let (database, stored_bytes) = (config.database.clone(), StoredBytes::default());
    let (worker, hand) = (Uuid::now_v7(), Hand::new(config.run_concurrency));
    // What writes for the runs outlasts them; both outlast the taking of further ones.
    let (runs, writing) = (TaskTracker::new(), TaskTracker::new());
    let turns = Turns {
        database: database.clone(),
        executor: Arc::new(Executor::new(
            database.clone(),
            config.keys.clone(),
            config.egress.clone(),
            config.timeouts,
            stop.clone(),
            stored_bytes.clone(),
            &writing,
        )),
        worker,
        name: config.name.clone(),
        limits: config.limits,
        hand: hand.clone(),
        tasks: runs.clone(),
    };
    let taking = spawn_vital("turns", turns.run(stop.clone()));
    let shutdown_timeout = config.shutdown_timeout;
    let recorder = Recorder {
        database: database.clone(),
        stored_bytes: stored_bytes.clone(),
        max_daily_bytes: config.max_daily_bytes,
        hand,
    };
    let note = stored_bytes.note(database.clone(), stop_publishing.clone());
    let noting = spawn_vital("stored bytes", note);
    let retention = config.retention.keep(database.clone(), stop.clone());
    background.spawn(vital("retention", retention));
    let notices = Notices {
        database: database.clone(),
        keys: config.keys.clone(),
        egress: config.egress.clone(),
        mailer: config.mailer.clone(),
        desk: config.desk.clone(),
        gather: config.notice,
    };
    background.spawn(vital("notices", notices.keep(stop.clone())));
    let grants = Grants {
        database: database.clone(),
        keys: config.keys.clone(),
        egress: config.egress.clone(),
    };
    let renewing = spawn_vital("grants", grants.keep(stop.clone()));
    let moving = Mover::new(database.clone()).keep(worker, stop.clone());
    background.spawn(vital("memory", moving));
    let relay = SpillRelay {
        database: database.clone(),
        publisher: publisher.clone(),
        name: config.name.clone(),
    };
    let relaying = spawn_vital("spill", relay.run(stop.clone()));
    let feeding = {
        let target = config.broker.clone().to_publish();
        let name = format!("{} (signals)", config.name);
        let (broker, stop) = (readiness.component("signals"), stop.clone());
        let subscriptions = Subscriptions {
            database: database.clone(),
            worker,
            name: config.name.clone(),
        };
        spawn_vital("signals", async move {
            supervise(target, &name, broker, subscriptions, stop).await;
        })
    };
    let in_hand = InHand::default();
    let waiting = waiting::watch(
        database.clone(),
        worker,
        in_hand.clone(),
        stop_background.clone(),
    );
    background.spawn(vital("waiting", waiting));
    let consumer = Consumer {
        recorder,
        publisher,
        in_hand,
        prefetch: config.prefetch,
        max_batch: config.max_batch,
        name: config.name,
    };
    let consumer = consumer.run(config.broker, readiness.clone(), stop.clone());
    let consuming = spawn_vital("consumer", consumer);
    process.ready();
    stop.cancelled().await;

    // Stop fetching and taking, finish what was fetched and taken, then close the connections.
    let deadline = Deadline::after(shutdown_timeout);
    process.not_ready("stopping");
    let consuming = async { drop(consuming.await) };
    let mut in_order = deadline.step("consumer", consuming).await;
    // Whatever has become of the broker: a request in flight is awaited, and its answer written.
    let finishing = async {
        drop(taking.await);
        runs.close();
        runs.wait().await;
        writing.close();
        writing.wait().await;
        Turns::forget(&database, worker).await;
    };
    in_order &= deadline.step("runs", finishing).await;
    let relaying = async { drop(relaying.await) };
    in_order &= deadline.step("spill", relaying).await;
    let feeding = async { drop(feeding.await) };
    in_order &= deadline.step("signals", feeding).await;
    // Only now: the consumer publishes dead letters until it ends.
    stop_publishing.cancel();
    let publishing = async { drop(publishing.await) };
    in_order &= deadline.step("publisher", publishing).await;
    // What an exchange gives is worth nothing until it is written.
    let renewing = async { drop(renewing.await) };
    in_order &= deadline.step("grants", renewing).await;
    let noting = async { drop(noting.await) };
    in_order &= deadline.step("stored bytes", noting).await;
    database.close();
    stop_background.cancel();
    background.close();
    in_order &= deadline.step("admin", background.wait()).await;
    tracing::info!(in_order, "stopped");
}
