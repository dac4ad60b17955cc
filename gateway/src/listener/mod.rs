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
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::unreadable::ErrorEnvelopeStream;
use crate::{metrics, router, state::Gateway};

/// How long a head may take, and therefore how long a connection may be idle: hyper is waiting for
/// the next head then.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a peer may take to read any part of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// Read buffer of one connection; bodies arrive through it in pieces.
const BUFFER_BYTES: usize = 64 * 1024;
/// Pauses after a failed accept (too many open files, mostly), doubled up to the maximum.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Accepts until `stop`, then lets open connections finish their requests. Their tasks belong to
/// `connections`.
pub(crate) async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    max_connections: usize,
    connections: &TaskTracker,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(max_connections));
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &permits) => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer, permit)) => {
                pause = ACCEPT_PAUSE;
                connections.spawn(serve_connection(
                    stream,
                    peer,
                    permit,
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

/// Takes a permit first: connections beyond the cap wait in the system's backlog and cost nothing
/// here.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
    let permit = permits
        .clone()
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    // Fails if the peer has gone already; reading from it will tell.
    let _ = stream.set_nodelay(true);
    Ok((stream, peer.ip(), permit))
}

async fn serve_connection(
    stream: TcpStream,
    peer: IpAddr,
    permit: OwnedSemaphorePermit,
    gateway: Arc<Gateway>,
    stop: CancellationToken,
) {
    let _counted = CountedConnection::new();
    // Who says nothing costs no buffers, and holds up nobody.
    let spoke = stop.run_until_cancelled(timeout(HEAD_TIMEOUT, stream.readable()));
    let Some(Ok(Ok(()))) = spoke.await else {
        return;
    };
    let service = service_fn(move |request| {
        let gateway = gateway.clone();
        // Boxed: a request in progress is large, and an idle connection need not have room for it.
        Box::pin(async move { Ok::<_, Infallible>(router::respond(&gateway, peer, request).await) })
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(
            TokioIo::new(ErrorEnvelopeStream::new(Box::pin(stream))),
            service,
        );
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        // The peer went away, or sent something that is not HTTP.
        tracing::debug!(%error, "connection ended");
    }
    drop(permit);
}

/// An open connection, for the metric.
struct CountedConnection;

impl CountedConnection {
    fn new() -> Self {
        metrics::CONNECTIONS.add(1.0);
        Self
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        metrics::CONNECTIONS.add(-1.0);
    }
}
