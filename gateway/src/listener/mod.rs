//! The listener of the public socket, which limits the number of open connections.

mod activity;
mod connection;
mod places;
mod unreadable;

use std::{net::IpAddr, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::places::{Places, Slot};
pub(crate) use self::{connection::http, unreadable::ErrorEnvelopeStream};
use crate::state::Gateway;

/// The pause after a failed accept (mostly for too many open files), doubled up to the maximum.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The most connections that the system holds until they are accepted.
const MAX_BACKLOG: usize = 1_024;

/// A connection of a peer, and its place.
type Accepted = (TcpStream, IpAddr, Slot);

/// The public socket.
pub(crate) struct Listener {
    socket: TcpListener,
    gateway: Arc<Gateway>,
    places: Places,
}

/// Connections that end together.
#[derive(Default)]
pub(crate) struct Connections {
    pub(crate) tasks: TaskTracker,
    /// When cancelled, they finish their requests and close.
    pub(crate) stop: CancellationToken,
    /// When cancelled, they close at once: their peers are too slow.
    pub(crate) cut: CancellationToken,
}

impl Connections {
    /// Waits until each has finished its requests. No others may come.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Listener {
    pub(crate) fn new(socket: TcpListener, gateway: Arc<Gateway>, max_connections: usize) -> Self {
        Self {
            socket,
            gateway,
            places: Places::new(max_connections),
        }
    }

    /// Accepts connections until `enough` ends.
    pub(crate) async fn accept_until(
        &self,
        enough: impl Future<Output = ()>,
        connections: &Connections,
    ) {
        tokio::select! { () = enough => {}, () = self.accept_into(connections) => {} }
    }

    /// Accepts what has connected already.
    pub(crate) fn accept_backlog(&self, connections: &Connections) {
        for _ in 0..MAX_BACKLOG {
            match self.accept().now_or_never() {
                Some(Ok(Some(accepted))) => self.serve(accepted, connections),
                Some(Ok(None)) => {}
                Some(Err(_)) | None => return,
            }
        }
    }

    async fn accept_into(&self, connections: &Connections) {
        let mut pause = ACCEPT_PAUSE;
        loop {
            match self.accept().await {
                Ok(Some(accepted)) => {
                    pause = ACCEPT_PAUSE;
                    self.serve(accepted, connections);
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

    fn serve(&self, (stream, peer, place): Accepted, connections: &Connections) {
        let (gateway, stop) = (self.gateway.clone(), connections.stop.clone());
        let (serving, cut) = (
            connection::serve(stream, peer, gateway, stop),
            connections.cut.clone(),
        );
        connections.tasks.spawn(async move {
            cut.run_until_cancelled(serving).await;
            drop(place);
        });
    }

    /// Accepts a connection after taking a place: further connections wait in the system's backlog
    /// and cost nothing here. `None` if the peer has its share already.
    async fn accept(&self) -> std::io::Result<Option<Accepted>> {
        let free = self.places.free().await?;
        let (stream, peer) = self.socket.accept().await?;
        let Some(place) = self.places.take(free, peer.ip(), &self.gateway.proxies) else {
            return Ok(None);
        };
        // Fails only if the peer is gone already, which the first read reports.
        let _ = stream.set_nodelay(true);
        Ok(Some((stream, peer.ip(), place)))
    }
}
