//! Which addresses are public. Not public are those in IANA's special-purpose registries (reserved
//! for a host, its network or its provider) and the IPv6 ranges that embed an IPv4 address.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::LazyLock,
};

use ipnet::{IpNet, Ipv6Net};

const SPECIAL: [&str; 31] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    // Azure's address of the host of a virtual machine: only its number is public.
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/96",
    "::ffff:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    "::1/128",
];

/// The only IPv6 range from which public addresses are allocated.
const UNICAST: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Whether an address is public.
pub fn is_public(address: IpAddr) -> bool {
    static NETWORKS: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
        let networks = SPECIAL.iter().map(|network| network.parse());
        networks.filter_map(Result::ok).collect()
    });
    let is_given = match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => UNICAST.contains(&address),
    };
    is_given && !NETWORKS.iter().any(|network| network.contains(&address))
}

/// Whether the host of a URL is certainly not public: an address that is not, or a name reserved
/// for the local machine or network.
pub fn is_private_host(host: &str) -> bool {
    // The dot at the end of an absolute name says nothing.
    let host = host.strip_suffix('.').unwrap_or(host);
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    match address {
        Ok(address) => !is_public(address),
        Err(_) => [".localhost", ".local", ".internal", ".home.arpa"]
            .iter()
            .any(|end| host.ends_with(end) || host == &end[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_special_network_is_one() {
        let mut networks = SPECIAL.iter().map(|network| network.parse::<IpNet>());
        assert!(networks.all(|network| network.is_ok()));
    }

    #[test]
    fn a_host_is_private_by_its_address_or_its_name() {
        for private in [
            "127.0.0.1",
            "metadata.google.internal.",
            "[::1]",
            "10.0.0.1",
            "localhost",
            "crm.internal",
        ] {
            assert!(is_private_host(private), "{private}");
        }
        for other in ["1.1.1.1", "example.com", "mylocalhost", "[2606:4700::1111]"] {
            assert!(!is_private_host(other), "{other}");
        }
    }
}
