//! Signing in with an OpenID Connect issuer: the authorization code flow with PKCE. The state of a
//! sign-in is in a cookie of the browser until the callback, so that nobody ends up in a session
//! that someone else began.

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Limited};
use letterbox_common::process::{
    client_address::ClientAddress,
    networks::is_confidential,
    secret_setting::{SecretSetting, SecretText},
    shares::{Share, Shares},
};
use letterbox_operator::Vouched;
use openidconnect::{
    AuthenticationFlow, AuthorizationCode, ClientId, ClientSecret, CsrfToken, HttpRequest,
    HttpResponse, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
    core::{CoreClient, CoreIdToken, CoreIdTokenVerifier, CoreProviderMetadata, CoreResponseType},
};
use parking_lot::Mutex as SyncMutex;
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;

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
    Untrue(String),
}

/// The issuer that vouches for people.
pub(crate) struct Oidc {
    issuer: IssuerUrl,
    client: ClientId,
    secret: ClientSecret,
    back: RedirectUrl,
    http: reqwest::Client,
    known: Mutex<Option<(Instant, CoreProviderMetadata)>>,
    attempts: Attempts,
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

/// A sign-in that has begun.
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
        secret: &SecretText,
        desk: &str,
    ) -> Result<Self, String> {
        // Fails only if a provider is already installed, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let issuer = IssuerUrl::new(issuer.to_owned()).map_err(|error| error.to_string())?;
        let url = issuer.url();
        if !is_confidential(url.scheme(), url.host_str().unwrap_or_default()) {
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
            issuer,
            client: ClientId::new(client.to_owned()),
            secret: ClientSecret::new(secret.expose().to_owned()),
            back: back.map_err(|error| error.to_string())?,
            http: http.map_err(|error| error.to_string())?,
            known: Mutex::default(),
            attempts: Attempts {
                clients: Shares::of(ATTEMPTS),
                failed: SyncMutex::default(),
            },
        })
    }

    /// The host of the issuer, for people.
    pub(crate) fn name(&self) -> String {
        let host = self.issuer.url().host_str();
        host.unwrap_or_default().to_owned()
    }

    /// Begins a sign-in.
    pub(crate) async fn begin(&self) -> Result<Begun, OidcError> {
        let client = CoreClient::from_provider_metadata(
            self.metadata().await?,
            self.client.clone(),
            Some(self.secret.clone()),
        );
        let client = client.set_redirect_uri(self.back.clone());
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let (to, state, nonce) = client
            .authorize_url(
                AuthenticationFlow::<CoreResponseType>::AuthorizationCode,
                CsrfToken::new_random,
                Nonce::new_random,
            )
            .add_scope(Scope::new("email".to_owned()))
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
        let client = CoreClient::from_provider_metadata(
            self.metadata().await?,
            self.client.clone(),
            Some(self.secret.clone()),
        );
        let client = client.set_redirect_uri(self.back.clone());
        let untrue = |error: String| OidcError::Untrue(error);
        let redeeming = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .map_err(|error| untrue(error.to_string()))?
            .set_pkce_verifier(PkceCodeVerifier::new(verifier.to_owned()));
        let ask = self.asking();
        let answer = redeeming.request_async(&ask).await;
        let answer = answer.map_err(|error| OidcError::Refused(error.to_string()))?;
        let token = answer.extra_fields().id_token();
        let token = token.ok_or_else(|| untrue("no ID token".to_owned()))?;
        vouched(&self.issuer, token, &client.id_token_verifier(), nonce)
    }

    /// The issuer's metadata.
    async fn metadata(&self) -> Result<CoreProviderMetadata, OidcError> {
        let mut known = self.known.lock().await;
        if let Some((since, metadata)) = &*known
            && since.elapsed() < KNOWN_FOR
        {
            return Ok(metadata.clone());
        }
        let ask = self.asking();
        let metadata = CoreProviderMetadata::discover_async(self.issuer.clone(), &ask).await;
        let metadata = metadata.map_err(|error| OidcError::Away(error.to_string()))?;
        *known = Some((Instant::now(), metadata.clone()));
        Ok(metadata)
    }

    /// Asks the issuer something.
    fn asking(&self) -> impl Fn(HttpRequest) -> Answering + Send + Sync + use<> {
        let http = self.http.clone();
        move |request| Box::pin(ask(http.clone(), request))
    }
}

/// The person that a valid token identifies.
pub(crate) fn vouched(
    issuer: &IssuerUrl,
    token: &CoreIdToken,
    verifier: &CoreIdTokenVerifier<'_>,
    nonce: &str,
) -> Result<Vouched, OidcError> {
    let claims = token.claims(verifier, &Nonce::new(nonce.to_owned()));
    let claims = claims.map_err(|error| OidcError::Untrue(error.to_string()))?;
    let email = claims
        .email()
        .filter(|_| claims.email_verified() == Some(true));
    Ok(Vouched {
        issuer: issuer.to_string(),
        subject: claims.subject().to_string(),
        email: email.map(|email| email.to_string()),
    })
}

type Answering = Pin<Box<dyn Future<Output = Result<HttpResponse, reqwest::Error>> + Send>>;

async fn ask(http: reqwest::Client, request: HttpRequest) -> Result<HttpResponse, reqwest::Error> {
    let request = reqwest::Request::try_from(request)?;
    let response: hyper::Response<reqwest::Body> = http.execute(request).await?.into();
    let (head, body) = response.into_parts();
    // A longer text is cut off, and doesn't parse.
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    let body = body
        .map(|body| body.to_bytes().to_vec())
        .unwrap_or_default();
    Ok(HttpResponse::from_parts(head, body))
}
