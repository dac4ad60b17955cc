//! The way of one process to a server, or to each node of it: through proxies of its own.

use std::net::SocketAddr;

use letterbox_tests::{Front, Proxy};

/// All ways that lead there.
pub struct Way {
    /// The URL, or URLs, through the proxies.
    pub url: String,
    proxies: Vec<Proxy>,
}

impl Way {
    /// To every server that `url` names.
    pub async fn to(url: &str) -> Self {
        let mut way = Self {
            url: url.to_owned(),
            proxies: Vec::new(),
        };
        // Hosts stand behind a login, or behind another host.
        let pieces = url.split(['@', ',', '/']);
        for server in pieces.filter(|piece| piece.parse::<SocketAddr>().is_ok()) {
            let front = Front::bind().await;
            way.url = way.url.replace(server, &front.address());
            way.proxies.push(front.lead_to(server.to_owned()));
        }
        way
    }

    /// Does this to every one of them.
    pub fn each(&self, change: fn(&Proxy)) {
        self.proxies.iter().for_each(change);
    }

    /// How often something was harmed on them.
    pub fn harmed(&self) -> u64 {
        self.proxies.iter().map(Proxy::harmed).sum()
    }
}
