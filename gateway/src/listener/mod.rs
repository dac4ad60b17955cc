//! The listener of the public socket, which limits the number of open connections.

mod activity;
mod connection;
mod places;
mod unreadable;

use std::{net::IpAddr, sync::Arc, time::Duration};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::places::{Places, Slot};
use crate::{client_address::TrustedProxies, state::Gateway};

/// The pause after a failed accept (mostly for too many open files), doubled up to the maximum.
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
    let places = Places::new(max_connections);
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places, &gateway.proxies) => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok(Some((stream, peer, place))) => {
                pause = ACCEPT_PAUSE;
                let serving = connection::serve(stream, peer, gateway.clone(), stop.clone());
                connections.spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            // The peer has its share of places: the connection is closed at once.
            Ok(None) => pause = ACCEPT_PAUSE,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
}

/// Accepts a connection after taking a place: further connections wait in the system's backlog and
/// cost nothing here. `None` if the peer has its share already.
async fn accept(
    listener: &TcpListener,
    places: &Places,
    proxies: &TrustedProxies,
) -> std::io::Result<Option<(TcpStream, IpAddr, Slot)>> {
    let free = places.free().await?;
    let (stream, peer) = listener.accept().await?;
    let Some(place) = places.take(free, peer.ip(), proxies) else {
        return Ok(None);
    };
    // Fails only if the peer is gone already, which the first read reports.
    let _ = stream.set_nodelay(true);
    Ok(Some((stream, peer.ip(), place)))
}
