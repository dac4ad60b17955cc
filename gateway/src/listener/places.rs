//! Places for connections: a limit in total, and a share for each peer that is not a trusted proxy,
//! so that no peer can take all of them.

use std::{net::IpAddr, sync::Arc};

use futures_util::FutureExt;
use letterbox_common::process::{
    client_address::{ClientAddress, TrustedProxies},
    metrics::OneMore,
    shares::{Share, Shares},
};
use rustix::process::{Resource, getrlimit};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};

use crate::metrics;

/// Each peer may have one part in this many of all places.
const SHARES: usize = 8;
/// Descriptors reserved for everything else: servers, sockets, files.
const RESERVED_DESCRIPTORS: usize = 64;

/// All places of a gateway.
pub(super) struct ListenerPlaces {
    free: Arc<Semaphore>,
    peers: Shares<ClientAddress>,
    /// Wakes one idle connection after the other, first the one that has been idle for longest: its
    /// place is wanted.
    pub(super) wanted: Arc<Notify>,
}

impl ListenerPlaces {
    /// Creates as many places as wanted, or fewer if the process may not open as many descriptors.
    pub(super) fn new(wanted: usize) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current;
        let descriptors = descriptors.map_or(usize::MAX, |most| most as usize);
        let places = wanted.min(descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(1));
        if places < wanted {
            tracing::warn!(
                wanted,
                places,
                descriptors,
                "fewer connections than LETTERBOX_MAX_CONNECTIONS: raise the limit of descriptors"
            );
        }
        Self::of(places)
    }

    fn of(places: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(places)),
            peers: Shares::of((places / SHARES).max(1)),
            wanted: Arc::default(),
        }
    }

    /// Waits for a free place.
    pub(super) async fn free(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        if let Some(free) = self.free_now() {
            return Ok(free);
        }
        self.wanted.notify_one();
        let free = self.free.clone().acquire_owned().await;
        // If nobody was idle, the next one that is need not make room any more.
        let _ = self.wanted.notified().now_or_never();
        free
    }

    /// A free place, if there is one.
    pub(super) fn free_now(&self) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_owned().ok()
    }

    /// Assigns a free place to a peer; `None` if the peer has its share already.
    pub(super) fn take(
        &self,
        free: OwnedSemaphorePermit,
        peer: IpAddr,
        proxies: &TrustedProxies,
    ) -> Option<Slot> {
        let counted = (!proxies.contains(peer)).then(|| ClientAddress::from(peer));
        let share = counted.map(|peer| self.peers.take(peer));
        if let Some(None) = share {
            metrics::CONNECTIONS_REFUSED.increment(1);
            return None;
        }
        Some(Slot {
            _free: free,
            _open: metrics::CONNECTIONS.hold(),
            _share: share.flatten(),
        })
    }
}

/// The place of one open connection.
pub(super) struct Slot {
    _free: OwnedSemaphorePermit,
    _open: OneMore,
    _share: Option<Share<ClientAddress>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_peer_has_a_share_and_a_trusted_proxy_all() {
        let places = ListenerPlaces::of(16);
        let proxies = TrustedProxies("10.0.0.0/8".parse().unwrap());
        let take = async |peer: &str| {
            let free = places.free().await.unwrap();
            places.take(free, peer.parse().unwrap(), &proxies)
        };
        let first = take("198.51.100.1").await.unwrap();
        let _second = take("::ffff:198.51.100.1").await.unwrap();
        assert!(take("198.51.100.1").await.is_none());
        let _other = take("198.51.100.2").await.unwrap();
        drop(first);
        let _again = take("198.51.100.1").await.unwrap();
        let mut of_proxy = Vec::new();
        for _ in 0..13 {
            of_proxy.push(take("10.1.2.3").await.unwrap());
        }
        assert_eq!(places.free.available_permits(), 0);
        drop(of_proxy);
        assert_eq!(places.free.available_permits(), 13);
    }
}
