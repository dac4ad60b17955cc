//! Starts the worker's parts, keeps them running and shuts them down in order.

use std::{sync::Arc, time::Duration};

use letterbox_broker::{Publisher, publisher, supervise};
use letterbox_common::{
    process::{admin::Admin, readiness::Readiness, shutdown::Deadline, tasks::Tasks},
    states::Program,
};
use letterbox_database::{observe, presence};
use tokio::sync::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Config,
    consumer::{Consumer, InHand},
    executor::{Executor, Hand, Limits, Turns, answer_trials},
    grants::Grants,
    memory::Mover,
    notices::Notices,
    recorder::Recorder,
    stored_bytes::StoredBytes,
    subscriptions::{Subscriptions, post_signals},
    upkeep::waiting,
};

/// For dead letters: a queue that does not answer may hold up a channel.
const PUBLISH_CHANNELS: u16 = 2;
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(8);

/// Runs until `stop`, then shuts down in order.
pub(crate) async fn run(config: Config, admin: Admin, stop: CancellationToken) {
    let readiness = Readiness::default();
    let process = readiness.component("process");
    let time = config.settings.process.shutdown_timeout;
    let database = config.worker.database.clone();
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
    let worker = &config.worker;
    let database = || worker.database.clone();
    let to_publish = || config.broker.clone().to_publish();
    let in_hand = InHand::default();
    let stored_bytes = StoredBytes::default();
    let (publisher, session) = publisher(PUBLISH_CHANNELS, PUBLISH_TIMEOUT);
    let mut tasks = Tasks::new(stop);

    let writing = TaskTracker::new();
    let turns = turns(&config, &stored_bytes, &writing, stop);
    let consumer = consumer(&config, &turns, &in_hand, &stored_bytes, publisher);
    tasks.spawn("consumer", |stop| {
        consumer.run(config.broker.clone(), readiness.clone(), stop)
    });
    execute(&mut tasks, turns, &writing);
    let subscriptions = Subscriptions(worker.clone());
    let name = format!("{} (signals)", worker.name);
    let part = readiness.component("signals");
    tasks.spawn("signals", |stop| {
        supervise(to_publish(), name, part, subscriptions, stop)
    });
    tasks.spawn("posts", |stop| post_signals(worker.clone(), stop));

    // Only now: the consumer publishes dead letters until it ends.
    tasks.next_stage();
    let name = format!("{} (publish)", worker.name);
    let part = readiness.component("publisher");
    tasks.spawn("publisher", |stop| {
        supervise(to_publish(), name, part, session, stop)
    });
    // What an exchange gives is worth nothing until it is written.
    tasks.spawn("grants", |_| Grants(worker.clone()).keep(stop.clone()));
    tasks.spawn("stored bytes", |stop| stored_bytes.note(database(), stop));
    let retention = config.settings.retention;
    tasks.spawn("retention", |_| retention.keep(database(), stop.clone()));
    let notices = Notices {
        worker: worker.clone(),
        mailer: config.mailer.clone(),
        desk: config.settings.desk_url.clone(),
        gather: config.settings.notice,
    };
    tasks.spawn("notices", |_| notices.keep(stop.clone()));
    let mover = Mover::new(database());
    tasks.spawn("memory", |_| mover.keep(worker.id, stop.clone()));
    tasks.spawn("waiting", |stop| {
        waiting::watch(database(), worker.id, in_hand, stop)
    });
    let present = presence::tell(
        database(),
        Program::Worker,
        worker.name.clone(),
        worker.keys.recipient(),
        config.told,
        readiness.clone(),
        stop.clone(),
    );
    tasks.spawn("presence", |_| present);
    tasks
}

fn consumer(
    config: &Config,
    turns: &Arc<Turns>,
    in_hand: &InHand,
    stored_bytes: &StoredBytes,
    publisher: Publisher,
) -> Consumer {
    let settings = &config.settings;
    Consumer {
        recorder: Recorder {
            database: config.worker.database.clone(),
            stored_bytes: stored_bytes.clone(),
            max_daily_bytes: settings.workspace_daily_megabytes << 20,
            turns: turns.clone(),
        },
        publisher,
        in_hand: in_hand.clone(),
        prefetch: settings.prefetch,
        max_batch: usize::from(settings.batch_size),
        name: config.worker.name.clone(),
    }
}

/// What takes runs and executes them.
fn turns(
    config: &Config,
    stored_bytes: &StoredBytes,
    writing: &TaskTracker,
    stop: &CancellationToken,
) -> Arc<Turns> {
    let Config {
        worker, settings, ..
    } = config;
    let executor = Executor::new(
        worker.clone(),
        settings.timeouts,
        stop.clone(),
        stored_bytes.clone(),
        writing,
    );
    Arc::new(Turns {
        worker: worker.clone(),
        executor: Arc::new(executor),
        limits: Limits {
            workspace: usize::from(settings.runs_per_workspace),
            account: usize::from(settings.requests_per_account),
        },
        hand: Hand::new(settings.run_concurrency, settings.requests_per_account),
        tasks: TaskTracker::new(),
        memory: Mutex::default(),
    })
}

/// Executes runs. Whatever becomes of the broker: a request in flight is awaited, and its answer
/// written. What writes for the runs outlasts them; both outlast the taking of further ones.
fn execute(tasks: &mut Tasks, turns: Arc<Turns>, writing: &TaskTracker) {
    let (runs, worker) = (turns.tasks.clone(), turns.worker.clone());
    let executor = turns.executor.clone();
    tasks.spawn("trials", |stop| answer_trials(executor, stop));
    tasks.spawn(
        "turns",
        |stop| async move { Box::pin(turns.run(stop)).await },
    );
    tasks.wait("runs", &runs);
    tasks.wait("answers", writing);
    tasks.then("last turn", Turns::forget(worker));
}
