//! The public socket: accepts connections, as many as may be open at once.

mod activity;
mod connection;
mod unreadable;

use std::{net::IpAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{metrics, state::Gateway};

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
                let serving = connection::serve(stream, peer, gateway.clone(), stop.clone());
                connections.spawn(async move {
                    let _counted = CountedConnection::new();
                    serving.await;
                    drop(permit);
                });
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
