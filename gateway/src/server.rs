//! The gateway as a whole: how its parts are started, held together, and stopped in order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use deadpool_postgres::Pool;
use letterbox_common::{
    broker::{self, Publisher, publisher},
    database::health,
    process::{admin, bind, readiness::Readiness, shutdown::Deadline},
};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    claims::Claims,
    client_address::TrustedProxies,
    config::Config,
    cors::AllowedOrigins,
    form_page::FormPage,
    forms::Forms,
    intake::{Acceptance, Parcel, form::Submission, webhook::Delivery},
    listener,
    rate_limits::RateLimits,
    webhook_secrets::WebhookSecrets,
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
        Ok(Self {
            public: bind("public", public).await?,
            admin: bind("admin", admin).await?,
        })
    }
}

/// What handlers work with.
pub struct Gateway {
    pub origins: AllowedOrigins,
    pub proxies: TrustedProxies,
    pub page: FormPage,
    pub secrets: WebhookSecrets,
    pub forms: Forms,
    pub rate_limits: RateLimits,
    pub deliveries: Acceptance<Delivery>,
    pub submissions: Acceptance<Submission>,
    /// A sender hears something within this time after its body has arrived.
    pub answer_deadline: Duration,
}

/// Runs until `stop`, then stops in order: not ready, accept nothing, finish requests, finish what
/// was claimed, flush the batchers, close the broker connection.
pub async fn run(
    config: Config,
    sockets: Sockets,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let readiness = Readiness::default();
    let (serving, database, broker) = (
        readiness.part("listener"),
        readiness.part("database"),
        readiness.part("broker"),
    );
    let (connections, claimed, batchers, background) = (
        TaskTracker::new(),
        TaskTracker::new(),
        TaskTracker::new(),
        TaskTracker::new(),
    );
    // Cancelled when the work is done, later than `stop`.
    let (publishing, over) = (CancellationToken::new(), CancellationToken::new());

    background.spawn(admin::serve(
        sockets.admin,
        readiness.clone(),
        metrics,
        over.clone(),
    ));
    background.spawn(health::watch(config.pool.clone(), database, over.clone()));
    let (publisher, session) = publisher(config.publish_channels, config.publish_timeout);
    let supervised = {
        let (target, name, publishing) = (
            config.broker.clone(),
            config.name.clone(),
            publishing.clone(),
        );
        tokio::spawn(
            async move { broker::supervise(target, &name, broker, session, publishing).await },
        )
    };

    let secrets = match WebhookSecrets::start(config.pool.clone(), config.keys, &batchers) {
        Ok(secrets) => secrets,
        Err(error) => return tracing::error!(%error, "can't start"),
    };
    let gateway = Arc::new(Gateway {
        origins: config.origins,
        proxies: config.proxies,
        page: config.page,
        secrets,
        forms: Forms::start(config.pool.clone(), &batchers),
        rate_limits: RateLimits::start(config.pool.clone(), &batchers, &background, over.clone()),
        deliveries: acceptance(
            &config.pool,
            config.claim_lease,
            &publisher,
            &config.name,
            &claimed,
            &batchers,
        ),
        submissions: acceptance(
            &config.pool,
            config.claim_lease,
            &publisher,
            &config.name,
            &claimed,
            &batchers,
        ),
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
    serving.waits_for("stopping");
    connections.close();
    let mut in_order = deadline.step("connections", connections.wait()).await;
    claimed.close();
    in_order &= deadline.step("claimed", claimed.wait()).await;
    drop(gateway);
    batchers.close();
    in_order &= deadline.step("batchers", batchers.wait()).await;
    publishing.cancel();
    in_order &= deadline
        .step("broker", async { drop(supervised.await) })
        .await;
    config.pool.close();
    over.cancel();
    background.close();
    in_order &= deadline.step("admin", background.wait()).await;
    tracing::info!(in_order, "stopped");
}

fn acceptance<P: Parcel>(
    pool: &Pool,
    lease: Duration,
    publisher: &Publisher,
    name: &str,
    tasks: &TaskTracker,
    batchers: &TaskTracker,
) -> Acceptance<P> {
    let claims = Claims::start(pool.clone(), lease, batchers);
    Acceptance {
        claims,
        publisher: publisher.clone(),
        tasks: tasks.clone(),
        app_id: name.into(),
    }
}
