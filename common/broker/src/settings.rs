//! How the broker is reached: the URL, and defaults that notice a dead peer within seconds.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use lapin::{tcp::OwnedTLSConfig, uri::AMQPUri};
use url::Url;

use letterbox_common::process::settings::{SecretText, SettingError};

const NAME: &str = "AMQP_URL";
const HEARTBEAT_SECONDS: u16 = 10;
const CONNECTION_TIMEOUT_MILLISECONDS: u64 = 3_000;
/// lapin holds 32 frames each way in memory. A message may be longer than a frame.
const FRAME_BYTES: u32 = 32 << 10;

/// Settings of every process that uses the broker.
#[derive(Debug, Clone, Args)]
pub struct BrokerSettings {
    /// RabbitMQ, as amqp://USER:PASSWORD@HOST:PORT/VHOST[,...], one URL for each node, tried in
    /// turn; amqps:// checks the server's certificate against the system's roots, or against
    /// ?cacertfile=FILE
    #[arg(long, env = "AMQP_URL", value_name = "URLS", hide_env_values = true)]
    pub amqp_url: SecretText,
}

impl BrokerSettings {
    /// Parses the URLs.
    ///
    /// # Errors
    /// When one is not an AMQP URL, or its certificate file can't be read. The message does not
    /// quote it.
    pub fn target(&self) -> Result<BrokerTarget, SettingError> {
        self.amqp_url.expose().parse()
    }
}

/// A broker as its URLs name it. Not `Debug`: lapin's URI prints its password.
#[derive(Clone)]
pub struct BrokerTarget {
    /// Never empty.
    nodes: Vec<BrokerNode>,
    /// Work queues in each family that are declared before anything else is done. 1 unless set.
    pub work_queues: u16,
}

/// One node of a broker.
#[derive(Clone)]
pub(crate) struct BrokerNode {
    pub(crate) uri: AMQPUri,
    roots_pem: Option<String>,
}

impl BrokerTarget {
    /// The same, with so many work queues in each family.
    #[must_use]
    pub fn with_queues(self, work_queues: u16) -> Self {
        Self {
            work_queues,
            ..self
        }
    }

    /// The node to connect to at the n-th try, from 0 on.
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
            work_queues: 1,
        })
    }
}

impl BrokerNode {
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
                "must be amqp://USER:PASSWORD@HOST:PORT/VHOST (or amqps://)",
            )
        };
        let mut uri: AMQPUri = text.parse().map_err(|_| malformed())?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        uri.query
            .connection_timeout
            .get_or_insert(CONNECTION_TIMEOUT_MILLISECONDS);
        uri.query.frame_max.get_or_insert(FRAME_BYTES);

        let url = Url::parse(text).map_err(|_| malformed())?;
        let roots = url
            .query_pairs()
            .find(|(key, _)| key == "cacertfile")
            .map(|(_, file)| PathBuf::from(&*file));
        let roots_pem = roots
            .map(|file| {
                std::fs::read_to_string(&file).map_err(|error| {
                    SettingError::new(NAME, format!("cacertfile {}: {error}", file.display()))
                })
            })
            .transpose()?;
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
        assert_eq!(
            node.uri.query.connection_timeout,
            Some(CONNECTION_TIMEOUT_MILLISECONDS)
        );
        let node: BrokerNode = "amqp://u:p@h/v?heartbeat=3".parse().unwrap();
        assert_eq!(node.uri.query.heartbeat, Some(3));
    }

    #[test]
    fn nodes_are_tried_in_turn() {
        let target: BrokerTarget = "amqp://u:p@a/v, amqp://u:p@b/v".parse().unwrap();
        let hosts: Vec<_> = (0..3)
            .map(|tries| target.node(tries).uri.authority.host.as_str())
            .collect();
        assert_eq!(hosts, ["a", "b", "a"]);
    }

    #[test]
    fn errors_do_not_quote_the_password() {
        for text in [
            "canary",
            "http://u:canary@h/",
            "amqp://u:canary@h:port/",
            "amqps://u:canary@h/?cacertfile=/nowhere",
            "amqp://u:canary@h/,canary",
            "amqp://u:canary@h/,",
        ] {
            let Err(error) = text.parse::<BrokerTarget>() else {
                panic!("{text} was read")
            };
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
