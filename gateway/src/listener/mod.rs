//! The listener of the public socket, which limits the number of open connections.

mod activity;
mod connection;
mod places;
mod unreadable;

use std::{io, net::SocketAddr, os::fd::AsFd, sync::Arc};

use letterbox_common::process::{self, BACKLOG};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::OwnedSemaphorePermit,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::places::ListenerPlaces;
pub(crate) use self::{connection::http, unreadable::ErrorEnvelopeStream};
use crate::state::Gateway;

/// Errors of a connection that was lost before it was accepted, not of accepting.
const LOST: [io::ErrorKind; 5] = [
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
    io::ErrorKind::NetworkDown,
];

/// The public socket.
pub(crate) struct Listener {
    socket: TcpListener,
    gateway: Arc<Gateway>,
    places: ListenerPlaces,
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
            places: ListenerPlaces::new(max_connections),
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
        let backlog = match backlog(&self.socket) {
            Ok(backlog) => backlog,
            Err(error) => return tracing::warn!(%error, "accept failed"),
        };
        for accepted in backlog {
            let connection = match accepted {
                Ok(connection) => connection,
                // Of this connection, and others wait behind it.
                Err(error) if LOST.contains(&error.kind()) => continue,
                Err(error) => return tracing::warn!(%error, "accept failed"),
            };
            let Some(free) = self.places.free_now() else {
                return;
            };
            self.serve(free, connection, connections);
        }
    }

    /// Accepts each connection after taking a place for it: further ones wait in the system's
    /// backlog and cost nothing here.
    async fn accept_into(&self, connections: &Connections) {
        while let Ok(free) = self.places.free().await {
            let connection = process::accept(&self.socket).await;
            self.serve(free, connection, connections);
        }
    }

    /// Serves a connection in this place; closes it at once if its peer has its share of places.
    fn serve(
        &self,
        free: OwnedSemaphorePermit,
        (stream, peer): (TcpStream, SocketAddr),
        connections: &Connections,
    ) {
        let gateway = self.gateway.clone();
        let Some(place) = self.places.take(free, peer.ip(), &gateway.proxies) else {
            return;
        };
        // Fails only if the peer is gone already, which the first read reports.
        let _ = stream.set_nodelay(true);
        let stop = connections.stop.clone();
        let wanted = self.places.wanted.clone();
        let serving = connection::serve(stream, peer.ip(), gateway, stop, wanted);
        let cut = connections.cut.clone();
        connections.tasks.spawn(async move {
            cut.run_until_cancelled(serving).await;
            drop(place);
        });
    }
}

/// What has connected already. The system itself is asked: it knows of a connection before the
/// runtime does.
fn backlog(
    socket: &TcpListener,
) -> io::Result<impl Iterator<Item = io::Result<(TcpStream, SocketAddr)>> + use<>> {
    let socket = std::net::TcpListener::from(socket.as_fd().try_clone_to_owned()?);
    let accept = move || {
        let (stream, peer) = socket.accept()?;
        stream.set_nonblocking(true)?;
        Ok((TcpStream::from_std(stream)?, peer))
    };
    let accepted = std::iter::repeat_with(accept).take(BACKLOG as usize);
    Ok(accepted.take_while(|accepted: &io::Result<_>| {
        let error = accepted.as_ref().err();
        error.is_none_or(|error| error.kind() != io::ErrorKind::WouldBlock)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than the runtime lets a task do at once, and none of them known to it.
    #[tokio::test]
    async fn who_has_connected_is_found_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let moment = std::time::Duration::from_millis(1);
        let nobody = tokio::time::timeout(moment, listener.accept());
        assert!(nobody.await.is_err());
        let connect = |_| std::net::TcpStream::connect(address).unwrap();
        let connected = Vec::from_iter((0..100).map(connect));
        let found = backlog(&listener).unwrap().flatten();
        assert_eq!(found.count(), connected.len());
    }
}
