//! Signing in with an OpenID Connect issuer: the authorization code flow with PKCE. The state of a
//! sign-in is in a cookie of the browser until the callback, so that nobody ends up in a session
//! that someone else began.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use letterbox_common::process::{
    client_address::ClientAddress,
    networks::is_confidential,
    secret_setting::{SecretSetting, SecretText},
    shares::{Share, Shares},
};
use letterbox_operator::Vouched;
use oauth2::{
    AuthUrl, ClientId, CsrfToken, PkceCodeChallenge, RedirectUrl, Scope,
    basic::{BasicClient, BasicErrorResponse},
};
use parking_lot::Mutex as SyncMutex;
use reqwest::{RequestBuilder, header::ACCEPT};
use serde::{Deserialize, de::DeserializeOwned};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};

use crate::id_token::{Expected, Keys};

/// The secret of the desk at the issuer.
pub(crate) const CLIENT_SECRET: SecretSetting = SecretSetting {
    name: "LETTERBOX_OIDC_CLIENT_SECRET",
    about: "Secret of the desk at the issuer of LETTERBOX_OIDC_ISSUER",
};

/// The path to which the issuer sends people back.
pub(crate) const CALLBACK: &str = "/sign-in/oidc/callback";
/// How long what the issuer says of itself, its keys among it, is relied on.
const KNOWN_FOR: Duration = Duration::from_secs(300);
/// Metadata this fresh is used although a sign-in has failed: strangers can make sign-ins fail.
const NEW_FOR: Duration = Duration::from_secs(60);
/// Sign-ins of one client that are under way, or have failed within the last minute. A client may
/// be the address of a whole company, or of a carrier's customers.
const ATTEMPTS: usize = 30;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer of the issuer.
const MAX_ANSWER: usize = 1 << 20;

/// Why a sign-in failed. The browser isn't told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OidcError {
    #[error("the issuer can't be asked: {0}")]
    Away(String),
    #[error("the callback belongs to another browser")]
    NotBegun,
    #[error("too many sign-ins of this client have failed within a minute")]
    TooMany,
    #[error("sign-in refused by the issuer: {0}")]
    Refused(String),
    #[error("invalid ID token: {0}")]
    Untrue(&'static str),
}

/// The issuer that vouches for people.
pub(crate) struct Oidc {
    /// As it calls itself.
    issuer: String,
    /// The host of the issuer, for people.
    pub(crate) host: String,
    client: String,
    secret: SecretText,
    back: RedirectUrl,
    http: reqwest::Client,
    known: Mutex<Option<(Instant, Metadata)>>,
    attempts: Attempts,
}

/// What the issuer says of itself, and its keys.
#[derive(Clone, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: AuthUrl,
    token_endpoint: Url,
    jwks_uri: Url,
    #[serde(skip)]
    keys: Keys,
}

/// The answer to a code.
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// The attempts of clients: what each of them has the issuer asked is bounded.
struct Attempts {
    clients: Shares<ClientAddress>,
    failed: SyncMutex<Vec<(Instant, Share<ClientAddress>)>>,
}

impl Attempts {
    fn begin(&self, client: ClientAddress) -> Option<Share<ClientAddress>> {
        let mut failed = self.failed.lock();
        failed.retain(|(when, _)| when.elapsed() < NEW_FOR);
        self.clients.take(client)
    }

    /// It counts for a while longer.
    fn fail(&self, attempt: Share<ClientAddress>) {
        let mut failed = self.failed.lock();
        failed.push((Instant::now(), attempt));
    }
}

/// A sign-in, or an authorization, that has begun.
pub(crate) struct Begun {
    /// Where the browser is sent.
    pub(crate) to: String,
    /// The state that the browser keeps until the callback.
    pub(crate) kept: String,
}

impl Oidc {
    /// Sends no request yet.
    ///
    /// # Errors
    /// When the issuer or the desk's address is no URL, or others could read what the issuer gets.
    pub(crate) fn new(
        issuer: &str,
        client: &str,
        secret: SecretText,
        desk: &str,
    ) -> Result<Self, String> {
        // Fails only if a provider is already installed, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = Url::parse(issuer).map_err(|error| error.to_string())?;
        let host = url.host_str().unwrap_or_default().to_owned();
        if !is_confidential(url.scheme(), &host) {
            let problem = "must begin with https://, or on this machine with http://";
            return Err(format!("{problem}: the desk's secret goes there"));
        }
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            // Whatever addresses the issuer names.
            .https_only(url.scheme() == "https")
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let back = RedirectUrl::new(format!("{desk}{CALLBACK}"));
        Ok(Self {
            issuer: issuer.to_owned(),
            host,
            client: client.to_owned(),
            secret,
            back: back.map_err(|error| error.to_string())?,
            http: http.map_err(|error| error.to_string())?,
            known: Mutex::default(),
            attempts: Attempts {
                clients: Shares::of(ATTEMPTS),
                failed: SyncMutex::default(),
            },
        })
    }

    /// Begins a sign-in.
    pub(crate) async fn begin(&self) -> Result<Begun, OidcError> {
        let metadata = self.metadata().await?;
        let client = BasicClient::new(ClientId::new(self.client.clone()))
            .set_auth_uri(metadata.authorization_endpoint)
            .set_redirect_uri(self.back.clone());
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let nonce = CsrfToken::new_random();
        let (to, state) = client
            .authorize_url(CsrfToken::new_random)
            .add_scopes(["openid", "email"].map(|scope| Scope::new(scope.to_owned())))
            .add_extra_param("nonce", nonce.secret())
            .set_pkce_challenge(challenge)
            .url();
        let kept = [state.secret(), nonce.secret(), verifier.secret()];
        Ok(Begun {
            to: to.into(),
            kept: kept.map(String::as_str).join("."),
        })
    }

    /// Completes a sign-in: the person, from the callback's parameters and the state that the
    /// browser kept.
    ///
    /// # Errors
    /// When it was not begun in this browser, the issuer refuses, what it says does not hold, or
    /// too many of this client have failed.
    pub(crate) async fn end(
        &self,
        client: ClientAddress,
        kept: Option<&str>,
        state: Option<&str>,
        code: Option<&str>,
    ) -> Result<Vouched, OidcError> {
        let mut kept = kept.ok_or(OidcError::NotBegun)?.split('.');
        let (Some(begun), Some(nonce), Some(verifier)) = (kept.next(), kept.next(), kept.next())
        else {
            return Err(OidcError::NotBegun);
        };
        let state = state.unwrap_or_default();
        if !bool::from(begun.as_bytes().ct_eq(state.as_bytes())) {
            return Err(OidcError::NotBegun);
        }
        let code = code.ok_or_else(|| OidcError::Refused("no code".to_owned()))?;
        let attempt = self.attempts.begin(client).ok_or(OidcError::TooMany)?;
        let ended = self.redeem(code, nonce, verifier).await;
        if ended.is_err() {
            // An issuer that is away says nothing of who asks.
            if !matches!(ended, Err(OidcError::Away(_))) {
                self.attempts.fail(attempt);
            }
            // Perhaps it has other keys now: they are asked for at the next sign-in.
            let mut known = self.known.lock().await;
            known.take_if(|(since, _)| since.elapsed() > NEW_FOR);
        }
        ended
    }

    async fn redeem(&self, code: &str, nonce: &str, verifier: &str) -> Result<Vouched, OidcError> {
        let metadata = self.metadata().await?;
        // Both are encoded as in a form before they are joined.
        let encoded = |text: &str| -> String {
            let encoded = form_urlencoded::byte_serialize(text.as_bytes());
            encoded.collect()
        };
        let redeeming = self
            .http
            .post(metadata.token_endpoint)
            .basic_auth(encoded(&self.client), Some(encoded(self.secret.expose())))
            .form(&[
                ("grant_type", "authorization_code"),
                ("code", code),
                ("code_verifier", verifier),
                ("redirect_uri", self.back.as_str()),
            ]);
        let tokens = ask::<Tokens>(redeeming).await;
        let tokens = tokens.map_err(|error| OidcError::Refused(error.to_string()))?;
        let expected = Expected {
            issuer: &self.issuer,
            client: &self.client,
            nonce,
            now: Timestamp::now().as_duration().as_secs_f64(),
        };
        let vouched = expected.vouched(&tokens.id_token, &metadata.keys);
        vouched.map_err(OidcError::Untrue)
    }

    /// The issuer's metadata.
    async fn metadata(&self) -> Result<Metadata, OidcError> {
        let mut known = self.known.lock().await;
        if let Some((since, metadata)) = &*known
            && since.elapsed() < KNOWN_FOR
        {
            return Ok(metadata.clone());
        }
        let metadata = self.discover().await;
        let metadata = metadata.map_err(|error| OidcError::Away(error.to_string()))?;
        *known = Some((Instant::now(), metadata.clone()));
        Ok(metadata)
    }

    async fn discover(&self) -> Result<Metadata, Unusable> {
        let issuer = self.issuer.trim_end_matches('/');
        let url = format!("{issuer}/.well-known/openid-configuration");
        let mut metadata: Metadata = ask(self.http.get(url)).await?;
        // Another issuer's word would count as this one's.
        if metadata.issuer != self.issuer {
            return Err(format!("it calls itself {:?}", metadata.issuer).into());
        }
        metadata.keys = ask(self.http.get(metadata.jwks_uri.clone())).await?;
        Ok(metadata)
    }
}

/// Why an answer of the issuer can't be used.
type Unusable = Box<dyn Error + Send + Sync>;

/// Asks the issuer for JSON.
async fn ask<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, Unusable> {
    let asking = request.header(ACCEPT, "application/json").send();
    let mut answer = asking.await?;
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        body.extend_from_slice(&piece);
        if body.len() > MAX_ANSWER {
            return Err("it is too long".into());
        }
    }
    let body = String::from_utf8(body)?;
    let status = answer.status();
    if !status.is_success() {
        let told = serde_json::from_str::<BasicErrorResponse>(&body);
        let told = told.map(|told| told.to_string());
        return Err(told.unwrap_or_else(|_| status.to_string()).into());
    }
    Ok(serde_json::from_str(&body)?)
}
