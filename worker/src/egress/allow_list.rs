//! The setting that allows requests to private networks, each optionally on one port only:
//! `10.0.0.0/8,192.168.1.7:8443,[fd00::1]:443,fd00::/8:443`.

use std::{collections::BTreeSet, net::SocketAddr, str::FromStr};

use ipnet::IpNet;
use letterbox_common::process::networks::{Networks, list, network};

/// Networks, each with one port or with every port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AllowList(Vec<(IpNet, Option<u16>)>);

/// The text is not a valid list of networks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be a comma-separated list of CIDR networks or addresses, each optionally with :PORT")]
pub(crate) struct InvalidAllowList;

impl FromStr for AllowList {
    type Err = InvalidAllowList;

    fn from_str(text: &str) -> Result<Self, InvalidAllowList> {
        list(text, entry).map(Self).ok_or(InvalidAllowList)
    }
}

fn entry(text: &str) -> Option<(IpNet, Option<u16>)> {
    if let Some(network) = network(text) {
        return Some((network, None));
    }
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Some((IpNet::from(socket.ip()), Some(socket.port())));
    }
    let (cidr, port) = text.rsplit_once(':')?;
    Some((cidr.parse().ok()?, Some(port.parse().ok()?)))
}

impl AllowList {
    /// The networks that may be reached on a port that no entry names.
    pub(super) fn at_any_port(&self) -> Networks {
        self.filtered(|port| port.is_none())
    }

    /// The networks that may be reached on this port.
    pub(super) fn at(&self, port: u16) -> Networks {
        self.filtered(|own| own.is_none_or(|own| own == port))
    }

    /// The ports that entries name.
    pub(super) fn ports(&self) -> BTreeSet<u16> {
        self.0.iter().filter_map(|(_, port)| *port).collect()
    }

    fn filtered(&self, wanted: impl Fn(Option<u16>) -> bool) -> Networks {
        let networks = self.0.iter().filter(|(_, port)| wanted(*port));
        networks.map(|(network, _)| *network).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_may_have_a_port() {
        let list: AllowList = "10.0.0.0/8, 127.0.0.1:9099,[::1]:443,fd00::/8:8443,192.0.2.0/24:25"
            .parse()
            .unwrap();
        let reaches = |address: &str, port: u16| list.at(port).contains(address.parse().unwrap());
        for (address, port, expected) in [
            ("10.1.2.3", 1, true),
            ("127.0.0.1", 9099, true),
            ("127.0.0.1", 5432, false),
            ("::1", 443, true),
            ("::1", 80, false),
            ("fd00::7", 8443, true),
            ("fd00::7", 443, false),
            ("192.0.2.9", 25, true),
            ("192.0.2.9", 26, false),
        ] {
            assert_eq!(reaches(address, port), expected, "{address} {port}");
        }
        assert!(list.at_any_port().contains("10.1.2.3".parse().unwrap()));
        assert!(!list.at_any_port().contains("127.0.0.1".parse().unwrap()));
        assert_eq!(
            list.ports().into_iter().collect::<Vec<_>>(),
            [25, 443, 8443, 9099]
        );
        assert_eq!("".parse(), Ok(AllowList::default()));
        for bad in [
            "x",
            "10.0.0.0/33",
            "10.0.0.1:",
            "10.0.0.1:70000",
            "::1:x",
            "10.0.0.0/8:a",
        ] {
            assert_eq!(bad.parse::<AllowList>(), Err(InvalidAllowList), "{bad}");
        }
    }
}
