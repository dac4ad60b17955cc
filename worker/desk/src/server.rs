//! The desk as a whole: serves browsers, with a limit for everything that they send, until it is
//! told to stop.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use letterbox_common::process::{
    self, admin::Admin, client_address::ClientAddress, readiness::Readiness, shares::Shares,
    shutdown::Deadline, tasks::Tasks,
};
use letterbox_database::observe;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    desk::{Desk, MAX_CONNECTIONS, SHARE},
    places::Places,
    request::Connection,
    router::{answer, router},
};

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection lives.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// Runs until `stop`, then finishes the requests that have begun, for `time` at most.
pub(crate) async fn run(
    desk: Desk,
    time: Duration,
    public: TcpListener,
    admin: Admin,
    stop: CancellationToken,
) {
    let readiness = Readiness::default();
    let mut tasks = Tasks::new(&stop);
    let serving = readiness.component("listener");
    let connections = TaskTracker::new();
    tasks.wait("connections", &connections);
    observe(&mut tasks, &stop, &desk.database, &readiness, admin);
    let desk = Arc::new(desk);
    serving.ready();
    stop.run_until_cancelled(accept(&public, &desk, &connections, &stop))
        .await;
    serving.not_ready("stopping");
    drop(public);
    let in_order = tasks.end(Deadline::after(time)).await;
    tracing::info!(in_order, "stopped");
}

async fn accept(
    public: &TcpListener,
    desk: &Arc<Desk>,
    connections: &TaskTracker,
    stop: &CancellationToken,
) {
    let router = router(desk.clone());
    let places = Places::of(MAX_CONNECTIONS);
    let peers = Shares::of(SHARE);
    loop {
        let (stream, peer) = process::accept(public).await;
        let peer = peer.ip();
        let counted = (!desk.proxies.contains(peer)).then(|| ClientAddress::from(peer));
        let share = counted.map(|peer| peers.take(peer));
        if let Some(None) = share {
            tracing::debug!(%peer, "closed: it has its share of connections");
            continue;
        }
        let Some(place) = places.take().await else {
            return;
        };
        let connection = Connection {
            peer,
            place: place.clone(),
        };
        let serving = serve(stream, connection, router.clone(), stop.clone());
        connections.spawn(async move {
            tokio::select! {
                () = place.needed() => {}
                _ = tokio::time::timeout(CONNECTION_TIMEOUT, serving) => {}
            }
            drop(share);
        });
    }
}

async fn serve(stream: TcpStream, connection: Connection, router: Router, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        answer(router.clone(), connection.clone(), request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // One that is closed while it is idle could cross a request that its proxy has just sent.
        .keep_alive(false)
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
