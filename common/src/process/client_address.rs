//! The address of the client, which differs from that of the peer if a trusted proxy is in between.
//!
//! Only trusted proxies are believed. `X-Forwarded-For` is read from the right, over all its lines:
//! every proxy appends the address it was called from, so the first address from the right that is
//! not a trusted proxy is the client. The client may have made up anything further left. If the
//! list can't be parsed up to there, all of it is ignored.

use std::net::{IpAddr, Ipv4Addr};

use super::{networks::Networks, settings::SettingError};
use hyper::header::HeaderMap;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// A client as the rate limits count it: an IPv4 address, or the /64 network of an IPv6 address,
/// which belongs to one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientAddress {
    /// A client of its own.
    V4(Ipv4Addr),
    /// The first 8 bytes of the address.
    V6Network([u8; 8]),
}

impl ClientAddress {
    /// The 4 or 8 bytes of the address or network.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::V4(address) => address.octets().to_vec(),
            Self::V6Network(network) => network.to_vec(),
        }
    }
}

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6Network([a, b, c, d, e, f, g, h])
            }
        }
    }
}

/// The proxies whose `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(pub Networks);

impl TrustedProxies {
    /// Those of the setting `LETTERBOX_TRUSTED_PROXIES`.
    ///
    /// # Errors
    /// When it is no list of networks.
    pub fn from_setting(text: &str) -> Result<Self, SettingError> {
        let proxies = text.parse().map(Self);
        proxies.map_err(|error| SettingError::new("LETTERBOX_TRUSTED_PROXIES", error))
    }

    /// Whether a peer is a trusted proxy.
    pub fn contains(&self, peer: IpAddr) -> bool {
        self.0.contains(peer.to_canonical())
    }

    /// The client of a request that `peer` sent.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> ClientAddress {
        self.address(peer, headers).into()
    }

    /// The address of the client of a request that `peer` sent.
    pub fn address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.0.contains(peer) {
            return peer;
        }
        let lines = headers.get_all(FORWARDED_FOR).iter().rev();
        let entries = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
        let entries = entries.map(<[u8]>::trim_ascii);
        let mut client = peer;
        for entry in entries.filter(|entry| !entry.is_empty()) {
            let Some(address) = parse_address(entry) else {
                return peer;
            };
            client = address;
            if !self.0.contains(address) {
                break;
            }
        }
        client
    }
}

/// Parses an address as proxies write it: bare, with a port, in brackets, or with a zone.
fn parse_address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => host,
            _ => text,
        },
    };
    let bare = bare.split_once('%').map_or(bare, |(address, _)| address);
    let address: IpAddr = bare.parse().ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    /// The client of a request with these lines, a header each.
    fn client(peer: &str, lines: &[u8]) -> ClientAddress {
        let proxies = TrustedProxies("10.0.0.0/8, fd00::/8,127.0.0.1".parse().unwrap());
        let mut headers = HeaderMap::new();
        let lines = lines.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            headers.append(FORWARDED_FOR, HeaderValue::from_bytes(line).unwrap());
        }
        proxies.client(peer.parse().unwrap(), &headers)
    }

    fn address(text: &str) -> ClientAddress {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn the_client_is_the_first_from_the_right_that_is_not_a_trusted_proxy() {
        let of_proxy: [(&[u8], &str); 16] = [
            (b"", "10.1.1.1"),
            // A client may have lied to its proxy.
            (b"198.51.100.1", "198.51.100.1"),
            (b"garbage, 198.51.100.1", "198.51.100.1"),
            // Proxies behind proxies, on one line or several.
            (b"1.1.1.1, 198.51.100.1, 10.2.2.2", "198.51.100.1"),
            (b"1.1.1.1, 198.51.100.1\n10.2.2.2,fd00::7", "198.51.100.1"),
            (b"10.3.3.3, 10.2.2.2", "10.3.3.3"),
            // A list that can't be parsed is ignored.
            (b"198.51.100.1, garbage", "10.1.1.1"),
            (b"198.51.100.1, \xff", "10.1.1.1"),
            (b"198.51.100.1, unknown, 10.2.2.2", "10.1.1.1"),
            (b"198.51.100.1, [2001:db8::1", "10.1.1.1"),
            (b" , ,", "10.1.1.1"),
            // As proxies write addresses.
            (b"198.51.100.1:4711", "198.51.100.1"),
            (b"[2001:db8::1]:4711", "2001:db8::1"),
            (b"2001:db8::1%eth0", "2001:db8::1"),
            // IPv4-mapped IPv6 addresses.
            (b"::ffff:198.51.100.1", "198.51.100.1"),
            (b"198.51.100.1, ::ffff:10.2.2.2", "198.51.100.1"),
        ];
        let cases = of_proxy.map(|(lines, expected)| ("10.1.1.1", lines, expected));
        for (peer, lines, expected) in cases.into_iter().chain([
            ("::ffff:10.1.1.1", &b"198.51.100.1"[..], "198.51.100.1"),
            ("127.0.0.1", b"1.1.1.1, 198.51.100.1", "198.51.100.1"),
            // No trusted proxy.
            ("192.0.2.1", b"", "192.0.2.1"),
            ("192.0.2.1", b"198.51.100.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", b"198.51.100.1", "192.0.2.1"),
        ]) {
            let shown = String::from_utf8_lossy(lines);
            assert_eq!(client(peer, lines), address(expected), "{peer} {shown:?}");
        }
    }

    #[test]
    fn an_ipv6_client_is_its_64_network() {
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        let network = [0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 2];
        assert_eq!(address("2001:db8:1:2::1").bytes(), network);
        assert_ne!(address("192.0.2.1"), address("192.0.2.2"));
    }
}
