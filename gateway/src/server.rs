//! The gateway as a whole: how its parts are started, held together, and shut down in order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use letterbox_broker::{Publisher, publisher, supervise};
use letterbox_common::process::{admin, bind, readiness::Readiness, shutdown::Deadline};
use letterbox_database::{Database, health};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    acceptance::{Acceptance, IntakeItem},
    claims::Claims,
    config::Config,
    forms::Forms,
    listener,
    rate_limits::RateLimits,
    state::Gateway,
    webhook_secrets::WebhookSecrets,
};

/// How long an answer may take beyond the wait for the broker: the time for the database.
const DATABASE_SHARE: Duration = Duration::from_secs(1);

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
    pub(crate) async fn bind(public: SocketAddr, admin: SocketAddr) -> std::io::Result<Self> {
        Ok(Self {
            public: bind("public", public).await?,
            admin: bind("admin", admin).await?,
        })
    }
}

/// Runs until `stop`, then shuts down in order: not ready, accept nothing, finish requests, finish
/// what was claimed, flush the batchers, close the broker connection.
pub(crate) async fn run(
    config: Config,
    sockets: Sockets,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let readiness = Readiness::default();
    let (serving, broker) = (
        readiness.component("listener"),
        readiness.component("broker"),
    );
    let database = readiness.component("database");
    let (connections, claimed) = (TaskTracker::new(), TaskTracker::new());
    let (batchers, background) = (TaskTracker::new(), TaskTracker::new());
    // Cancelled when the work is done, later than `stop`.
    let (stop_publishing, stop_background) = (CancellationToken::new(), CancellationToken::new());

    background.spawn(admin::serve(
        sockets.admin,
        readiness.clone(),
        metrics,
        stop_background.clone(),
    ));
    background.spawn(health::watch(
        config.database.clone(),
        database,
        stop_background.clone(),
    ));
    let (publisher, session) = publisher(config.publish_channels, config.publish_timeout);
    let publisher_task = {
        let (target, name) = (config.broker.clone(), config.name.clone());
        let stop = stop_publishing.clone();
        tokio::spawn(async move { supervise(target, &name, broker, session, stop).await })
    };

    let secrets = match WebhookSecrets::start(config.database.clone(), config.keys, &batchers) {
        Ok(secrets) => secrets,
        Err(error) => return tracing::error!(%error, "can't start"),
    };
    let lease = config.claim_lease;
    let acceptances = Acceptances {
        database: &config.database,
        lease,
        publisher: &publisher,
        name: &config.name,
        claimed: &claimed,
        batchers: &batchers,
    };
    let limits_stop = stop_background.clone();
    let gateway = Arc::new(Gateway {
        origins: config.origins,
        proxies: config.proxies,
        page: config.page,
        secrets,
        forms: Forms::start(config.database.clone(), &batchers),
        rate_limits: RateLimits::start(
            config.database.clone(),
            &batchers,
            &background,
            limits_stop,
        ),
        deliveries: acceptances.start(),
        submissions: acceptances.start(),
        answer_deadline: config.publish_timeout + DATABASE_SHARE,
    });
    drop(publisher);

    serving.ready();
    listener::serve(
        sockets.public,
        gateway.clone(),
        config.max_connections,
        &connections,
        stop,
    )
    .await;

    let deadline = Deadline::after(config.shutdown_timeout);
    serving.not_ready("stopping");
    connections.close();
    let mut in_order = deadline.step("connections", connections.wait()).await;
    claimed.close();
    in_order &= deadline.step("claimed", claimed.wait()).await;
    drop(gateway);
    batchers.close();
    in_order &= deadline.step("batchers", batchers.wait()).await;
    stop_publishing.cancel();
    in_order &= deadline
        .step("broker", async { drop(publisher_task.await) })
        .await;
    config.database.close();
    stop_background.cancel();
    background.close();
    in_order &= deadline.step("admin", background.wait()).await;
    tracing::info!(in_order, "stopped");
}

/// What every acceptance is started with.
struct Acceptances<'a> {
    database: &'a Database,
    lease: Duration,
    publisher: &'a Publisher,
    name: &'a str,
    claimed: &'a TaskTracker,
    batchers: &'a TaskTracker,
}

impl Acceptances<'_> {
    fn start<I: IntakeItem>(&self) -> Acceptance<I> {
        Acceptance {
            claims: Claims::start(self.database.clone(), self.lease, self.batchers),
            publisher: self.publisher.clone(),
            tasks: self.claimed.clone(),
            app_id: self.name.into(),
        }
    }
}
