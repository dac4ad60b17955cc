//! The way out of this network, by setting: through which proxy requests leave, and whose
//! certificates they trust beside those that the system trusts.

use std::{fmt::Display, fs, path::Path, sync::Arc, time::Duration};

use letterbox_common::process::{secret_setting::SecretSetting, settings::SettingError};
use letterbox_workflow::actions::TIMEOUT;
use reqwest::{Certificate, Proxy, redirect};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use url::Url;

use super::addresses::{AllowedAddresses, Resolver};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The proxy of all requests. It may need a password.
pub(crate) const EGRESS_PROXY: SecretSetting = SecretSetting {
    name: "LETTERBOX_EGRESS_PROXY",
    about: "Proxy through which actions leave, http://[USER:PASSWORD@]HOST:PORT; without it none",
};
const CA_FILE: &str = "LETTERBOX_EGRESS_CA_FILE";

/// How requests leave.
#[derive(Clone, Default)]
pub(crate) struct WayOut {
    pub(super) authorities: Vec<CertificateDer<'static>>,
    proxy: Option<Proxy>,
    /// The address of the proxy, without its password; empty if there is none.
    pub(crate) told: String,
}

impl WayOut {
    /// The way out that the settings say, with the authorities in this file.
    pub(crate) fn from_settings(ca_file: Option<&Path>) -> Result<Self, SettingError> {
        let mut out = Self::default();
        if let Some(file) = ca_file.filter(|file| !file.as_os_str().is_empty()) {
            let wrong = |why: &dyn Display| {
                SettingError::new(CA_FILE, format!("{}: {why}", file.display()))
            };
            let pem = fs::read(file).map_err(|error| wrong(&error))?;
            let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>();
            out.authorities = found.unwrap_or_default();
            if out.authorities.is_empty() {
                return Err(wrong(&"has no certificate in PEM"));
            }
        }
        if let Some(text) = EGRESS_PROXY.read()? {
            // Neither the error nor what is told quotes the password.
            let wrong = || {
                let problem = "must be http://HOST:PORT or http://USER:PASSWORD@HOST:PORT";
                SettingError::new(EGRESS_PROXY.name, problem)
            };
            let url: Url = text.expose().parse().map_err(|_| wrong())?;
            if url.scheme() != "http" || url.path() != "/" || url.query().is_some() {
                return Err(wrong());
            }
            out.told = url.origin().ascii_serialization();
            out.proxy = Some(Proxy::all(url).map_err(|_| wrong())?);
        }
        Ok(out)
    }

    /// Whether the proxy resolves names, and not this process.
    pub(super) fn is_by_proxy(&self) -> bool {
        self.proxy.is_some()
    }

    /// A client that reaches these addresses this way, and by no other proxy.
    pub(super) fn client(&self, allowed: &Arc<AllowedAddresses>) -> reqwest::ClientBuilder {
        let authorities = self.authorities.iter();
        let authorities = authorities.filter_map(|one| Certificate::from_der(one).ok());
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .redirect(redirect::Policy::none())
            .referer(false)
            .tls_certs_merge(authorities)
            .user_agent(concat!("Letterbox/", env!("CARGO_PKG_VERSION")));
        match &self.proxy {
            // The one name that is resolved here is the proxy's own.
            Some(proxy) => client.proxy(proxy.clone()),
            None => client
                .no_proxy()
                .dns_resolver(Arc::new(Resolver(allowed.clone()))),
        }
    }
}
