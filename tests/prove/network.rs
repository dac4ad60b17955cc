//! Hosts of a network of its own on this machine: a namespace for each, on one bridge, between any
//! two of which nothing may pass.

use std::process::Command;

const BRIDGE: &str = "lbprove0";
/// A network that is for tests, as RFC 2544 says.
const NETWORK: &str = "198.18.77";
/// Where nobody is.
const NOBODY: &str = "02:00:00:00:00:01";

/// A network of some hosts, whose numbers begin at 0.
pub struct Network {
    hosts: usize,
}

impl Network {
    /// # Panics
    /// When this may not make networks: only root may.
    pub fn new(hosts: usize) -> Self {
        let network = Self { hosts };
        network.remove();
        let must = |arguments: String| assert!(ip(&arguments), "ip {arguments}: only root may");
        must(format!("link add {BRIDGE} type bridge"));
        must(format!("addr add {NETWORK}.254/24 dev {BRIDGE}"));
        must(format!("link set {BRIDGE} up"));
        for host in 0..hosts {
            let (name, address) = (name(host), address(host));
            must(format!("netns add {name}"));
            must(format!(
                "link add {name}v type veth peer name eth0 netns {name}"
            ));
            must(format!("link set {name}v master {BRIDGE} up"));
            must(format!("-n {name} addr add {address}/24 dev eth0"));
            must(format!("-n {name} link set eth0 up"));
            must(format!("-n {name} link set lo up"));
        }
        network
    }

    /// Nothing that one host sends arrives at another one.
    pub fn block(&self, from: usize, to: usize) {
        let (name, address) = (name(from), address(to));
        let nowhere = format!("lladdr {NOBODY} dev eth0 nud permanent");
        assert!(ip(&format!("-n {name} neigh replace {address} {nowhere}")));
    }

    /// Everything arrives again.
    pub fn pass(&self) {
        for from in 0..self.hosts {
            for to in (0..self.hosts).filter(|to| *to != from) {
                let (name, address) = (name(from), address(to));
                ip(&format!("-n {name} neigh del {address} dev eth0"));
            }
        }
    }

    fn remove(&self) {
        for host in 0..self.hosts {
            let name = name(host);
            ip(&format!("link del {name}v"));
            ip(&format!("netns del {name}"));
        }
        ip(&format!("link del {BRIDGE}"));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The namespace of a host.
pub fn name(host: usize) -> String {
    format!("lbprove{}", host + 1)
}

pub fn address(host: usize) -> String {
    format!("{NETWORK}.{}", host + 1)
}

/// Whether `ip` could do it.
fn ip(arguments: &str) -> bool {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}
