//! The public socket and every limit on what may come in through it.
//!
//! hyper brings limits for heads and none for connections, bodies, idleness or peers that read
//! nothing; those it has are set here, the others are added here and in `body`. Its time-out for
//! heads is silently off without a timer.

mod unreadable;

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::unreadable::Enveloping;
use crate::{router, server::Gateway};

/// How long a head may take, and so how long a connection may be idle: hyper waits for the next
/// head all the while.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a peer may leave an answer lying without reading any of it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const HEAD_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;
/// Read buffer of one connection; bodies arrive through it in pieces.
const BUFFER_BYTES: usize = 64 * 1024;
/// Pauses after a failed accept (too many open files, mostly), doubled up to the maximum.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Accepts until `stop`, then lets open connections finish their requests. Their tasks belong to
/// `connections`.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    max_connections: usize,
    connections: &TaskTracker,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(max_connections));
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer, place)) => {
                pause = ACCEPT_PAUSE;
                connections.spawn(serve_connection(
                    stream,
                    peer,
                    place,
                    gateway.clone(),
                    stop.clone(),
                ));
            }
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

/// Takes a place first: connections beyond the cap wait in the system's backlog and cost nothing
/// here.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let place = places
        .clone()
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    // Fails where the peer has gone already; that will show soon enough.
    let _ = stream.set_nodelay(true);
    Ok((stream, peer.ip(), place))
}

async fn serve_connection(
    stream: TcpStream,
    peer: IpAddr,
    place: OwnedSemaphorePermit,
    gateway: Arc<Gateway>,
    stop: CancellationToken,
) {
    let open = metrics::gauge!("letterbox_connections");
    open.increment(1);
    let service = service_fn(move |request| {
        let gateway = gateway.clone();
        async move { Ok::<_, Infallible>(router::answer(&gateway, peer, request).await) }
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(Enveloping::new(Box::pin(stream))), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        // A peer that went away, or sent what is not HTTP: its own business.
        tracing::debug!(%error, "connection ended");
    }
    open.decrement(1);
    drop(place);
}
