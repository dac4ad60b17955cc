//! How to reach the database: the URL, with TLS modes that the driver does not know itself.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};
use url::form_urlencoded;

use letterbox_common::process::{
    networks::is_loopback, secret_setting::SecretSetting, settings::SettingError,
};

/// The database and how to log in to it.
pub const DATABASE_URL: SecretSetting = SecretSetting {
    name: NAME,
    about: "PostgreSQL, as postgres://USER:PASSWORD@HOST:PORT/DATABASE; ?sslmode=require \
            encrypts, ?sslmode=verify-full also checks the server's certificate against the \
            system's roots or &sslrootcert=FILE",
};
const NAME: &str = "DATABASE_URL";

/// Settings of every process that uses the database.
#[derive(Debug, Clone, Args)]
pub struct DatabaseSettings {
    /// Maximum number of connections to PostgreSQL that this process opens
    #[arg(long, env = "LETTERBOX_DATABASE_POOL_SIZE", value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(2..))]
    pub database_pool_size: u16,
}

impl DatabaseSettings {
    /// One connection, for a program that makes one call at a time.
    pub const SINGLE: Self = Self {
        database_pool_size: 1,
    };
}

/// How the server must prove its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerCheck {
    /// Not at all: any certificate is accepted, or none
    None,
    /// By a certificate for its host name, issued under the system's roots or those of this file
    Full { roots: Option<PathBuf> },
}

/// A database, from its URL.
#[derive(Debug, Clone)]
pub struct DatabaseTarget {
    pub(super) config: Config,
    pub(super) check: ServerCheck,
}

impl DatabaseTarget {
    /// Reads the database from [`DATABASE_URL`]. Warns if the connection could be eavesdropped on,
    /// or the server impersonated.
    ///
    /// # Errors
    /// When the setting is missing or is not a PostgreSQL URL. The message does not quote it.
    pub fn from_environment() -> Result<Self, SettingError> {
        let target: Self = DATABASE_URL.require()?.expose().parse()?;
        if target.check == ServerCheck::None && !target.is_on_this_machine() {
            tracing::warn!(
                "DATABASE_URL: the connection may be in clear text and the server is not verified; \
                 use ?sslmode=verify-full unless the network is trusted"
            );
        }
        Ok(target)
    }

    fn is_on_this_machine(&self) -> bool {
        self.config.get_hosts().iter().all(|host| match host {
            Host::Tcp(host) => is_loopback(host),
            Host::Unix(_) => true,
        })
    }
}

impl FromStr for DatabaseTarget {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let schemes = ["postgres://", "postgresql://"];
        if !schemes.iter().any(|scheme| text.starts_with(scheme)) {
            return Err(SettingError::new(
                NAME,
                "must be postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            ));
        }
        // Only the query is taken apart: the rest may name several hosts, which no URL does.
        let (server, query) = text.split_once('?').unwrap_or((text, ""));
        let mut mode = None;
        let mut roots = None;
        let mut others = form_urlencoded::Serializer::new(String::new());
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "sslmode" => mode = Some(value.into_owned()),
                "sslrootcert" => {
                    roots = Some(PathBuf::from(value.into_owned()))
                        .filter(|file| file.as_os_str() != "system")
                }
                _ => {
                    others.append_pair(&key, &value);
                }
            }
        }
        // The driver decodes `%20`, but not the `+` that form encoding writes for a space.
        let others = others.finish().replace('+', "%20");
        let mut config: Config = format!("{server}?{others}")
            .parse()
            .map_err(|error| SettingError::new(NAME, explain(&error)))?;

        let (mode, check) = match (mode.as_deref(), roots) {
            (None | Some("prefer"), None) => (SslMode::Prefer, ServerCheck::None),
            (Some("disable"), _) => (SslMode::Disable, ServerCheck::None),
            (Some("require"), None) => (SslMode::Require, ServerCheck::None),
            // As in libpq, a root certificate turns `require` into verification.
            (Some("verify-full"), roots) | (Some("require"), roots @ Some(_)) => {
                (SslMode::Require, ServerCheck::Full { roots })
            }
            _ => {
                return Err(SettingError::new(
                    NAME,
                    "sslmode must be disable, prefer, require or verify-full; sslrootcert needs \
                     one of the last two",
                ));
            }
        };
        config.ssl_mode(mode);
        Ok(Self { config, check })
    }
}

/// The driver's message names the offending part, never the password.
fn explain(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<(SslMode, ServerCheck), SettingError> {
        let target: DatabaseTarget = format!("postgres://u:canary@h:5/d{query}").parse()?;
        Ok((target.config.get_ssl_mode(), target.check))
    }

    #[test]
    fn tls_modes() {
        let full = |roots: Option<&str>| ServerCheck::Full {
            roots: roots.map(Into::into),
        };
        let system = "verify-full&sslrootcert=system";
        let own = "verify-full&sslrootcert=/a";
        for (modes, mode, check) in [
            ("disable", SslMode::Disable, ServerCheck::None),
            ("prefer", SslMode::Prefer, ServerCheck::None),
            ("require", SslMode::Require, ServerCheck::None),
            ("verify-full", SslMode::Require, full(None)),
            (system, SslMode::Require, full(None)),
            (own, SslMode::Require, full(Some("/a"))),
            ("require&sslrootcert=/a", SslMode::Require, full(Some("/a"))),
        ] {
            let parsed = parse(&format!("?sslmode={modes}"));
            assert_eq!(parsed, Ok((mode, check)), "{modes}");
        }
        assert_eq!(parse(""), Ok((SslMode::Prefer, ServerCheck::None)));
        assert!(parse("?sslmode=verify-ca").is_err());
        assert!(parse("?sslmode=no").is_err());
    }

    #[test]
    fn several_hosts_have_their_ports_and_a_plus_stays_in_a_password() {
        let text = "postgres://u:a+b@h1:5433,h2:5434/d?target_session_attrs=read-write";
        let target: DatabaseTarget = text.parse().unwrap();
        let config = &target.config;
        assert_eq!(config.get_ports(), [5433, 5434]);
        assert_eq!(config.get_hosts().len(), 2);
        assert_eq!(config.get_password(), Some(&b"a+b"[..]));
    }

    #[test]
    fn other_parameters_reach_the_driver() {
        let text = "postgres://u@h/d?options=-c%20a%3Db&sslmode=disable";
        let target: DatabaseTarget = text.parse().unwrap();
        assert_eq!(target.config.get_options(), Some("-c a=b"));
    }

    #[test]
    fn errors_do_not_quote_the_password() {
        for text in [
            "canary",
            "mysql://u:canary@h/d",
            "postgres://u:canary@h:port/d",
            "postgres://u:canary@h/d?canary2=1",
        ] {
            let error = text.parse::<DatabaseTarget>().unwrap_err().to_string();
            assert!(!error.contains("canary@"), "{error}");
            assert!(!error.contains(":canary"), "{error}");
        }
    }
}
