//! The gateway as a whole: how its parts are started, held together, and stopped in order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use letterbox_common::{
    broker::{self, publisher},
    database::health,
    process::{admin, bind, readiness::Readiness, shutdown::Deadline},
};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    claims::Claims, config::Config, cors::AllowedOrigins, intake::Acceptance, listener, webhook_secrets::WebhookSecrets,
};

/// How long an answer may take beyond the wait for the broker: the time for the database.
const DATABASE_SHARE: Duration = Duration::from_secs(1);

/// The sockets, bound by the caller.
pub struct Sockets {
    pub public: TcpListener,
    pub admin: TcpListener,
}

impl Sockets {
    /// Binds both.
    ///
    /// # Errors
    /// Names the address that is not to be had.
    pub async fn bind(public: SocketAddr, admin: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { public: bind("public", public).await?, admin: bind("admin", admin).await? })
    }
}

/// What handlers work with.
pub struct Gateway {
    pub origins: AllowedOrigins,
    pub secrets: WebhookSecrets,
    pub acceptance: Acceptance,
    /// A sender hears something within this time after its body has arrived.
    pub answer_deadline: Duration,
}

/// Runs until `stop`, then stops in order: not ready, accept nothing, finish requests, finish what was claimed, flush the
/// batchers, close the broker connection.
pub async fn run(config: Config, sockets: Sockets, metrics: PrometheusHandle, stop: CancellationToken) {
    let readiness = Readiness::default();
    let (serving, database, broker) =
        (readiness.part("listener"), readiness.part("database"), readiness.part("broker"));
    let (connections, claimed, batchers, background) =
        (TaskTracker::new(), TaskTracker::new(), TaskTracker::new(), TaskTracker::new());
    // Cancelled when the work is done, later than `stop`.
    let (publishing, over) = (CancellationToken::new(), CancellationToken::new());

    background.spawn(admin::serve(sockets.admin, readiness.clone(), metrics, over.clone()));
    background.spawn(health::watch(config.pool.clone(), database, over.clone()));
    let (publisher, session) = publisher(config.publish_channels, config.publish_timeout);
    let supervised = {
        let (target, name, publishing) = (config.broker.clone(), config.name.clone(), publishing.clone());
        tokio::spawn(async move { broker::supervise(target, &name, broker, session, publishing).await })
    };

    let secrets = match WebhookSecrets::start(config.pool.clone(), config.keys, &batchers) {
        Ok(secrets) => secrets,
        Err(error) => return tracing::error!(%error, "can't start"),
    };
    let acceptance = Acceptance {
        claims: Claims::start(config.pool.clone(), config.claim_lease, &batchers),
        publisher,
        tasks: claimed.clone(),
        app_id: config.name.as_str().into(),
    };
    let answer_deadline = config.publish_timeout + DATABASE_SHARE;
    let gateway = Arc::new(Gateway { origins: config.origins, secrets, acceptance, answer_deadline });

    serving.ready();
    listener::serve(sockets.public, gateway.clone(), config.max_connections, &connections, stop).await;

    let deadline = Deadline::after(config.shutdown_timeout);
    serving.waits_for("stopping");
    connections.close();
    let mut in_order = deadline.step("connections", connections.wait()).await;
    claimed.close();
    in_order &= deadline.step("deliveries", claimed.wait()).await;
    drop(gateway);
    batchers.close();
    in_order &= deadline.step("batchers", batchers.wait()).await;
    publishing.cancel();
    in_order &= deadline.step("broker", async { drop(supervised.await) }).await;
    config.pool.close();
    over.cancel();
    background.close();
    in_order &= deadline.step("admin", background.wait()).await;
    tracing::info!(in_order, "stopped");
}
