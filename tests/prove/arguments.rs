//! What is to be shown, and from which seed.

use clap::Parser;

use crate::faults::Fault;

/// Breaks gateways, workers, the desk, RabbitMQ, PostgreSQL and the connections between them under
/// load, and prints what became of everything that was sent, on private servers of this machine:
/// every fault three times, then every step of the protocols, in about an hour
#[derive(Debug, Parser)]
#[command(bin_name = "deploy/prove")]
pub struct Arguments {
    /// Most faults once, and no steps: about four minutes
    #[arg(long = "short", conflicts_with = "is_full")]
    pub is_short: bool,

    /// Every fault nine times, then every step
    #[arg(long = "full")]
    pub is_full: bool,

    /// Faults in random order for so many minutes, and what grows meanwhile
    #[arg(long = "soak", value_name = "MINUTES", conflicts_with_all = ["is_short", "is_full"])]
    pub soak: Option<u64>,

    /// The faults of a cluster instead: three RabbitMQ nodes in network namespaces, and a
    /// PostgreSQL with a synchronous standby; as root only
    #[arg(long = "cluster", conflicts_with = "soak")]
    pub is_cluster: bool,

    /// Which processes break, and at which moments; the same number chooses the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Only faults, steps and parts whose names contain one of these words, separated by commas
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    pub only: Vec<String>,

    /// On the servers of another release of Debian, in a folder of its own: trixie has RabbitMQ 4.0
    /// and PostgreSQL 17; as root only
    #[arg(long, value_name = "SUITE", value_parser = suite)]
    pub debian: Option<String>,

    /// Only say whether these arguments are right, and which Debian is asked for
    #[arg(long, hide = true)]
    pub check: bool,
}

impl Arguments {
    /// Whether something of this name is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| name.contains(word))
    }

    /// Whether a fault is one of those that are tried in this way.
    pub fn takes(&self, fault: &Fault) -> bool {
        !(self.is_short && fault.resembles)
    }

    /// Whether steps are tried in this way.
    pub fn takes_steps(&self) -> bool {
        !self.is_short && !self.is_cluster && self.soak.is_none()
    }

    /// A word that is in none of these names.
    pub fn unknown_word(&self, names: &[&str]) -> Option<&str> {
        let is_unknown = |word: &&String| !names.iter().any(|name| name.contains(&**word));
        self.only.iter().find(is_unknown).map(String::as_str)
    }

    /// MiB of the database's disk, which is in memory: for all that is sent (in two hours some
    /// 3,000), and not much more, because it is filled.
    pub fn disk(&self) -> u32 {
        match (self.soak, self.is_cluster) {
            (Some(_), _) => 6_000,
            (None, true) => 3_000,
            (None, false) => 1_500,
        }
    }

    /// How often each fault is tried.
    pub fn rounds(&self) -> u32 {
        if self.is_full { 3 } else { 1 }
    }
}

/// The name of a release of Debian, which becomes that of a folder.
fn suite(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let name = is_word.then(|| text.to_owned());
    name.ok_or_else(|| "releases of Debian have names like trixie".to_owned())
}
