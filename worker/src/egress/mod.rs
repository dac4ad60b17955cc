//! Egress: sends the requests that actions have rendered, to allowed hosts only.
//!
//! Whether a host is allowed is decided after its name is resolved, by the same addresses that are
//! then connected to. A proxy of the settings resolves names itself: then only addresses are
//! checked, and that names are reached as public ones are. Redirects are not followed, and proxies
//! from the environment are not used.

mod addresses;
mod allow_list;
mod answer;
mod mail;
mod smtp;
mod way_out;

use std::{collections::HashMap, error::Error, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use letterbox_common::{cache::Cache, credential, fail_point::fails, sealing::Secret};
use letterbox_traces::TRACEPARENT;
use letterbox_workflow::actions::{BodyType, MAX_ANSWER, Request};
use reqwest::{
    Identity, Method,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use sha2::{Digest, Sha256};
use url::{Host, Url};
use uuid::Uuid;

use self::{
    addresses::{AllowedAddresses, ForbiddenAddress},
    answer::{LATE, MIN_SECRET, receive},
    mail::MailEgress,
};
pub(crate) use self::{
    allow_list::AllowList,
    answer::{EgressError, HttpResponse, hide},
    way_out::{EGRESS_PROXY, WayOut},
};

/// Clients that show certificates are kept so long, and so many on each way.
const CERTIFIED_FOR: Duration = Duration::from_secs(3600);
const MAX_CERTIFIED: usize = 100;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Sends requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Egress {
    /// For https on these ports: public addresses, and the networks allowed on the port.
    public: HashMap<u16, Way>,
    /// For these ports: the networks allowed on the port.
    allowed: HashMap<u16, Way>,
    /// For every other port: the networks allowed on any port.
    others: Way,
    mail: MailEgress,
}

/// A client, and the addresses that it may reach.
#[derive(Clone)]
struct Way {
    client: reqwest::Client,
    allowed: Arc<AllowedAddresses>,
    /// Clients that show certificates, by the SHA-256 of what they show: no copy of a private key
    /// is kept for the look-up.
    certified: Cache<[u8; 32], reqwest::Client>,
    out: WayOut,
}

/// Ports on which public addresses are reached by https.
const PUBLIC_PORTS: [u16; 2] = [443, 8443];

/// The header that authorizes a request, decrypted only for its use.
pub(crate) struct Credential {
    header: String,
    value: Secret,
    /// What the server is shown, in PEM.
    certificate: Option<Secret>,
}

impl Credential {
    /// The credential that was sealed for this header.
    pub(crate) fn of(header: &str, opened: &Secret) -> Self {
        let (value, certificate) = credential::parts(opened);
        Self {
            header: header.to_owned(),
            value,
            certificate,
        }
    }

    /// What no answer may show: the value and its words, and a name with a password, also as they
    /// are before they are encoded, and as some write JSON.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let value = String::from_utf8_lossy(self.value.expose()).into_owned();
        let decoded = value.strip_prefix("Basic ").unwrap_or_default();
        let decoded = BASE64_STANDARD.decode(decoded).unwrap_or_default();
        let pair = String::from_utf8_lossy(&decoded).into_owned();
        let password = pair
            .split_once(':')
            .map(|(_, password)| password.to_owned());
        let last = value.rsplit(' ').next().unwrap_or_default().to_owned();
        let words = value.split(' ').filter(|word| word.len() >= MIN_SECRET);
        let mut secrets: Vec<_> = words.map(str::to_owned).collect();
        secrets.extend([value.clone(), pair, last].into_iter().chain(password));
        let escaped: Vec<_> = secrets.iter().map(|one| one.replace('/', "\\/")).collect();
        secrets.extend(escaped);
        // The longest first: a part of one would leave the rest of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets
    }
}

impl Egress {
    /// Creates an egress that reaches public addresses by https, and `allowed` networks by http or
    /// https. Each port has its own client, because the resolver doesn't know the port.
    pub(crate) fn new(allowed: &AllowList, out: &WayOut) -> Result<Self, reqwest::Error> {
        // Fails only if a provider is already installed, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let way = |networks, public| Way::new(AllowedAddresses { networks, public }, out);
        let public = PUBLIC_PORTS.map(|port| Ok((port, way(allowed.at(port), true)?)));
        let ports = allowed.ports().into_iter();
        let by_port = ports.map(|port| Ok((port, way(allowed.at(port), false)?)));
        Ok(Self {
            public: public.into_iter().collect::<Result<_, reqwest::Error>>()?,
            allowed: by_port.collect::<Result<_, reqwest::Error>>()?,
            others: way(allowed.at_any_port(), false)?,
            mail: MailEgress::new(allowed.clone(), out),
        })
    }

    /// Selects the client for a URL. Public addresses are reached by https only, so that no
    /// credential leaves in clear text.
    fn way_to(&self, url: &Url) -> &Way {
        let port = url.port_or_known_default().unwrap_or_default();
        let public = self.public.get(&port).filter(|_| url.scheme() == "https");
        let allowed = || self.allowed.get(&port);
        public.or_else(allowed).unwrap_or(&self.others)
    }

    /// Sends a request once, which takes `timeout` at most, with its trace context if it is traced.
    /// Reads `most` bytes of the answer.
    pub(crate) async fn send(
        &self,
        request: &Request,
        credential: &Credential,
        key: Uuid,
        timeout: Duration,
        most: usize,
        traceparent: Option<String>,
    ) -> Result<HttpResponse, EgressError> {
        if request.body_type == BodyType::Mail {
            let sending = self.mail.send(request, &credential.value, key, timeout);
            return exchange("request", sending).await;
        }
        let invalid = |what: &str| EgressError::Refused(format!("invalid {what}"));
        let url: Url = request.url.parse().map_err(|_| invalid("URL"))?;
        let way = self.way_to(&url);
        way.check_host(&url)?;
        let method =
            Method::from_bytes(request.method.as_bytes()).map_err(|_| invalid("method"))?;
        let mut headers = headers(request, credential, key).ok_or_else(|| invalid("header"))?;
        if let Some(Ok(context)) = traceparent.map(HeaderValue::try_from) {
            headers.entry(TRACEPARENT).or_insert(context);
        }
        let client = way.client_with(credential.certificate.as_ref())?;
        let sending = client.request(method, url).headers(headers);
        let mut sending = sending.timeout(timeout);
        if let Some(body) = &request.body {
            sending = sending
                .header(CONTENT_TYPE, request.body_type.as_str())
                .body(body.clone());
        }
        exchange("request", answered(sending.send(), most)).await
    }

    /// Sends a request as it is, once.
    pub(crate) async fn send_as_is(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<HttpResponse, EgressError> {
        let request = reqwest::Request::try_from(request);
        let request = request.map_err(|_| EgressError::Refused("invalid URL".to_owned()))?;
        let way = self.way_to(request.url());
        way.check_host(request.url())?;
        let sending = way.client.execute(request);
        exchange("exchange", answered(sending, MAX_ANSWER)).await
    }
}

async fn answered(
    sending: impl Future<Output = reqwest::Result<reqwest::Response>>,
    most: usize,
) -> Result<HttpResponse, EgressError> {
    let response = sending.await.map_err(|error| explain(&error))?;
    Ok(receive(response, most).await)
}

async fn exchange(
    step: &str,
    sending: impl Future<Output = Result<HttpResponse, EgressError>>,
) -> Result<HttpResponse, EgressError> {
    if fails(&[step, "before"]).await {
        return Err(EgressError::NotSent("a fail point".to_owned()));
    }
    let response = sending.await?;
    if fails(&[step, "after"]).await {
        return Err(EgressError::Failed("a fail point".to_owned()));
    }
    Ok(response)
}

impl Way {
    fn new(allowed: AllowedAddresses, out: &WayOut) -> Result<Self, reqwest::Error> {
        let allowed = Arc::new(allowed);
        Ok(Self {
            client: out.client(&allowed).build()?,
            allowed,
            certified: Cache::new(MAX_CERTIFIED, CERTIFIED_FOR),
            out: out.clone(),
        })
    }

    /// The client that shows this certificate, if one is given.
    fn client_with(&self, certificate: Option<&Secret>) -> Result<reqwest::Client, EgressError> {
        let Some(pem) = certificate.map(Secret::expose) else {
            return Ok(self.client.clone());
        };
        let sha256 = Sha256::digest(pem).into();
        if let Some(known) = self.certified.get(&sha256) {
            return Ok(known);
        }
        let made = Identity::from_pem(pem)
            .and_then(|identity| self.out.client(&self.allowed).identity(identity).build())
            .map_err(|_| EgressError::Refused("its client certificate can't be used".to_owned()))?;
        self.certified.insert(sha256, made.clone());
        Ok(made)
    }

    /// Checks what doesn't pass through the resolver: an address written in the URL, and a name
    /// that a proxy resolves.
    fn check_host(&self, url: &Url) -> Result<(), EgressError> {
        let checked = match url.host() {
            Some(Host::Ipv4(address)) => self.allowed.check(address.into()),
            Some(Host::Ipv6(address)) => self.allowed.check(address.into()),
            Some(Host::Domain(name)) if self.out.is_by_proxy() => self.allowed.check_name(name),
            Some(Host::Domain(_)) => Ok(()),
            None => {
                return Err(EgressError::Refused(
                    "invalid URL: it has no host".to_owned(),
                ));
            }
        };
        checked.map_err(|error| EgressError::Refused(error.to_string()))
    }
}

fn headers(request: &Request, credential: &Credential, key: Uuid) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        headers.append(HeaderName::try_from(name).ok()?, value);
    }
    let value = credential.value.expose();
    // Some servers want no credential.
    if !value.is_empty() {
        let mut value = HeaderValue::from_bytes(value).ok()?;
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(&credential.header).ok()?, value);
    }
    headers.insert(
        IDEMPOTENCY_KEY,
        HeaderValue::try_from(key.to_string()).ok()?,
    );
    Some(headers)
}

/// The chain of causes, without the URL, which contains submitted text.
fn explain(error: &reqwest::Error) -> EgressError {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let causes: Vec<&dyn Error> = causes.collect();
    if let Some(refused) = causes
        .iter()
        .find_map(|cause| cause.downcast_ref::<ForbiddenAddress>())
    {
        return EgressError::Refused(refused.to_string());
    }
    let what = if error.is_timeout() {
        LATE
    } else if error.is_connect() {
        "no connection"
    } else {
        "the exchange failed"
    };
    let causes = causes.iter().map(ToString::to_string);
    let chain: Vec<String> = std::iter::once(what.to_owned()).chain(causes).collect();
    if error.is_connect() {
        EgressError::NotSent(chain.join(": "))
    } else {
        EgressError::Failed(chain.join(": "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server may quote what it was sent, in its own way, and the limit may cut that in two.
    #[test]
    fn no_answer_shows_a_credential() {
        let pair = "ada:se/cret\u{ff}\u{ff}\u{ff}";
        let encoded = BASE64_STANDARD.encode(pair);
        let basic = format!("Basic {encoded}");
        let in_json = format!("<{}>", encoded.replace('/', "\\/"));
        let (_, password) = pair.split_once(':').unwrap();
        let bearer = "Bearer to/ken-0123456789";
        let long = format!("Bearer {}", "x".repeat(5_000));
        let short = "a short 12345678 one";
        let hidden = "<[hidden]>";
        for (value, answer, shown) in [
            (basic.as_str(), format!("<{basic}>"), hidden),
            (&basic, in_json, hidden),
            (&basic, format!("<{pair}>"), hidden),
            (&basic, format!("<{password}>"), hidden),
            (bearer, format!("<{bearer}>"), hidden),
            (bearer, "<to\\/ken-0123456789>".to_owned(), hidden),
            (bearer, "<to/ken-01234".to_owned(), "<"),
            (&long, format!("<{long}>"), hidden),
            (short, "<12345678>".to_owned(), hidden),
            ("", "<>".to_owned(), "<>"),
        ] {
            let secret = Secret::new(value.as_bytes().to_vec());
            let secrets = Credential::of("authorization", &secret).secrets();
            let told = HttpResponse::of_words(500, answer).beginning(&secrets);
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            assert_eq!(told["body"], shown, "{value}");
        }
    }
}
