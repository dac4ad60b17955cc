//! E-mail by the mail servers of accounts. The same guard of addresses as for other requests: what
//! is resolved and checked is what is connected to. Public servers are reached encrypted only, on
//! the ports of submission. Each attempt has the same Message-ID, made of its key.

use std::{net::SocketAddr, str::FromStr, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use letterbox_common::sealing::Secret;
use letterbox_workflow::actions::Request;
use lettre::{
    Address, Message,
    message::{
        Mailbox, MultiPart, SinglePart,
        header::{HeaderName, HeaderValue},
    },
    transport::smtp::{
        self,
        authentication::{Credentials, Mechanism},
        client::{AsyncSmtpConnection, AsyncTokioStream, TlsParameters},
        extension::ClientId,
    },
};
use moka::sync::Cache;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use serde_json::Value;
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::TlsConnector;
use url::{Host, Url};
use uuid::Uuid;

use super::{
    addresses::{AllowedAddresses, ForbiddenAddress},
    allow_list::AllowList,
    answer::{EgressError, HttpResponse, LATE},
    bounded_stream::BoundedStream,
};

/// The ports on which public mail servers are reached: submission by TLS, and by STARTTLS.
const SMTPS: u16 = 465;
const SUBMISSION: u16 = 587;
/// Servers whose TLS parameters are kept.
const MAX_SERVERS: u64 = 100;
/// Maximum characters of what a server says that are told.
const MAX_WORDS: usize = 300;
/// As what an account counts that refuses its name and password.
const UNAUTHORIZED: u16 = 401;
/// How long a server may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// Sends e-mail. Cheap to clone.
#[derive(Clone)]
pub(super) struct MailEgress {
    allowed: AllowList,
    tls: TlsConnector,
    /// For STARTTLS, by host.
    parameters: Cache<String, TlsParameters>,
}

impl MailEgress {
    pub(super) fn new(allowed: AllowList) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = ClientConfig::builder().with_root_certificates(roots);
        Self {
            allowed,
            tls: TlsConnector::from(Arc::new(config.with_no_client_auth())),
            parameters: Cache::new(MAX_SERVERS),
        }
    }

    /// Sends an e-mail once, which takes `timeout` at most.
    pub(super) async fn send(
        &self,
        request: &Request,
        credential: &Secret,
        key: Uuid,
        timeout: Duration,
    ) -> Result<HttpResponse, EgressError> {
        let end = Instant::now() + timeout;
        let sender = sender(request)?;
        let message = message(request, &sender, key)?;
        let connecting = self.connect(request, &sender);
        let connected = timeout_at(end, connecting).await;
        let late = || EgressError::NotSent(LATE.to_owned());
        let mut connection = connected.map_err(|_| late())??;
        let greeting = authenticate(&mut connection, credential, &sender.email);
        if let Err(error) = timeout_at(end, greeting).await.map_err(|_| late())? {
            return refused_credential(&error);
        }
        // From here on nobody knows whether the server has taken it, unless it says so.
        let formatted = message.formatted();
        let sending = connection.send(message.envelope(), &formatted);
        let late = |_| EgressError::Failed(LATE.to_owned());
        let sent = timeout_at(end, sending).await.map_err(late)?;
        let answer = sent.map_err(|error| explain(&error, EgressError::Failed))?;
        let _ = self::timeout(GOODBYE, connection.quit()).await;
        Ok(response(
            answer.code().into(),
            answer.message().collect::<Vec<_>>().join("\n"),
        ))
    }

    /// Connects to the server of a request, encrypted unless its network is allowed by name.
    async fn connect(
        &self,
        request: &Request,
        sender: &Mailbox,
    ) -> Result<AsyncSmtpConnection, EgressError> {
        let url = Url::parse(&request.url).ok();
        let server = url.as_ref().and_then(|url| Some((url, host(url)?)));
        let (url, host) = server.ok_or_else(|| refused("invalid URL"))?;
        let is_smtps = url.scheme() == "smtps";
        let port = url
            .port()
            .unwrap_or(if is_smtps { SMTPS } else { SUBMISSION });
        let (addresses, is_trusted) = self.resolve(&host, port).await?;

        let unreachable = |error| EgressError::NotSent(format!("no connection: {error}"));
        let stream = TcpStream::connect(&*addresses).await.map_err(unreachable)?;
        let peer = stream.peer_addr().map_err(unreachable)?;
        let stream: Box<dyn AsyncTokioStream> = if is_smtps {
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|_| refused("invalid URL: its host is no name"))?;
            let encrypted = self.tls.connect(name, stream).await.map_err(unreachable)?;
            Box::new(BoundedStream::new(encrypted, peer))
        } else {
            Box::new(BoundedStream::new(stream, peer))
        };
        let hello = ClientId::Domain(sender.email.domain().to_owned());
        let not_sent = |error| explain(&error, EgressError::NotSent);
        let connecting = AsyncSmtpConnection::connect_with_transport(stream, &hello);
        let mut connection = connecting.await.map_err(not_sent)?;
        if connection.can_starttls() && !is_smtps {
            let parameters = || TlsParameters::new(host.clone());
            let parameters = self.parameters.try_get_with(host.clone(), parameters);
            let parameters = parameters.map_err(|error| refused(&error.to_string()))?;
            connection
                .starttls(parameters, &hello)
                .await
                .map_err(not_sent)?;
        } else if !is_smtps && !is_trusted {
            let problem = "the mail server offers no encryption (STARTTLS): use smtps://";
            return Err(refused(problem));
        }
        Ok(connection)
    }

    /// The addresses of a host, all of them checked, and whether all are in networks that are
    /// allowed by name.
    async fn resolve(&self, host: &str, port: u16) -> Result<(Vec<SocketAddr>, bool), EgressError> {
        let allowed = AllowedAddresses {
            networks: self.allowed.at(port),
            public: [SMTPS, SUBMISSION].contains(&port),
        };
        let found = lookup_host((host, port)).await;
        let found =
            found.map_err(|error| EgressError::NotSent(format!("no connection: {error}")))?;
        let found: Vec<_> = found.collect();
        for address in &found {
            allowed.check(address.ip()).map_err(|error| match error {
                ForbiddenAddress::Private => refused(&error.to_string()),
                ForbiddenAddress::InClear => refused(
                    "public mail servers are reached on port 465 or 587 only \
                     (LETTERBOX_EGRESS_ALLOW allows networks)",
                ),
            })?;
        }
        let is_named = |address: &SocketAddr| {
            let address = address.ip().to_canonical();
            allowed.networks.contains(address)
        };
        let is_trusted = found.iter().all(is_named);
        Ok((found, is_trusted))
    }
}

/// The host of a URL as it is resolved: of these schemes the parser leaves brackets.
fn host(url: &Url) -> Option<String> {
    Some(match url.host()? {
        Host::Domain(name) => name.to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    })
}

fn refused(problem: &str) -> EgressError {
    EgressError::Refused(problem.to_owned())
}

fn sender(request: &Request) -> Result<Mailbox, EgressError> {
    let mut headers = request.headers.iter();
    let found = headers.find(|(name, _)| name == "From");
    let sender = found.and_then(|(_, value)| value.parse().ok());
    sender.ok_or_else(|| refused("the account has no sender"))
}

/// The e-mail as it is sent. Its structure is made here, of whatever is inserted.
fn message(request: &Request, sender: &Mailbox, key: Uuid) -> Result<Message, EgressError> {
    let domain = sender.email.domain();
    let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
    let mut builder = Message::builder()
        .from(sender.clone())
        .message_id(Some(format!("<{key}@{domain}>")))
        .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()));
    for (name, value) in &request.headers {
        let address = || {
            let address = Address::from_str(value);
            let address = address.map_err(|_| refused("the recorded address is invalid"));
            address.map(|address| Mailbox::new(None, address))
        };
        builder = match name.as_str() {
            "To" => builder.to(address()?),
            "Reply-To" => builder.reply_to(address()?),
            "Subject" => builder.subject(value),
            _ => builder,
        };
    }
    let body = request.body.as_deref().unwrap_or_default();
    let parts: Value = serde_json::from_str(body).unwrap_or_default();
    let part = |kind: &str| parts[kind].as_str().map(str::to_owned);
    let built = match (part("text/plain"), part("text/html")) {
        (Some(text), Some(html)) => {
            builder.multipart(MultiPart::alternative_plain_html(text, html))
        }
        (None, Some(html)) => builder.singlepart(SinglePart::html(html)),
        (text, None) => builder.singlepart(SinglePart::plain(text.unwrap_or_default())),
    };
    built.map_err(|error| refused(&error.to_string()))
}

/// Says who the account is: by name and password, or by its sender's address and a token.
async fn authenticate(
    connection: &mut AsyncSmtpConnection,
    credential: &Secret,
    sender: &Address,
) -> Result<(), smtp::Error> {
    let value = String::from_utf8_lossy(credential.expose()).into_owned();
    let (credentials, mechanisms) = if let Some(pair) = value.strip_prefix("Basic ") {
        let pair = BASE64_STANDARD.decode(pair).unwrap_or_default();
        let pair = String::from_utf8_lossy(&pair).into_owned();
        let (name, password) = pair.split_once(':').unwrap_or_default();
        let credentials = Credentials::new(name.to_owned(), password.to_owned());
        (credentials, &[Mechanism::Plain, Mechanism::Login][..])
    } else if let Some(token) = value.strip_prefix("Bearer ") {
        let credentials = Credentials::new(sender.to_string(), token.to_owned());
        (credentials, &[Mechanism::Xoauth2][..])
    } else {
        // It wants none.
        return Ok(());
    };
    connection.auth(mechanisms, &credentials).await.map(drop)
}

/// What a refused name and password come to: what a 401 does.
fn refused_credential(error: &smtp::Error) -> Result<HttpResponse, EgressError> {
    if error.is_permanent() {
        return Ok(response(UNAUTHORIZED, words(error)));
    }
    Err(explain(error, EgressError::NotSent))
}

/// Why an e-mail was not sent. Without an answer of the server it is as `unknown` says.
fn explain(error: &smtp::Error, unknown: impl FnOnce(String) -> EgressError) -> EgressError {
    let Some(code) = error.status() else {
        return match error.is_client() {
            true => refused(&words(error)),
            false => unknown(words(error)),
        };
    };
    let answer = format!("the mail server answered {code}: {}", words(error));
    match error.is_transient() {
        true => EgressError::NotSent(answer),
        false => EgressError::Refused(answer),
    }
}

/// What the server has said, or what happened.
fn words(error: &smtp::Error) -> String {
    let source = std::error::Error::source(error);
    let text = source.map_or_else(|| error.to_string(), ToString::to_string);
    let visible = text
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one });
    visible.take(MAX_WORDS).collect()
}

fn response(status: u16, body: String) -> HttpResponse {
    HttpResponse {
        status,
        retry_after: None,
        location: None,
        body: body.into_bytes(),
        is_complete: true,
    }
}
