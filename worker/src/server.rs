//! Starts the worker's parts, keeps them running and shuts them down in order.

use std::{sync::Arc, time::Duration};

use letterbox_broker::{publisher, supervise};
use letterbox_common::{
    process::{admin::Admin, readiness::Readiness, shutdown::Deadline, tasks::Tasks},
    states::Program,
};
use letterbox_database::{observe, presence};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use crate::{
    config::Config,
    consumer::{Consumer, InHand},
    executor::{Executor, Hand, Limits, Turns},
    grants::Grants,
    memory::Mover,
    notices::Notices,
    recorder::Recorder,
    stored_bytes::StoredBytes,
    subscriptions::Subscriptions,
    waiting,
};

/// For dead letters: a queue that does not answer may hold up a channel.
const PUBLISH_CHANNELS: u16 = 2;
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(8);

/// Runs until `stop`, then shuts down in order.
pub(crate) async fn run(config: Config, admin: Admin, stop: CancellationToken) {
    let readiness = Readiness::default();
    let process = readiness.component("process");
    let time = config.settings.process.shutdown_timeout;
    let database = config.database.clone();
    let mut tasks = start(config, &readiness, &stop);
    observe(&mut tasks, &stop, &database, &readiness, admin);
    process.ready();
    stop.cancelled().await;

    process.not_ready("stopping");
    let in_order = tasks.end(Deadline::after(time)).await;
    tracing::info!(in_order, "stopped");
}

/// Starts the tasks in the order in which they end: stop fetching and taking, finish what was
/// fetched and taken, then close the connections.
fn start(config: Config, readiness: &Readiness, stop: &CancellationToken) -> Tasks {
    let settings = config.settings;
    let database = config.database;
    let worker = Uuid::now_v7();
    let name = config.name;
    let stored_bytes = StoredBytes::default();
    let hand = Hand::new(settings.run_concurrency);
    let in_hand = InHand::default();
    let (publisher, session) = publisher(PUBLISH_CHANNELS, PUBLISH_TIMEOUT);
    let to_publish = config.broker.clone().to_publish();
    let mut tasks = Tasks::new(stop);

    let recorder = Recorder {
        database: database.clone(),
        stored_bytes: stored_bytes.clone(),
        max_daily_bytes: settings.workspace_daily_megabytes << 20,
        hand: hand.clone(),
    };
    let consumer = Consumer {
        recorder,
        publisher,
        in_hand: in_hand.clone(),
        prefetch: settings.prefetch,
        max_batch: usize::from(settings.batch_size),
        name: name.clone(),
    };
    tasks.spawn("consumer", |stop| {
        consumer.run(config.broker, readiness.clone(), stop)
    });

    // Whatever becomes of the broker: a request in flight is awaited, and its answer written. What
    // writes for the runs outlasts them; both outlast the taking of further ones.
    let runs = TaskTracker::new();
    let writing = TaskTracker::new();
    let turns = Turns {
        database: database.clone(),
        executor: Arc::new(Executor::new(
            database.clone(),
            config.keys.clone(),
            config.egress.clone(),
            settings.timeouts,
            stop.clone(),
            stored_bytes.clone(),
            &writing,
        )),
        worker,
        name: name.clone(),
        limits: Limits {
            workspace: usize::from(settings.runs_per_workspace),
            account: usize::from(settings.requests_per_account),
        },
        hand,
        tasks: runs.clone(),
    };
    tasks.spawn("turns", |stop| turns.run(stop));
    tasks.wait("runs", &runs);
    tasks.wait("answers", &writing);
    tasks.then("last turn", Turns::forget(database.clone(), worker));

    let subscriptions = Subscriptions {
        database: database.clone(),
        worker,
        name: name.clone(),
    };
    let target = to_publish.clone();
    let part = readiness.component("signals");
    tasks.spawn("signals", |stop| {
        supervise(
            target,
            format!("{name} (signals)"),
            part,
            subscriptions,
            stop,
        )
    });

    // Only now: the consumer publishes dead letters until it ends.
    tasks.next_stage();
    let part = readiness.component("publisher");
    tasks.spawn("publisher", |stop| {
        supervise(to_publish, format!("{name} (publish)"), part, session, stop)
    });
    let grants = Grants {
        database: database.clone(),
        keys: config.keys.clone(),
        egress: config.egress.clone(),
    };
    // What an exchange gives is worth nothing until it is written.
    tasks.spawn("grants", |_| grants.keep(stop.clone()));
    tasks.spawn("stored bytes", |stop| {
        stored_bytes.note(database.clone(), stop)
    });
    let retention = settings.retention.keep(database.clone(), stop.clone());
    tasks.spawn("retention", |_| retention);
    let recipient = config.keys.recipient();
    let notices = Notices {
        database: database.clone(),
        keys: config.keys,
        egress: config.egress,
        mailer: config.mailer,
        desk: settings.desk_url,
        gather: settings.notice,
    };
    tasks.spawn("notices", |_| notices.keep(stop.clone()));
    let mover = Mover::new(database.clone());
    tasks.spawn("memory", |_| mover.keep(worker, stop.clone()));
    tasks.spawn("waiting", |stop| {
        waiting::watch(database.clone(), worker, in_hand, stop)
    });
    let present = presence::tell(
        database,
        Program::Worker,
        name,
        recipient,
        config.told,
        readiness.clone(),
        stop.clone(),
    );
    tasks.spawn("presence", |_| present);
    tasks
}
