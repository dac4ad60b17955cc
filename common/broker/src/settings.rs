//! How the broker is reached: the URL, and defaults that notice a dead peer within seconds.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use lapin::{tcp::OwnedTLSConfig, uri::AMQPUri};
use url::Url;

use letterbox_common::process::settings::{SecretText, SettingError};

const NAME: &str = "AMQP_URL";
const HEARTBEAT_SECONDS: u16 = 10;
const CONNECTION_TIMEOUT_MILLISECONDS: u64 = 3_000;

/// Settings of every process that uses the broker.
#[derive(Debug, Clone, Args)]
pub struct BrokerSettings {
    /// RabbitMQ, as amqp://USER:PASSWORD@HOST:PORT/VHOST; amqps:// checks the server's certificate
    /// against the system's roots, or against ?cacertfile=FILE
    #[arg(long, env = "AMQP_URL", value_name = "URL", hide_env_values = true)]
    pub amqp_url: SecretText,
}

impl BrokerSettings {
    /// Parses the URL.
    ///
    /// # Errors
    /// When it is not an AMQP URL, or its certificate file can't be read. The message does not
    /// quote it.
    pub fn target(&self) -> Result<BrokerTarget, SettingError> {
        self.amqp_url.expose().parse()
    }
}

/// A broker as the URL names it. Not `Debug`: lapin's URI prints its password.
#[derive(Clone)]
pub struct BrokerTarget {
    pub(super) uri: AMQPUri,
    pub(super) roots_pem: Option<String>,
}

impl BrokerTarget {
    pub(super) fn tls(&self) -> OwnedTLSConfig {
        OwnedTLSConfig {
            identity: None,
            cert_chain: self.roots_pem.clone(),
        }
    }
}

impl FromStr for BrokerTarget {
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
        let target: BrokerTarget = "amqp://u:p@h/v".parse().unwrap();
        assert_eq!(target.uri.query.heartbeat, Some(HEARTBEAT_SECONDS));
        assert_eq!(
            target.uri.query.connection_timeout,
            Some(CONNECTION_TIMEOUT_MILLISECONDS)
        );
        let target: BrokerTarget = "amqp://u:p@h/v?heartbeat=3".parse().unwrap();
        assert_eq!(target.uri.query.heartbeat, Some(3));
    }

    #[test]
    fn errors_do_not_quote_the_password() {
        for text in [
            "canary",
            "http://u:canary@h/",
            "amqp://u:canary@h:port/",
            "amqps://u:canary@h/?cacertfile=/nowhere",
        ] {
            let Err(error) = text.parse::<BrokerTarget>() else {
                panic!("{text} was read")
            };
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
