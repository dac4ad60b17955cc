//! Which addresses are public. Not public is everything in IANA's special-purpose registries (what
//! a host keeps for itself, its network or its provider), and the IPv6 ranges that embed an IPv4
//! address.

use std::{net::IpAddr, sync::LazyLock};

use ipnet::IpNet;
use letterbox_common::process::networks::Networks;

/// The host's address is not public, and not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host's address is private or reserved (LETTERBOX_EGRESS_ALLOW allows networks)")]
pub(super) struct PrivateAddress;

const SPECIAL: [&str; 30] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
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

/// The addresses that may be reached: public ones, and those of these networks.
#[derive(Debug, Clone, Default)]
pub(super) struct AllowedAddresses(pub(super) Networks);

impl AllowedAddresses {
    /// Refuses an address that is neither public nor in one of the networks.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), PrivateAddress> {
        let address = address.to_canonical();
        if self.0.contains(address) || is_public(address) {
            Ok(())
        } else {
            Err(PrivateAddress)
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    static NETWORKS: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
        SPECIAL
            .iter()
            .filter_map(|network| network.parse().ok())
            .collect()
    });
    !NETWORKS.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_not_public() {
        assert!(
            SPECIAL
                .iter()
                .all(|network| network.parse::<IpNet>().is_ok())
        );
        let allowed = |text: &str| {
            AllowedAddresses::default()
                .check(text.parse().unwrap())
                .is_ok()
        };
        for public in [
            "1.1.1.1",
            "93.184.215.14",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
        ] {
            assert!(allowed(public), "{public}");
        }
        for private in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "100.100.100.200",
            "255.255.255.255",
            "224.0.0.1",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
        ] {
            assert!(!allowed(private), "{private}");
        }
        let local = AllowedAddresses("127.0.0.1".parse().unwrap());
        for (address, expected) in [("127.0.0.1", true), ("1.1.1.1", true), ("127.0.0.2", false)] {
            assert_eq!(
                local.check(address.parse().unwrap()).is_ok(),
                expected,
                "{address}"
            );
        }
    }
}
