//! The gateway as a whole: starts its parts, connects them, and shuts them down in order.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use letterbox_broker::{Publisher, publisher, supervise};
use letterbox_common::{
    process::{
        admin, bind,
        readiness::Readiness,
        shutdown::Deadline,
        supervisor,
        vital::{spawn_vital, vital},
    },
    states::Program,
};
use letterbox_database::{Database, health, presence};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    acceptance::{Acceptance, LaneParts},
    admission::Admission,
    ceilings::Ceilings,
    claims::Claims,
    config::Config,
    faults::Faults,
    form_page::FormPages,
    listener::{Connections, Listener},
    open_batches::{Outlet, Settlements, Spill},
    proof::Proofs,
    repeats::Repeats,
    request_log::RequestLog,
    state::Gateway,
    webhook_secrets::{DecoyError, WebhookSecrets},
    work_queues::WorkQueues,
};

/// The share of the database in the deadline of an answer, beyond the wait for the broker.
const DATABASE_SHARE: Duration = Duration::from_secs(3);

/// What is left of a shutdown's time when requests are no longer waited for.
const TIME_TO_WRITE: Duration = Duration::from_secs(4);

/// The sockets, bound by the caller.
pub(crate) struct Sockets {
    /// Where senders connect.
    pub public: TcpListener,
    /// Where `/livez`, `/readyz` and `/metrics` are.
    pub admin: TcpListener,
}

impl Sockets {
    /// Binds both.
    ///
    /// # Errors
    /// Names the address that could not be bound.
    pub(crate) fn bind(public: SocketAddr, admin: SocketAddr) -> std::io::Result<Self> {
        Ok(Self {
            public: bind("public", public)?,
            admin: bind("admin", admin)?,
        })
    }
}

/// Runs until `stop`, then shuts down in order.
pub(crate) async fn run(
    config: Config,
    sockets: Sockets,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let (readiness, tasks) = (Readiness::default(), Tasks::new(&stop));
    let serving = readiness.component("listener");
    tasks.background.spawn(admin::serve(
        sockets.admin,
        readiness.clone(),
        metrics,
        tasks.stop_background.clone(),
    ));
    let telling = supervisor::tell(readiness.clone(), stop.clone());
    tasks.background.spawn(telling);
    let watching = health::watch(
        config.database.clone(),
        readiness.component("database"),
        tasks.stop_background.clone(),
    );
    tasks.background.spawn(vital("health", watching));
    tasks.background.spawn(presence::tell(
        config.database.clone(),
        Program::Gateway,
        config.name.clone(),
        config.keys.recipient(),
        config.told.clone(),
        readiness.clone(),
        stop.clone(),
    ));
    // One channel for each lane of deliveries and of submissions.
    let (publisher, session) = publisher(2 * config.lanes, config.publish_timeout);
    let publishing = {
        let (target, name) = (config.broker.clone(), config.name.clone());
        // Without the broker the gateway is ready as well: messages are spilled.
        let broker = readiness.dispensable("broker");
        let stop = tasks.stop_publishing.clone();
        spawn_vital("publisher", async move {
            supervise(target, &name, broker, session, stop).await;
        })
    };

    let (database, max_connections) = (config.database.clone(), config.max_connections);
    let shutdown_timeout = config.shutdown_timeout;
    let gateway = match assemble(config, publisher, &readiness, &tasks) {
        Ok(gateway) => Arc::new(gateway),
        Err(error) => return tracing::error!(%error, "can't start"),
    };
    serving.ready();
    let listener = Listener::new(sockets.public, gateway.clone(), max_connections);
    listener
        .accept_until(stop.cancelled(), &tasks.connections)
        .await;

    serving.not_ready("stopping");
    let in_order = tasks
        .end(shutdown_timeout, listener, gateway, publishing, &database)
        .await;
    tracing::info!(in_order, "stopped");
}

/// The tasks of a gateway, in the order in which they end.
struct Tasks {
    connections: Connections,
    batchers: TaskTracker,
    /// Write what the batchers leave: settlements, spilled messages.
    writers: TaskTracker,
    background: TaskTracker,
    /// Cancelled when the batchers have ended, later than the gateway's own stop.
    stop_writing: CancellationToken,
    stop_publishing: CancellationToken,
    stop_background: CancellationToken,
}

impl Tasks {
    /// No tasks. Connections finish their requests after `stop`.
    fn new(stop: &CancellationToken) -> Self {
        Self {
            connections: Connections {
                stop: stop.clone(),
                ..Connections::default()
            },
            batchers: TaskTracker::new(),
            writers: TaskTracker::new(),
            background: TaskTracker::new(),
            stop_writing: CancellationToken::new(),
            stop_publishing: CancellationToken::new(),
            stop_background: CancellationToken::new(),
        }
    }

    /// Finishes requests, then batches, writes their outcomes, and closes the connections. Returns
    /// `false` if a step did not end in time.
    async fn end(
        self,
        time: Duration,
        listener: Listener,
        gateway: Arc<Gateway>,
        publishing: JoinHandle<()>,
        database: &Database,
    ) -> bool {
        let deadline = Deadline::after(time);
        let for_requests = Deadline::after(time - TIME_TO_WRITE.min(time / 4));
        // Senders are served until what was begun is safe: with a silent broker that takes a while,
        // and no other gateway may be there.
        let late = Connections::default();
        let patience = gateway.answer_deadline.min(time / 2);
        let begun = tokio::time::timeout(patience, self.connections.ended());
        listener.accept_until(begun.map(drop), &late).await;
        listener.accept_backlog(&late);
        drop(listener);
        late.stop.cancel();
        let requests = async {
            self.connections.ended().await;
            late.ended().await;
        };
        let mut in_order = for_requests.step("connections", requests).await;
        // What is slower must not keep the others from being settled.
        self.connections.cut.cancel();
        late.cut.cancel();
        // The last handle of the batchers: they end when their queues are empty.
        drop(gateway);
        self.batchers.close();
        in_order &= deadline.step("batchers", self.batchers.wait()).await;
        self.stop_writing.cancel();
        self.writers.close();
        in_order &= deadline.step("writers", self.writers.wait()).await;
        self.stop_publishing.cancel();
        let publishing = async { drop(publishing.await) };
        in_order &= deadline.step("broker", publishing).await;
        database.close();
        self.stop_background.cancel();
        self.background.close();
        in_order & deadline.step("admin", self.background.wait()).await
    }
}

/// Creates the state of the handlers. Its batchers run until it is dropped.
fn assemble(
    config: Config,
    publisher: Publisher,
    readiness: &Readiness,
    tasks: &Tasks,
) -> Result<Gateway, DecoyError> {
    let (database, batchers) = (config.database, &tasks.batchers);
    let settlements = Arc::new(Settlements::default());
    let writing = settlements
        .clone()
        .run(database.clone(), tasks.stop_writing.clone());
    tasks.writers.spawn(vital("settlements", writing));

    let outlet = Arc::new(Outlet::new(
        publisher,
        config.name,
        readiness.dispensable("queues"),
    ));
    let spill = Spill::new(database.clone(), config.spill, readiness.component("spill"));
    let spill = Arc::new(spill);
    let measuring = spill
        .clone()
        .watch(outlet.clone(), tasks.stop_background.clone());
    tasks.background.spawn(vital("spill", measuring));

    let work_queues = Arc::new(WorkQueues::default());
    let (announced, stop) = (work_queues.clone(), tasks.stop_background.clone());
    let announcing = announced.announce(database.clone(), config.work_queues, stop);
    tasks.background.spawn(announcing);

    let claims = Claims::new(database.clone(), config.claim_lease, settlements.clone());
    let lanes = LaneParts {
        claims: claims.clone(),
        outlet,
        spill,
        settlements,
        work_queues,
    };
    let (background, stop) = (&tasks.background, tasks.stop_background.clone());
    Ok(Gateway {
        origins: config.origins,
        proxies: config.proxies,
        trusted_request_ids: config.trusted_request_ids,
        pages: FormPages::new(config.documents, database.clone()),
        proofs: Proofs::new(config.keys.clone(), config.proof_bits),
        secrets: WebhookSecrets::start(database.clone(), config.keys, batchers)?,
        ceilings: Ceilings::start(database.clone(), config.daily_bytes, batchers),
        faults: Faults::start(database.clone(), batchers),
        admission: Admission::start(database, batchers, background, stop),
        request_log: RequestLog::new(Instant::now()),
        repeats: Repeats::start(claims.clone(), batchers),
        changed_deliveries: Repeats::start(claims.clone(), batchers),
        claims,
        deliveries: Acceptance::start(config.lanes, lanes.clone(), batchers),
        submissions: Acceptance::start(config.lanes, lanes, batchers),
        answer_deadline: config.publish_timeout + DATABASE_SHARE,
    })
}
