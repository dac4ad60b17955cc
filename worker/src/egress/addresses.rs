//! The addresses that requests may reach, checked after names are resolved.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use letterbox_common::{
    process::networks::Networks,
    public_address::{is_private_host, is_public},
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

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

/// The addresses that may be reached: these networks, and all public addresses if `public`.
#[derive(Debug, Clone, Default)]
pub(super) struct AllowedAddresses {
    pub(super) networks: Networks,
    pub(super) public: bool,
}

impl AllowedAddresses {
    pub(super) fn check(&self, address: IpAddr) -> Result<(), ForbiddenAddress> {
        let address = address.to_canonical();
        match (self.networks.contains(address), is_public(address)) {
            (true, _) => Ok(()),
            (false, false) => Err(ForbiddenAddress::Private),
            (false, true) if self.public => Ok(()),
            (false, true) => Err(ForbiddenAddress::InClear),
        }
    }

    /// Checks a name that somebody else resolves: where no network is allowed it must be a public
    /// one.
    pub(super) fn check_name(&self, name: &str) -> Result<(), ForbiddenAddress> {
        // A name of one label is one of this network.
        let is_private = is_private_host(name) || !name.trim_end_matches('.').contains('.');
        match (self.networks.is_empty(), is_private) {
            (false, _) => Ok(()),
            (true, true) => Err(ForbiddenAddress::Private),
            (true, false) if self.public => Ok(()),
            (true, false) => Err(ForbiddenAddress::InClear),
        }
    }
}

/// Resolves names, and refuses a name if any of its addresses is not allowed.
pub(super) struct Resolver(pub(super) Arc<AllowedAddresses>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One forbidden address makes the whole answer suspect.
            for address in &found {
                allowed.check(address.ip())?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_not_reached() {
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
