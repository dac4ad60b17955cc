//! Egress: sends the requests that actions have rendered, to allowed hosts only.
//!
//! Whether a host is allowed is decided after its name is resolved, by the same addresses that are
//! then connected to. Redirects are not followed, proxies from the environment are not used, and
//! answers are read up to a limit, as UTF-8 whatever charset they came in.

mod addresses;
mod allow_list;

use std::{
    collections::HashMap,
    error::Error,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use encoding_rs::{Encoding, UTF_8};
use letterbox_common::{fail_point::fails, sealing::Secret};
use letterbox_traces::TRACEPARENT;
use letterbox_workflow::actions::{MAX_ANSWER, Request, TIMEOUT};
use reqwest::{
    Method,
    dns::{Addrs, Name, Resolve, Resolving},
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER},
    redirect,
};
use url::{Host, Url};
use uuid::Uuid;

use self::addresses::{AllowedAddresses, ForbiddenAddress};
pub(crate) use self::allow_list::AllowList;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
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
}

/// A client, and the addresses that it may reach.
#[derive(Clone)]
struct Way {
    client: reqwest::Client,
    allowed: Arc<AllowedAddresses>,
}

/// Ports on which public addresses are reached by https.
const PUBLIC_PORTS: [u16; 2] = [443, 8443];

/// The header that authorizes a request, decrypted only for its use.
pub(crate) struct Credential {
    pub(crate) header: String,
    pub(crate) value: Secret,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// How long the answer asks to wait before another attempt.
    pub(crate) retry_after: Option<Duration>,
    /// The server to which it redirects.
    pub(crate) location: Option<String>,
    /// At most the first [`MAX_ANSWER`] bytes of the body.
    pub(crate) body: Vec<u8>,
    /// False when the connection broke before the end of the body.
    pub(crate) is_complete: bool,
}

/// Why there is no answer. Never contains a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EgressError {
    /// Nothing was sent, and another attempt would end the same way.
    #[error("{0}")]
    Refused(String),
    /// Nothing was sent, but another attempt may be.
    #[error("{0}")]
    NotSent(String),
    /// The network or the other side failed. Whether the request arrived is unknown.
    #[error("{0}")]
    Failed(String),
}

impl Egress {
    /// Creates an egress that reaches public addresses by https, and `allowed` networks by http or
    /// https. Each port has its own client, because the resolver doesn't know the port.
    pub(crate) fn new(allowed: &AllowList) -> Result<Self, reqwest::Error> {
        // Fails only if a provider is already installed, which is just as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let way = |networks, public| Way::new(AllowedAddresses { networks, public });
        let public = PUBLIC_PORTS.map(|port| Ok((port, way(allowed.at(port), true)?)));
        let ports = allowed.ports().into_iter();
        let by_port = ports.map(|port| Ok((port, way(allowed.at(port), false)?)));
        Ok(Self {
            public: public.into_iter().collect::<Result<_, reqwest::Error>>()?,
            allowed: by_port.collect::<Result<_, reqwest::Error>>()?,
            others: way(allowed.at_any_port(), false)?,
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
    pub(crate) async fn send(
        &self,
        request: &Request,
        credential: &Credential,
        key: Uuid,
        timeout: Duration,
        traceparent: Option<String>,
    ) -> Result<HttpResponse, EgressError> {
        let invalid = |what: &str| EgressError::Refused(format!("invalid {what}"));
        let url: Url = request.url.parse().map_err(|_| invalid("URL"))?;
        let way = self.way_to(&url);
        way.check_literal(&url)?;
        let method =
            Method::from_bytes(request.method.as_bytes()).map_err(|_| invalid("method"))?;
        let mut headers = headers(request, credential, key).ok_or_else(|| invalid("header"))?;
        if let Some(Ok(context)) = traceparent.map(HeaderValue::try_from) {
            headers.entry(TRACEPARENT).or_insert(context);
        }
        let mut sending = way.client.request(method, url).headers(headers);
        sending = sending.timeout(timeout);
        if let Some(body) = &request.body {
            sending = sending
                .header(CONTENT_TYPE, request.body_type.as_str())
                .body(body.clone());
        }
        exchange("request", sending.send()).await
    }
}

impl Egress {
    /// Sends a request as it is, once.
    pub(crate) async fn send_as_is(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<HttpResponse, EgressError> {
        let request = reqwest::Request::try_from(request);
        let request = request.map_err(|_| EgressError::Refused("invalid URL".to_owned()))?;
        let way = self.way_to(request.url());
        way.check_literal(request.url())?;
        exchange("exchange", way.client.execute(request)).await
    }
}

async fn exchange(
    step: &str,
    sending: impl Future<Output = reqwest::Result<reqwest::Response>>,
) -> Result<HttpResponse, EgressError> {
    if fails(&[step, "before"]).await {
        return Err(EgressError::NotSent("a fail point".to_owned()));
    }
    let response = receive(sending.await.map_err(|error| explain(&error))?).await;
    if fails(&[step, "after"]).await {
        return Err(EgressError::Failed("a fail point".to_owned()));
    }
    Ok(response)
}

impl Way {
    fn new(allowed: AllowedAddresses) -> Result<Self, reqwest::Error> {
        let allowed = Arc::new(allowed);
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

    /// Checks an address written in the URL, which doesn't pass through the resolver.
    fn check_literal(&self, url: &Url) -> Result<(), EgressError> {
        let checked = match url.host() {
            Some(Host::Ipv4(address)) => self.allowed.check(address.into()),
            Some(Host::Ipv6(address)) => self.allowed.check(address.into()),
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

/// Reads an answer up to the limit. A truncated body is not an error: the status has arrived.
async fn receive(mut response: reqwest::Response) -> HttpResponse {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers(), SystemTime::now());
    let location = response.headers().get(LOCATION).map(origin);
    let charset = charset(response.headers());
    let mut body = Vec::new();
    let mut is_complete = true;
    while body.len() < MAX_ANSWER {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = MAX_ANSWER - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            }
            Ok(None) => break,
            Err(error) => {
                tracing::debug!(error = %explain(&error), "could not read all of the answer");
                is_complete = false;
                break;
            }
        }
    }
    if charset != UTF_8 {
        // Three bytes of UTF-8 may come of one.
        body = charset.decode(&body).0.into_owned().into_bytes();
        body.truncate(MAX_ANSWER);
    }
    HttpResponse {
        status,
        retry_after,
        location,
        body,
        is_complete,
    }
}

fn headers(request: &Request, credential: &Credential, key: Uuid) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        headers.append(HeaderName::try_from(name).ok()?, value);
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

/// The server that `Location` names. Nothing more of it is told: it may have values of the request.
fn origin(location: &HeaderValue) -> String {
    let url = location
        .to_str()
        .ok()
        .and_then(|text| Url::parse(text).ok());
    match url.filter(Url::has_host) {
        Some(url) => url.origin().ascii_serialization(),
        None => "another path".to_owned(),
    }
}

/// The charset that `Content-Type` names; UTF-8 if it names none that is known.
fn charset(headers: &HeaderMap) -> &'static Encoding {
    let given = headers
        .get(CONTENT_TYPE)
        .and_then(|given| given.to_str().ok());
    let mut parameters = given.unwrap_or_default().split(';').skip(1);
    let named = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_it = name.trim().eq_ignore_ascii_case("charset");
        is_it.then(|| value.trim().trim_matches('"'))
    });
    let known = named.and_then(|name| Encoding::for_label(name.as_bytes()));
    known.unwrap_or(UTF_8)
}

/// Parses `Retry-After`: seconds, also with a fraction, or a date. `None` for a date in the past.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => httpdate::parse_http_date(text)
            .ok()?
            .duration_since(now)
            .ok(),
    }
}

/// The chain of causes, without the URL, which contains submitted text.
fn explain(error: &reqwest::Error) -> EgressError {
    let mut causes: Vec<&dyn Error> = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        causes.push(error);
        cause = error.source();
    }
    if let Some(refused) = causes
        .iter()
        .find_map(|cause| cause.downcast_ref::<ForbiddenAddress>())
    {
        return EgressError::Refused(refused.to_string());
    }
    let what = if error.is_timeout() {
        "no answer in time"
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

/// Resolves names, and refuses a name if any of its addresses is not allowed.
struct Resolver(Arc<AllowedAddresses>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One forbidden address makes the whole answer suspect.
            for address in &found {
                allowed.check(address.ip())?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_asks_for_patience_in_seconds_or_until_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let given = |text: &'static str| {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(text))];
            retry_after(&headers.into_iter().collect(), now).map(|after| after.as_secs_f64())
        };
        for (text, expected) in [
            ("120", Some(120.0)),
            (" 7 ", Some(7.0)),
            ("1.5", Some(1.5)),
            ("Sun, 09 Sep 2001 01:48:40 GMT", Some(120.0)),
            ("Sunday, 09-Sep-01 01:48:40 GMT", Some(120.0)),
            ("Sun, 09 Sep 2001 01:46:39 GMT", None),
            ("-1", None),
            ("NaN", None),
            ("1e99", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(given(text), expected, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn a_redirect_names_its_server_alone() {
        for (given, expected) in [
            ("https://new.example/people/Ada?x=y", "https://new.example"),
            ("http://new.example:8080", "http://new.example:8080"),
            ("/people/Ada", "another path"),
            ("mailto:ada@example.com", "another path"),
        ] {
            assert_eq!(origin(&HeaderValue::from_static(given)), expected);
        }
    }

    #[test]
    fn an_answer_names_its_charset() {
        for (given, expected) in [
            ("application/json", "UTF-8"),
            ("application/json; charset=utf-8", "UTF-8"),
            ("text/plain; x=y; Charset=\"ISO-8859-1\"", "windows-1252"),
            ("text/plain;charset=shift_jis", "Shift_JIS"),
            ("text/plain;charset=klingon", "UTF-8"),
        ] {
            let headers = [(CONTENT_TYPE, HeaderValue::from_static(given))];
            let charset = charset(&headers.into_iter().collect());
            assert_eq!(charset.name(), expected, "{given}");
        }
    }
}
