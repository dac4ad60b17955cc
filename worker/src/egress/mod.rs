//! The way out: sends what actions have rendered, to hosts on the open internet only.
//!
//! Where a request may go is decided after its name has been resolved, by the very addresses that
//! are then connected to. Redirects are not followed, proxies of the environment not used, and
//! answers read up to a bound.

mod addresses;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use letterbox_common::{process::networks::Networks, sealing::Secret};
use reqwest::{
    Method,
    dns::{Addrs, Name, Resolve, Resolving},
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
    redirect,
};
use url::{Host, Url};
use uuid::Uuid;

use self::addresses::Allowed;
use crate::actions::http_request::Request;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From the first byte sent to the last one read.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of an answer that are read; more is no error, and is thrown away.
const ANSWER_BYTES: usize = 64 * 1024;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub struct Egress {
    client: reqwest::Client,
    allowed: Arc<Allowed>,
}

/// The header that shows a request's right, opened for the moment of its use.
pub struct Credential {
    pub header: String,
    pub value: Secret,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// What the answer asks to wait for before another attempt.
    pub retry_after: Option<Duration>,
    /// At most the first 64 KiB; what came of it before it broke off.
    pub body: Vec<u8>,
    /// Whether the body broke off.
    pub is_broken: bool,
}

/// Why there is no answer. Says what, and never quotes a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Another attempt would go wrong as well.
    #[error("{0}")]
    Refused(String),
    /// The network, or the other side; whether the request arrived is unknown.
    #[error("{0}")]
    Failed(String),
}

impl Egress {
    /// A way out that also leads to `allowed` networks, private or not.
    ///
    /// # Errors
    /// When TLS can't be set up.
    pub fn new(allowed: Networks) -> Result<Self, reqwest::Error> {
        // Installed once; a second time is as good.
        let _ = rustls::crypto::CryptoProvider::install_default(
            rustls::crypto::ring::default_provider(),
        );
        let allowed = Arc::new(Allowed(allowed));
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .dns_resolver(Arc::new(Resolver(allowed.clone())))
            .user_agent(concat!("Letterbox/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, allowed })
    }

    /// Sends a request once.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(
        &self,
        request: &Request,
        credential: &Credential,
        key: Uuid,
    ) -> Result<Answer, SendError> {
        let refused = |what: &str| SendError::Refused(what.to_owned());
        let url: Url = request
            .url
            .parse()
            .map_err(|_| refused("the address is none"))?;
        // Addresses are no names: they pass by the resolver.
        let literal = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            Some(Host::Domain(_)) => None,
            None => return Err(refused("the address has no host")),
        };
        if literal.is_some_and(|address| !self.allowed.contains(address)) {
            return Err(SendError::Refused(addresses::REFUSED.to_owned()));
        }
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|_| refused("the method is none"))?;
        let headers =
            headers(request, credential, key).ok_or_else(|| refused("a header can't be sent"))?;
        let mut sending = self.client.request(method, url).headers(headers);
        if let Some(body) = &request.body {
            sending = sending
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let mut response = sending.send().await.map_err(|error| explain(&error))?;
        let (status, retry_after) = (response.status().as_u16(), retry_after(response.headers()));
        let (mut body, mut is_broken) = (Vec::new(), false);
        while body.len() < ANSWER_BYTES {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES - body.len())])
                }
                Ok(None) => break,
                Err(error) => {
                    // The status is what counts: the request has been answered.
                    tracing::debug!(error = %explain(&error), "an answer broke off");
                    is_broken = true;
                    break;
                }
            }
        }
        Ok(Answer {
            status,
            retry_after,
            body,
            is_broken,
        })
    }
}

fn headers(request: &Request, credential: &Credential, key: Uuid) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        headers.append(
            HeaderName::try_from(name).ok()?,
            HeaderValue::from_bytes(value.as_bytes()).ok()?,
        );
    }
    let mut value = HeaderValue::from_bytes(credential.value.expose()).ok()?;
    value.set_sensitive(true);
    headers.insert(HeaderName::try_from(&credential.header).ok()?, value);
    headers.insert(
        IDEMPOTENCY_KEY,
        HeaderValue::try_from(key.to_string()).ok()?,
    );
    Some(headers)
}

/// Seconds only: the other form, a date, is for caches and rarely seen.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
        .map(Duration::from_secs)
}

/// The whole chain of causes, without the URL, which holds what a submitter wrote.
fn explain(error: &reqwest::Error) -> SendError {
    let chain = std::iter::successors(std::error::Error::source(error), |error| error.source());
    let causes: Vec<String> = chain.map(ToString::to_string).collect();
    if causes
        .iter()
        .any(|cause| cause.contains(addresses::REFUSED))
    {
        return SendError::Refused(addresses::REFUSED.to_owned());
    }
    let what = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the exchange broke"
    };
    SendError::Failed(
        std::iter::once(what.to_owned())
            .chain(causes)
            .collect::<Vec<_>>()
            .join(": "),
    )
}

/// Resolves names, and lets only allowed addresses through.
struct Resolver(Arc<Allowed>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One address that leads inside is enough to trust none of them.
            if found.iter().any(|address| !allowed.contains(address.ip())) {
                return Err(addresses::REFUSED.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
