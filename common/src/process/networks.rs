//! Settings that list networks: `10.0.0.0/8,fd00::/8,192.0.2.1`.

use std::{net::IpAddr, str::FromStr};

use ipnet::IpNet;

/// A list of networks. A bare address is a network of one; an empty list contains nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

/// The text is not a list of networks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be a comma-separated list of CIDR networks or addresses")]
pub struct InvalidNetworks;

impl FromStr for Networks {
    type Err = InvalidNetworks;

    fn from_str(text: &str) -> Result<Self, InvalidNetworks> {
        list(text, network).map(Self).ok_or(InvalidNetworks)
    }
}

/// The entries of a comma-separated list; `None` if one is invalid.
pub fn list<T>(text: &str, entry: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let entries = text.split(',').map(str::trim);
    entries.filter(|text| !text.is_empty()).map(entry).collect()
}

/// A network, or an address as a network of one.
pub fn network(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse().or_else(|_| address()).ok()
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

impl Networks {
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a network contains the address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Whether the host of a URL is this machine.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    host == "localhost" || address.is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// Whether nobody on the way can read what is sent to a URL: by TLS, or to this machine.
pub fn is_confidential(scheme: &str, host: &str) -> bool {
    scheme == "https" || scheme == "http" && is_loopback(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_of_networks_parse() {
        for good in [
            "",
            " ",
            "10.0.0.0/8",
            "10.0.0.1",
            "::1,fd00::/8 , 10.0.0.0/8,",
        ] {
            assert!(good.parse::<Networks>().is_ok(), "{good}");
        }
        for bad in [
            "x",
            "10.0.0.0/33",
            "10.0.0.0/8;10.0.0.0/8",
            "10.0.0.0/8 10.0.0.0/8",
            "*",
            "localhost",
            "10.0.0",
        ] {
            assert!(bad.parse::<Networks>().is_err(), "{bad}");
        }
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "localhost.example.com",
            "10.0.0.1",
            "127.0.0.1.example.com",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn an_address_is_a_network_of_one() {
        let networks: Networks = "127.0.0.1, 10.0.0.0/8".parse().unwrap();
        for (address, expected) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("10.9.9.9", true),
            ("::1", false),
        ] {
            let contained = networks.contains(address.parse().unwrap());
            assert_eq!(contained, expected, "{address}");
        }
    }
}
