//! The settings of the desk: each has an environment variable and a flag, is parsed once, and is
//! checked before anything starts.

use std::net::SocketAddr;

use clap::Parser;
use letterbox_common::process::{
    client_address::TrustedProxies,
    secret_setting::{SecretSetting, help},
    settings::{ProcessSettings, SettingError},
    shares::Shares,
};
use letterbox_database::{DATABASE_URL, Database, DatabaseSettings, DatabaseTarget, Role};
use letterbox_form_page::Documents;
use letterbox_operator::Addresses;

use crate::{
    desk::{Desk, SHARE},
    oidc::{CLIENT_SECRET, Oidc},
};

const SECRETS: [&SecretSetting; 2] = [&DATABASE_URL, &CLIENT_SECRET];

/// Pages for people: what waits for their answer, and what their workflows have done
#[derive(Debug, Clone, Parser)]
#[command(name = "letterbox-desk", version, after_help = help(&SECRETS))]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9082")))]
pub(crate) struct DeskSettings {
    /// Address for browsers; HTTP/1.1, to be run behind a proxy that terminates TLS
    #[arg(
        long,
        env = "LETTERBOX_DESK_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8082"
    )]
    pub listen: SocketAddr,

    /// Proxies whose X-Forwarded-For is trusted, as CIDR[,CIDR...] [default: none]
    #[arg(
        long,
        env = "LETTERBOX_TRUSTED_PROXIES",
        value_name = "NETWORKS",
        default_value = "",
        hide_default_value = true
    )]
    pub trusted_proxies: String,

    /// Offer links to sign in by e-mail; needs LETTERBOX_SMTP_URL in the workers, who send them
    #[arg(long, env = "LETTERBOX_SIGN_IN_BY_EMAIL")]
    pub sign_in_by_email: bool,

    /// Issuer of OpenID Connect that vouches for people, by the URL by which it calls itself; an
    /// operator says with 'letterbox user trust-issuer' that it is trusted
    #[arg(long, env = "LETTERBOX_OIDC_ISSUER", value_name = "URL")]
    pub oidc_issuer: Option<String>,

    /// Name of the desk at that issuer
    #[arg(
        long,
        env = "LETTERBOX_OIDC_CLIENT_ID",
        value_name = "ID",
        requires = "oidc_issuer"
    )]
    pub oidc_client_id: Option<String>,

    #[command(flatten)]
    pub addresses: Addresses,

    #[command(flatten)]
    pub database: DatabaseSettings,

    #[command(flatten)]
    pub process: ProcessSettings,
}

impl DeskSettings {
    /// Checks the settings, and makes the desk of them.
    pub(crate) fn desk(&self) -> Result<Desk, SettingError> {
        let url = &self.addresses.desk_url;
        if !matches!(url.scheme(), "http" | "https") || url.path() != "/" {
            return Err(SettingError::new(
                "LETTERBOX_DESK_URL",
                "must be http:// or https:// and a host, without a path",
            ));
        }
        let proxies = TrustedProxies::from_setting(&self.trusted_proxies)?;
        if url.scheme() == "https" && self.trusted_proxies.is_empty() {
            tracing::warn!(
                "LETTERBOX_TRUSTED_PROXIES is empty: all who come through the proxy that \
                 terminates TLS count as one client, and share its {SHARE} connections"
            );
        }
        let name = letterbox_common::process::name("letterbox-desk");
        let target = DatabaseTarget::from_environment()?;
        Ok(Desk {
            database: Database::new(&target, &self.database, Role::Desk, &name)?,
            proxies,
            origin: url.origin().ascii_serialization(),
            oidc: oidc(self)?,
            form_pages: Documents::new(url),
            addresses: self.addresses.clone(),
            signs_in_by_email: self.sign_in_by_email,
            strangers: Shares::of(SHARE),
            lookups: Shares::of(SHARE),
            rehearsals: Shares::of(1),
            people: Shares::of(SHARE),
        })
    }
}

/// The issuer that vouches for people, if one is named.
fn oidc(settings: &DeskSettings) -> Result<Option<Oidc>, SettingError> {
    let Some(issuer) = &settings.oidc_issuer else {
        return Ok(None);
    };
    let client = settings.oidc_client_id.as_ref().ok_or_else(|| {
        let problem = "is needed where LETTERBOX_OIDC_ISSUER is set";
        SettingError::new("LETTERBOX_OIDC_CLIENT_ID", problem)
    })?;
    let secret = CLIENT_SECRET.require()?;
    let oidc = Oidc::new(issuer, client, secret, settings.addresses.desk());
    oidc.map(Some)
        .map_err(|error| SettingError::new("LETTERBOX_OIDC_ISSUER", error))
}
