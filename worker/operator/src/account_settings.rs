//! The settings of a connected account, and the secret that comes with them: what they say, and
//! whether they fit together.

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use http::HeaderValue;
use letterbox_common::{credential::with_certificate, sealing::Secret};
use letterbox_workflow::account::{check_base_url, check_header, check_sender};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use url::Url;

use crate::{Reason, Result, check_name};

/// The header that carries a credential, if the account names no other.
const HEADER: &str = "authorization";
/// Maximum bytes of a client's certificate with its key.
const MAX_CERTIFICATE: usize = 16 << 10;

/// The settings of an account: the server that its requests go to and, where it gets its tokens by
/// OAuth 2.0, from which server. The flags of the command line are this.
#[derive(Debug, Clone, Args)]
pub struct AccountSettings {
    /// The name by which actions refer to it
    #[arg(long)]
    pub name: String,
    /// The URL that every request begins with; actions can't leave it. Of a mail server
    /// smtps://HOST or smtp://HOST:587
    #[arg(long, visible_alias = "smtp")]
    pub base_url: Url,
    /// From whom its e-mail is, if it is a mail server: ADDRESS or 'NAME <ADDRESS>'
    #[arg(long = "from", value_name = "SENDER")]
    pub sender: Option<String>,
    /// Name of the header that carries the credential instead of 'Authorization'
    #[arg(long, value_name = "NAME", requires = "value_file")]
    pub header: Option<String>,
    /// Where its tokens are got by OAuth 2.0
    #[arg(long, value_name = "URL", requires = "client_secret_file")]
    pub token_url: Option<Url>,
    /// Where its owner lets Letterbox in, in the desk; without it the client's own credentials do
    #[arg(long, value_name = "URL", requires = "token_url")]
    pub authorize_url: Option<Url>,
    /// Client id at the authorization server
    #[arg(long, value_name = "ID", requires = "token_url")]
    pub client_id: Option<String>,
    /// Scope: words separated by spaces
    #[arg(long, requires = "token_url")]
    pub scope: Option<String>,
}

/// The secret of an account.
#[derive(Debug, Clone)]
pub enum AccountSecret {
    /// None: its server wants none.
    None,
    /// The value of its header.
    Credential(Secret),
    /// A token, sent as `Authorization: Bearer …`.
    Bearer(Secret),
    /// A name and a password with a colon between them, sent as `Authorization: Basic …`.
    Basic(Secret),
    /// The secret of the client that gets its tokens by OAuth 2.0, if it has one.
    Client(Option<Secret>),
    /// Another one but a client's, and the certificate that the account is shown, with its key.
    Certified(Box<Self>, Secret),
}

impl AccountSecret {
    /// The value of the account's header; `None` if that comes from a token server.
    pub(crate) fn value(&self) -> Option<Secret> {
        let scheme = |scheme: &str, value: &[u8]| [scheme.as_bytes(), value].concat();
        Some(Secret::new(match self {
            Self::None => Vec::new(),
            Self::Credential(value) => return Some(value.clone()),
            Self::Bearer(token) => scheme("Bearer ", token.expose()),
            Self::Basic(pair) => scheme("Basic ", BASE64_STANDARD.encode(pair.expose()).as_bytes()),
            Self::Client(_) => return None,
            Self::Certified(other, pem) => return Some(with_certificate(&other.value()?, pem)),
        }))
    }

    /// Whether it has a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        matches!(self, Self::Certified(..))
    }

    /// Checks that it goes into this header, a scheme being part of `Authorization` only; or that a
    /// mail server can be told it.
    pub(crate) fn check_use(&self, header: &str, is_mail: bool) -> Result<(), Reason> {
        if is_mail && matches!(self, Self::Credential(_) | Self::Certified(..)) {
            return Err(Reason::MailCredential);
        }
        if let Self::Certified(other, _) = self {
            return other.check_use(header, is_mail);
        }
        let has_scheme = matches!(self, Self::Bearer(_) | Self::Basic(_));
        let is_its = header.eq_ignore_ascii_case(HEADER);
        (!has_scheme || is_its)
            .then_some(())
            .ok_or(Reason::SchemeInOtherHeader)
    }

    /// Checks what no account can use.
    pub(crate) fn check(&self) -> Result<()> {
        let is_good = match self {
            Self::None => true,
            Self::Bearer(token) => {
                let token = token.expose();
                !token.trim_ascii().is_empty() && HeaderValue::from_bytes(token).is_ok()
            }
            Self::Basic(pair) => pair.expose().contains(&b':') && pair.expose().len() <= 4_096,
            Self::Credential(credential) => {
                let credential = credential.expose();
                let is_empty = [b"".as_slice(), b"Bearer"].contains(&credential.trim_ascii());
                !is_empty && HeaderValue::from_bytes(credential).is_ok()
            }
            Self::Certified(other, pem) => {
                if matches!(**other, Self::Client(_)) || !is_identity(pem.expose()) {
                    return Err(Reason::InvalidCertificate.into());
                }
                return other.check();
            }
            Self::Client(None) => true,
            Self::Client(Some(secret)) => {
                let secret = secret.expose();
                (1..=4_096).contains(&secret.len()) && std::str::from_utf8(secret).is_ok()
            }
        };
        is_good
            .then_some(())
            .ok_or(Reason::InvalidCredential.into())
    }
}

/// Whether PEM has a certificate and its key, and nothing else: a worker would take another key of
/// several, and refuses other parts.
fn is_identity(pem: &[u8]) -> bool {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let (Ok(chain), Ok(key)) = (chain, PrivateKeyDer::from_pem_slice(pem)) else {
        return false;
    };
    let parts = String::from_utf8_lossy(pem).matches("-----BEGIN ").count();
    let is_all = !chain.is_empty() && parts == chain.len() + 1;
    let provider = rustls::crypto::ring::default_provider();
    let pair = CertifiedKey::from_der(chain, key, &provider);
    is_all && pair.is_ok() && pem.len() <= MAX_CERTIFICATE
}

impl AccountSettings {
    /// Those of an account of this name at this URL, and otherwise by default.
    pub fn of(name: &str, base_url: Url) -> Self {
        Self {
            name: name.to_owned(),
            base_url,
            sender: None,
            header: None,
            token_url: None,
            authorize_url: None,
            client_id: None,
            scope: None,
        }
    }

    /// The header that carries the credential.
    pub(crate) fn header(&self) -> &str {
        self.header.as_deref().unwrap_or(HEADER)
    }

    /// The client id; empty if there is none.
    pub(crate) fn client_id(&self) -> &str {
        self.client_id.as_deref().unwrap_or_default()
    }

    /// Checks all of them, with the secret.
    pub(crate) fn check(&self, secret: &AccountSecret) -> Result<()> {
        check_name(&self.name)?;
        if self.name.chars().count() > 100 {
            return Err(Reason::InvalidAccountName.into());
        }
        check_base_url(&self.base_url).map_err(Reason::from)?;
        check_header(self.header()).map_err(Reason::from)?;
        check_sender(&self.base_url, self.sender.as_deref()).map_err(Reason::from)?;
        match secret {
            AccountSecret::Client(secret) => self.check_client(secret.is_some())?,
            AccountSecret::Certified(..) if self.token_url.is_some() => {
                return Err(Reason::InvalidCertificate.into());
            }
            // It would be replaced by the first token.
            _ if self.token_url.is_some() => return Err(Reason::InvalidClient.into()),
            _ => secret.check_use(self.header(), self.sender.is_some())?,
        }
        secret.check()
    }

    /// Checks how the tokens are got.
    fn check_client(&self, has_secret: bool) -> Result<(), Reason> {
        let token_url = self.token_url.as_ref().ok_or(Reason::InvalidOauthUrl)?;
        let is_good = |url: &Url| {
            let is_plain = url.username().is_empty() && url.password().is_none();
            let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
            is_web && is_plain && url.fragment().is_none()
        };
        if !is_good(token_url) || !self.authorize_url.iter().all(is_good) {
            return Err(Reason::InvalidOauthUrl);
        }
        let is_plain = |text: &str, most| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        // Without an owner who authorizes it, nothing but its secret shows who the client is.
        let is_known = has_secret || self.authorize_url.is_some();
        let is_scope = |scope: &String| is_plain(scope, 1_000);
        if !is_known || !self.scope.iter().all(is_scope) || !is_plain(self.client_id(), 500) {
            return Err(Reason::InvalidClient);
        }
        Ok(())
    }
}
