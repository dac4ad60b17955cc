//! Which addresses are public. Not public is everything in IANA's special-purpose registries (what
//! a host keeps for itself, its network or its provider), and the IPv6 ranges that embed an IPv4
//! address.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::LazyLock,
};

use ipnet::{IpNet, Ipv6Net};
use letterbox_common::process::networks::Networks;

/// The host's address is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ForbiddenAddress {
    #[error("the host's address is private or reserved (LETTERBOX_EGRESS_ALLOW allows networks)")]
    Private,
    #[error(
        "public addresses are reached by https on port 443 or 8443 only (LETTERBOX_EGRESS_ALLOW \
         allows networks)"
    )]
    InClear,
}

const SPECIAL: [&str; 31] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    // The host of a virtual machine at Azure, public by number only.
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

/// The addresses that may be reached: those of these networks, and public ones where that is said.
#[derive(Debug, Clone, Default)]
pub(super) struct AllowedAddresses {
    pub(super) networks: Networks,
    pub(super) public: bool,
}

impl AllowedAddresses {
    /// Refuses every other address.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), ForbiddenAddress> {
        let address = address.to_canonical();
        match (self.networks.contains(address), is_public(address)) {
            (true, _) => Ok(()),
            (false, false) => Err(ForbiddenAddress::Private),
            (false, true) if self.public => Ok(()),
            (false, true) => Err(ForbiddenAddress::InClear),
        }
    }
}

/// Of IPv6, only what is given to anybody at all can be public.
const UNICAST: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

fn is_public(address: IpAddr) -> bool {
    static NETWORKS: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
        SPECIAL
            .iter()
            .filter_map(|network| network.parse().ok())
            .collect()
    });
    let is_given = match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => UNICAST.contains(&address),
    };
    is_given && !NETWORKS.iter().any(|network| network.contains(&address))
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
            let public = AllowedAddresses {
                public: true,
                ..AllowedAddresses::default()
            };
            public.check(text.parse().unwrap()).is_ok()
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
            "168.63.129.16",
            "200::1",
            "4000::1",
            "::ffff:0:1.1.1.1",
        ] {
            assert!(!allowed(private), "{private}");
        }
        for public in [true, false] {
            let local = AllowedAddresses {
                networks: "127.0.0.1".parse().unwrap(),
                public,
            };
            for (address, expected) in [
                ("127.0.0.1", true),
                ("1.1.1.1", public),
                ("127.0.0.2", false),
            ] {
                let checked = local.check(address.parse().unwrap());
                assert_eq!(checked.is_ok(), expected, "{address}");
            }
        }
    }
}
