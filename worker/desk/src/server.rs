//! The desk as a whole: serves browsers, with a limit for everything that they send, until it is
//! told to stop.

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use letterbox_common::process::{
    admin, client_address::TrustedProxies, readiness::Readiness, shutdown::Deadline, supervisor,
    vital::vital,
};
use letterbox_database::{Database, health};
use letterbox_operator::Addresses;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{config::Config, oidc::Oidc, pages::Pages, response::Response, router};

/// Maximum open connections; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may take, with its body and its answer's making.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection lives: browsers open another one.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// What the rooms share.
pub(crate) struct Desk {
    pub(crate) database: Database,
    pub(crate) proxies: TrustedProxies,
    /// Scheme, host and port of the desk, as browsers name them in `Origin`.
    pub(crate) origin: String,
    /// Begin the links that are shown.
    pub(crate) addresses: Addresses,
    /// Whether people can have a link sent to sign in with.
    pub(crate) signs_in_by_email: bool,
    /// Who else vouches for people.
    pub(crate) oidc: Option<Oidc>,
    pub(crate) pages: Pages,
}

/// Runs until `stop`, then finishes the requests that have begun.
pub(crate) async fn run(
    config: Config,
    public: TcpListener,
    admin: TcpListener,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let (readiness, background) = (Readiness::default(), TaskTracker::new());
    let serving = readiness.component("listener");
    let stop_background = CancellationToken::new();
    background.spawn(admin::serve(
        admin,
        readiness.clone(),
        metrics,
        stop_background.clone(),
    ));
    background.spawn(supervisor::tell(readiness.clone(), stop.clone()));
    let watching = health::watch(
        config.database.clone(),
        readiness.component("database"),
        stop_background.clone(),
    );
    background.spawn(vital("health", watching));

    let desk = Arc::new(Desk {
        database: config.database,
        proxies: config.proxies,
        origin: config.origin,
        addresses: config.addresses,
        signs_in_by_email: config.signs_in_by_email,
        oidc: config.oidc,
        pages: Pages::new(),
    });
    serving.ready();
    let connections = TaskTracker::new();
    stop.run_until_cancelled(accept(&public, &desk, &connections, &stop))
        .await;
    serving.not_ready("stopping");
    drop(public);
    connections.close();
    let deadline = Deadline::after(config.shutdown_timeout);
    let in_order = deadline.step("connections", connections.wait()).await;
    desk.database.close();
    stop_background.cancel();
    background.close();
    let in_order = in_order & deadline.step("admin", background.wait()).await;
    tracing::info!(in_order, "stopped");
}

async fn accept(
    public: &TcpListener,
    desk: &Arc<Desk>,
    connections: &TaskTracker,
    stop: &CancellationToken,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match public.accept().await {
            Ok((stream, peer)) => {
                let serving = serve(stream, peer.ip(), desk.clone(), stop.clone());
                connections.spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, serving).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, peer: IpAddr, desk: Arc<Desk>, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(answer(&desk, peer, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Answers a request, in any case within its time.
async fn answer(desk: &Desk, peer: IpAddr, request: Request<Incoming>) -> Response {
    let answering = router::answer(desk, peer, request);
    match tokio::time::timeout(REQUEST_TIMEOUT, answering).await {
        Ok(response) => response,
        Err(_) => desk.pages.unavailable(),
    }
}
