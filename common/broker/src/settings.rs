//! How to reach the broker: the URL, and defaults that detect a dead peer within seconds.

use std::{borrow::Cow, str::FromStr};

use lapin::{
    tcp::OwnedTLSConfig,
    uri::{AMQPScheme, AMQPUri},
};
use url::Url;

use letterbox_common::process::{
    networks::is_loopback, secret_setting::SecretSetting, settings::SettingError,
};

/// The broker and how to log in to it.
pub const AMQP_URL: SecretSetting = SecretSetting {
    name: NAME,
    about: "RabbitMQ, as amqp://USER:PASSWORD@HOST:PORT/VHOST[,...], one URL for each node, tried \
            in turn; amqps:// checks the server's certificate against the system's roots, or \
            against ?cacertfile=FILE",
};
const NAME: &str = "AMQP_URL";
const HEARTBEAT_SECONDS: u16 = 10;
const CONNECTION_TIMEOUT_MILLISECONDS: u64 = 3_000;
/// Maximum frame of a connection that only publishes, because lapin buffers 32 frames each way. A
/// message may span frames, but its headers may not: connections that read messages accept frames
/// as long as the broker allows.
const FRAME_BYTES: u32 = 32 << 10;

/// The nodes of a broker, from its URLs. Not `Debug`: lapin's URI prints its password.
#[derive(Clone)]
pub struct BrokerTarget {
    /// Never empty.
    nodes: Vec<BrokerNode>,
    /// Whether a new connection declares the topology, or only checks that it is there.
    pub(crate) declares: bool,
}

/// One node of a broker.
#[derive(Clone)]
pub(crate) struct BrokerNode {
    pub(crate) uri: AMQPUri,
    roots_pem: Option<String>,
}

impl BrokerTarget {
    /// Reads the broker from [`AMQP_URL`]. Warns if the connection could be eavesdropped on.
    ///
    /// # Errors
    /// When the setting is missing, one of its URLs is not an AMQP URL, or its certificate file
    /// can't be read. The message does not quote it.
    pub fn from_environment() -> Result<Self, SettingError> {
        let target: Self = AMQP_URL.require()?.expose().parse()?;
        if target.nodes.iter().any(BrokerNode::is_in_clear) {
            tracing::warn!(
                "AMQP_URL: password and messages travel in clear text to another machine; use \
                 amqps:// unless the network is trusted"
            );
        }
        Ok(target)
    }

    /// The same broker for a process that may declare nothing and waits until another has.
    #[must_use]
    pub fn without_declaring(self) -> Self {
        Self {
            declares: false,
            ..self
        }
    }

    /// The same broker for a connection that only publishes.
    #[must_use]
    pub fn to_publish(mut self) -> Self {
        for node in &mut self.nodes {
            node.uri.query.frame_max.get_or_insert(FRAME_BYTES);
        }
        self
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The node to connect to, in turn by the number of tries before.
    pub(crate) fn node(&self, tries: usize) -> &BrokerNode {
        &self.nodes[tries % self.nodes.len()]
    }
}

impl FromStr for BrokerTarget {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let nodes: Result<_, _> = text.split(',').map(|url| url.trim().parse()).collect();
        Ok(Self {
            nodes: nodes?,
            declares: true,
        })
    }
}

impl BrokerNode {
    fn is_in_clear(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQP && !is_loopback(&self.uri.authority.host)
    }

    pub(crate) fn tls(&self) -> OwnedTLSConfig {
        OwnedTLSConfig {
            identity: None,
            cert_chain: self.roots_pem.clone(),
        }
    }
}

impl FromStr for BrokerNode {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let malformed = || {
            SettingError::new(
                NAME,
                "must be amqp://USER:PASSWORD@HOST:PORT/VHOST (or amqps://); percent-encode signs \
                 of a name or password, such as @ as %40, # as %23, / as %2f and a comma as %2c",
            )
        };
        // In a password these begin something else.
        if text.matches('@').count() > 1 || text.contains('#') {
            return Err(malformed());
        }
        let mut uri: AMQPUri = text.parse().map_err(|_| malformed())?;
        if uri.vhost.is_empty() {
            let why = "the vhost at its end is empty: leave out the slash, or write / as %2f";
            return Err(SettingError::new(NAME, why));
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        let connecting = &mut uri.query.connection_timeout;
        connecting.get_or_insert(CONNECTION_TIMEOUT_MILLISECONDS);

        let url = Url::parse(text).map_err(|_| malformed())?;
        let roots = url.query_pairs().find(|(key, _)| key == "cacertfile");
        let read = |(_, file): (_, Cow<'_, str>)| {
            let wrong = |error| SettingError::new(NAME, format!("cacertfile {file}: {error}"));
            std::fs::read_to_string(&*file).map_err(wrong)
        };
        let roots_pem = roots.map(read).transpose()?;
        Ok(Self { uri, roots_pem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_peers_are_noticed_by_default() {
        let node: BrokerNode = "amqp://u:p@h/v".parse().unwrap();
        assert_eq!(node.uri.query.heartbeat, Some(HEARTBEAT_SECONDS));
        let timeout = Some(CONNECTION_TIMEOUT_MILLISECONDS);
        assert_eq!(node.uri.query.connection_timeout, timeout);
        let node: BrokerNode = "amqp://u:p@h/v?heartbeat=3".parse().unwrap();
        assert_eq!(node.uri.query.heartbeat, Some(3));
    }

    #[test]
    fn nodes_are_tried_in_turn() {
        let target: BrokerTarget = "amqp://u:p@a/v, amqp://u:p@b/v".parse().unwrap();
        let hosts = [0, 1, 2].map(|tries| &*target.node(tries).uri.authority.host);
        assert_eq!(hosts, ["a", "b", "a"]);
    }

    /// As people copy them from a control panel: the error says how to write them.
    #[test]
    fn signs_that_are_not_encoded_are_told() {
        for (text, remedy) in [
            ("amqp://u:p@h/", "write / as %2f"),
            ("amqp://u:p@h:5672/?heartbeat=3", "write / as %2f"),
            ("amqp://u:p@ss@h/v", "@ as %40"),
            ("amqp://u:p#ss@h/v", "# as %23"),
            ("amqp://u:5#ss@h/v", "# as %23"),
            ("amqp://u:p/ss@h/v", "/ as %2f"),
            ("amqp://u:p,ss@h/v", "comma as %2c"),
        ] {
            let Err(error) = text.parse::<BrokerTarget>() else {
                panic!("{text} was read")
            };
            let told = error.to_string();
            assert!(told.contains(remedy), "{text}: {told}");
            assert!(!told.contains("ss@"), "{text}: {told}");
        }
        for (text, vhost) in [
            ("amqp://u:p@h", "/"),
            ("amqp://u:p%40%23%2f%2cs@h:5672/%2f", "/"),
            ("amqp://u:p@h/a%2fb", "a/b"),
        ] {
            let node: BrokerNode = text.parse().unwrap();
            assert_eq!(node.uri.vhost, vhost, "{text}");
        }
    }

    #[test]
    fn errors_do_not_quote_the_password() {
        for text in [
            "canary",
            "http://u:canary@h/",
            "amqp://u:canary@h:port/",
            "amqps://u:canary@h/?cacertfile=/nowhere",
            "amqp://u:canary@h/v,canary",
            "amqp://u:canary@h/v,",
        ] {
            let Err(error) = text.parse::<BrokerTarget>() else {
                panic!("{text} was read")
            };
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
