//! The gateway as a whole: starts its parts, connects them, and shuts them down in order.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use letterbox_broker::{publisher, supervise};
use letterbox_common::{
    process::{admin::Admin, readiness::Readiness, shutdown::Deadline, tasks::Tasks},
    states::Program,
};
use letterbox_database::{observe, presence};
use letterbox_form_page::Documents;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    acceptance::{Acceptance, LaneParts},
    admission::{Admission, sweep},
    ceilings::{Ceilings, DailyBytes},
    claims::Claims,
    config::Config,
    faults::Faults,
    listener::{Connections, Listener},
    open_batches::{Outlet, Settlements, Spill, SpillSize},
    proof::Proofs,
    repeats::Repeats,
    request_log::RequestLog,
    state::Gateway,
    webhook_secrets::WebhookSecrets,
    work_queues::WorkQueues,
};

/// The share of the database in the deadline of an answer, beyond the wait for the broker.
const DATABASE_SHARE: Duration = Duration::from_secs(3);

/// What is left of a shutdown's time when requests are no longer waited for.
const TIME_TO_WRITE: Duration = Duration::from_secs(4);

/// Runs until `stop`, then shuts down in order.
pub(crate) async fn run(
    config: Config,
    public: TcpListener,
    admin: Admin,
    stop: CancellationToken,
) {
    let readiness = Readiness::default();
    let mut tasks = Tasks::new(&stop);
    let serving = readiness.component("listener");
    let max_connections = config.settings.max_connections as usize;
    let time = config.settings.process.shutdown_timeout;
    let database = config.database.clone();
    let gateway = match assemble(config, &mut tasks, &readiness, &stop) {
        Ok(gateway) => Arc::new(gateway),
        Err(error) => return tracing::error!(%error, "can't start"),
    };
    observe(&mut tasks, &stop, &database, &readiness, admin);
    serving.ready();
    let listener = Listener::new(public, gateway.clone(), max_connections);
    // They finish their requests after `stop`.
    let connections = Connections {
        stop: stop.clone(),
        ..Connections::default()
    };
    listener.accept_until(stop.cancelled(), &connections).await;

    serving.not_ready("stopping");
    let deadline = Deadline::after(time);
    let patience = gateway.answer_deadline.min(time / 2);
    let in_order = finish(connections, listener, patience, time).await;
    // The last handle of the batchers: they end when their queues are empty.
    drop(gateway);
    let in_order = tasks.end(deadline).await && in_order;
    tracing::info!(in_order, "stopped");
}

/// Finishes the requests. Returns `false` if some were not finished in time.
async fn finish(
    connections: Connections,
    listener: Listener,
    patience: Duration,
    time: Duration,
) -> bool {
    let for_requests = Deadline::after(time - TIME_TO_WRITE.min(time / 4));
    // Senders are served until what was begun is safe: with a silent broker that takes a while, and
    // no other gateway may be there.
    let late = Connections::default();
    let begun = tokio::time::timeout(patience, connections.ended());
    listener.accept_until(begun.map(drop), &late).await;
    listener.accept_backlog(&late);
    drop(listener);
    late.stop.cancel();
    let requests = async {
        connections.ended().await;
        late.ended().await;
    };
    let in_order = for_requests.step("connections", requests).await;
    // What is slower must not keep the others from being settled.
    connections.cut.cancel();
    late.cut.cancel();
    in_order
}

/// Starts the tasks in the order in which they end, and creates the state of the handlers.
fn assemble(
    config: Config,
    tasks: &mut Tasks,
    readiness: &Readiness,
    stop: &CancellationToken,
) -> Result<Gateway, Box<dyn Error>> {
    let batchers = TaskTracker::new();
    tasks.wait("batchers", &batchers);
    let lanes = lane_parts(&config, tasks, readiness);
    let settings = config.settings;
    let database = config.database;
    tasks.spawn("sweep", |stop| sweep(database.clone(), stop));
    let present = presence::tell(
        database.clone(),
        Program::Gateway,
        config.name,
        config.keys.recipient(),
        config.told,
        readiness.clone(),
        stop.clone(),
    );
    tasks.spawn("presence", |_| present);

    let daily_bytes = DailyBytes {
        workspace: settings.workspace_daily_megabytes << 20,
        webhook: settings.webhook_daily_megabytes << 20,
    };
    Ok(Gateway {
        origins: config.origins,
        proxies: config.proxies,
        trusted_request_ids: settings.trusted_request_ids,
        base_url: settings.base_url.as_str().trim_end_matches('/').to_owned(),
        documents: Documents::new(&settings.base_url),
        proofs: Proofs::new(config.keys.clone(), settings.proof_bits),
        secrets: WebhookSecrets::start(database.clone(), config.keys, &batchers)?,
        ceilings: Ceilings::start(database.clone(), daily_bytes, &batchers),
        faults: Faults::start(database.clone(), &batchers),
        admission: Admission::start(database, &batchers),
        request_log: RequestLog::new(Instant::now()),
        repeats: Repeats::start(lanes.claims.clone(), &batchers),
        changed_deliveries: Repeats::start(lanes.claims.clone(), &batchers),
        claims: lanes.claims.clone(),
        deliveries: Acceptance::start(settings.lanes, lanes.clone(), &batchers),
        submissions: Acceptance::start(settings.lanes, lanes, &batchers),
        answer_deadline: settings.publish_timeout + DATABASE_SHARE,
    })
}

/// Starts what the lanes hand their batches to.
fn lane_parts(config: &Config, tasks: &mut Tasks, readiness: &Readiness) -> LaneParts {
    let settings = &config.settings;
    let database = &config.database;
    // Writes what the batchers leave.
    let settlements = Arc::new(Settlements::default());
    tasks.next_stage();
    tasks.spawn("settlements", |stop| {
        settlements.clone().run(database.clone(), stop)
    });

    // One channel for each lane of deliveries and of submissions.
    let (publisher, session) = publisher(2 * settings.lanes, settings.publish_timeout);
    // Without the broker the gateway is ready as well: messages are spilled.
    let broker = readiness.dispensable("broker");
    let target = config.broker.clone();
    tasks.next_stage();
    tasks.spawn("publisher", |stop| {
        supervise(target, config.name.clone(), broker, session, stop)
    });
    let queues = readiness.dispensable("queues");
    let outlet = Arc::new(Outlet::new(publisher, config.name.clone(), queues));
    let limits = SpillSize {
        messages: settings.spill_messages,
        bytes: settings.spill_megabytes << 20,
    };
    let part = readiness.component("spill");
    let spill = Arc::new(Spill::new(database.clone(), limits, part));
    tasks.spawn("spill", |stop| spill.clone().watch(outlet.clone(), stop));
    let work_queues = Arc::new(WorkQueues::default());
    tasks.spawn("work queues", |stop| {
        let announced = work_queues.clone();
        announced.announce(database.clone(), settings.work_queues, stop)
    });
    LaneParts {
        claims: Claims::new(database.clone(), settings.claim_lease, settlements.clone()),
        outlet,
        spill,
        settlements,
        work_queues,
    }
}
