//! E-mail by the mail servers of accounts. The same guard of addresses as for other requests: what
//! is resolved and checked is what is connected to. Public servers are reached encrypted only, on
//! the ports of submission. Each attempt has the same Message-ID, made of its key.

use std::{net::SocketAddr, str::FromStr, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use letterbox_common::sealing::Secret;
use letterbox_workflow::actions::Request;
use lettre::{
    Address, Message,
    address::Envelope,
    message::{
        Body, Mailbox, Mailboxes, MultiPart, SinglePart,
        header::{self, ContentTransferEncoding, ContentType, HeaderName, HeaderValue},
    },
};
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
    smtp::{Dialogue, Login, MailTrouble, Stream},
    way_out::WayOut,
};

/// The ports on which public mail servers are reached: submission by TLS, and by STARTTLS.
const SMTPS: u16 = 465;
const SUBMISSION: u16 = 587;
/// How long connecting to one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// As what an account counts that refuses its name and password, and how mail servers say that.
const UNAUTHORIZED: u16 = 401;
const BAD_CREDENTIALS: [u16; 2] = [534, 535];

/// Sends e-mail. Cheap to clone.
#[derive(Clone)]
pub(super) struct MailEgress {
    allowed: AllowList,
    tls: TlsConnector,
}

/// An e-mail with its envelope.
struct Email {
    from: Address,
    to: Vec<Address>,
    text: Vec<u8>,
}

impl MailEgress {
    pub(super) fn new(allowed: AllowList, out: &WayOut) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(out.authorities.iter().cloned());
        let config = ClientConfig::builder().with_root_certificates(roots);
        let tls = TlsConnector::from(Arc::new(config.with_no_client_auth()));
        Self { allowed, tls }
    }

    /// Sends an e-mail once, which takes `timeout` at most. What the server answers is an answer
    /// with its code, a refused name or password one with 401.
    pub(super) async fn send(
        &self,
        request: &Request,
        credential: &Secret,
        key: Uuid,
        timeout: Duration,
    ) -> Result<HttpResponse, EgressError> {
        // Half of the time is for the server to look at the whole e-mail.
        let end = Instant::now() + timeout;
        let begin_until = Instant::now() + timeout / 2;
        let email = Email::of(request, key)?;
        let beginning = timeout_at(begin_until, self.begin(request, credential, &email)).await;
        let late = |late: fn(String) -> EgressError| MailTrouble::Other(late(LATE.to_owned()));
        let begun = beginning.unwrap_or_else(|_| Err(late(EgressError::NotSent)));
        let sent = match begun {
            // From here on nobody knows whether the server has taken it, unless it says so.
            Ok(mut dialogue) => {
                let sending = timeout_at(end, dialogue.text(&email.text)).await;
                sending.unwrap_or_else(|_| Err(late(EgressError::Failed)))
            }
            Err(trouble) => Err(trouble),
        };
        match sent {
            Ok(answer) | Err(MailTrouble::Answered(answer)) => {
                Ok(HttpResponse::of_words(answer.code, answer.told()))
            }
            Err(MailTrouble::Other(error)) => Err(error),
        }
    }

    /// The dialogue up to the text of the e-mail.
    async fn begin(
        &self,
        request: &Request,
        credential: &Secret,
        email: &Email,
    ) -> Result<Dialogue, MailTrouble> {
        let hello = email.from.domain();
        let (mut dialogue, can) = self.connect(request, hello).await?;
        let credential = String::from_utf8_lossy(credential.expose());
        let pair = credential.strip_prefix("Basic ");
        let pair = pair.map(|pair| BASE64_STANDARD.decode(pair).unwrap_or_default());
        let pair = pair.map(|pair| String::from_utf8_lossy(&pair).into_owned());
        let from = email.from.to_string();
        let login = match (&pair, credential.strip_prefix("Bearer ")) {
            (Some(pair), _) => {
                let (name, password) = pair.split_once(':').unwrap_or((pair, ""));
                Some(Login::Password { name, password })
            }
            (None, Some(token)) => Some(Login::Token { name: &from, token }),
            (None, None) if credential.is_empty() => None,
            (None, None) => return Err(refused("a mail server wants a password or a token")),
        };
        if let Some(login) = login {
            let signing_in = dialogue.login(&login, &can).await;
            signing_in.map_err(|trouble| match trouble {
                MailTrouble::Answered(mut answer) if BAD_CREDENTIALS.contains(&answer.code) => {
                    answer.code = UNAUTHORIZED;
                    MailTrouble::Answered(answer)
                }
                other => other,
            })?;
        }
        let to: Vec<_> = email.to.iter().map(AsRef::as_ref).collect();
        dialogue.envelope(&from, &to).await?;
        Ok(dialogue)
    }

    /// Connects to the server of a request, encrypted unless its network is allowed by name; with
    /// what the server can do.
    async fn connect(
        &self,
        request: &Request,
        hello: &str,
    ) -> Result<(Dialogue, String), MailTrouble> {
        let url = Url::parse(&request.url).ok();
        let server = url.as_ref().and_then(|url| Some((url, host(url)?)));
        let (url, host) = server.ok_or_else(|| refused("invalid URL"))?;
        let is_smtps = url.scheme() == "smtps";
        let port = url
            .port()
            .unwrap_or(if is_smtps { SMTPS } else { SUBMISSION });
        let (addresses, is_trusted) = self.resolve(&host, port).await?;
        let stream = connect_to(&addresses).await.map_err(MailTrouble::Other)?;
        let name = ServerName::try_from(host);
        let name = name.map_err(|_| refused("invalid URL: its host is no name"))?;
        let encrypt = async |stream: Box<dyn Stream>| match self.tls.connect(name, stream).await {
            Ok(encrypted) => Ok(Dialogue::new(encrypted)),
            Err(error) => Err(MailTrouble::Other(unreachable(&error))),
        };
        if is_smtps {
            let mut dialogue = encrypt(Box::new(stream)).await?;
            dialogue.greeting().await?;
            let can = dialogue.hello(hello).await?;
            return Ok((dialogue, can));
        }
        let mut dialogue = Dialogue::new(stream);
        dialogue.greeting().await?;
        let can = dialogue.hello(hello).await?;
        if can.lines().any(|line| line.trim() == "STARTTLS") {
            dialogue.starttls().await?;
            let mut dialogue = encrypt(dialogue.into_stream()?).await?;
            let can = dialogue.hello(hello).await?;
            return Ok((dialogue, can));
        }
        let problem = "the mail server offers no encryption (STARTTLS): use smtps://";
        is_trusted
            .then_some((dialogue, can))
            .ok_or_else(|| refused(problem))
    }

    /// The addresses of a host, all of them checked, and whether all are in networks that are
    /// allowed by name.
    async fn resolve(&self, host: &str, port: u16) -> Result<(Vec<SocketAddr>, bool), MailTrouble> {
        let allowed = AllowedAddresses {
            networks: self.allowed.at(port),
            public: [SMTPS, SUBMISSION].contains(&port),
        };
        let found = lookup_host((host, port)).await;
        let found = found.map_err(|error| MailTrouble::Other(unreachable(&error)))?;
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

/// Connects to the first address that takes the connection: one that is silent does not use up the
/// time of the others.
async fn connect_to(addresses: &[SocketAddr]) -> Result<TcpStream, EgressError> {
    let mut last = EgressError::NotSent("no connection: the host has no address".to_owned());
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = unreachable(&error),
            Err(_) => last = EgressError::NotSent(LATE.to_owned()),
        }
    }
    Err(last)
}

fn unreachable(error: &std::io::Error) -> EgressError {
    EgressError::NotSent(format!("no connection: {error}"))
}

/// The host of a URL as it is resolved: without brackets.
fn host(url: &Url) -> Option<String> {
    Some(match url.host()? {
        Host::Domain(name) => name.to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    })
}

fn refused(problem: &str) -> MailTrouble {
    MailTrouble::Other(EgressError::Refused(problem.to_owned()))
}

impl Email {
    /// The e-mail as it is sent. Its structure is made here, of whatever is inserted.
    fn of(request: &Request, key: Uuid) -> Result<Self, EgressError> {
        let invalid = |problem: String| EgressError::Refused(problem);
        let unusable = |name: &str| invalid(format!("the recorded header {name} can't be used"));
        let values = |name: &'static str| {
            let headers = request.headers.iter();
            headers
                .filter(move |(given, _)| given == name)
                .map(|(_, value)| &**value)
        };
        let address = |name| move |text: &str| Address::from_str(text).map_err(|_| unusable(name));
        let from = values("From")
            .next()
            .and_then(sender)
            .ok_or_else(|| unusable("From"))?;
        let to = values("To")
            .map(address("To"))
            .collect::<Result<Vec<_>, _>>()?;
        let reply_to = values("Reply-To")
            .map(address("Reply-To"))
            .next()
            .transpose()?;
        let envelope = Envelope::new(Some(from.email.clone()), to.clone());
        let envelope = envelope.map_err(|error| invalid(error.to_string()))?;
        let mailbox = |address: &Address| Mailbox::new(None, address.clone());
        let recipients: Mailboxes = to.iter().map(mailbox).collect();
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        let mut builder = Message::builder()
            .envelope(envelope)
            .header(header::To::from(recipients))
            .from(from.clone())
            .subject(values("Subject").next().unwrap_or_default())
            .message_id(Some(format!("<{key}@{}>", from.email.domain())))
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()));
        if let Some(address) = &reply_to {
            builder = builder.reply_to(mailbox(address));
        }
        let body = request.body.as_deref().unwrap_or_default();
        let parts: Value = serde_json::from_str(body).unwrap_or_default();
        let part = |kind: &str, content_type| Some(part(parts[kind].as_str()?, content_type));
        let text = part("text/plain", ContentType::TEXT_PLAIN);
        let built = match (text, part("text/html", ContentType::TEXT_HTML)) {
            (Some(text), Some(html)) => {
                let both = MultiPart::alternative().singlepart(text).singlepart(html);
                builder.multipart(both)
            }
            (None, Some(html)) => builder.singlepart(html),
            (Some(text), None) => builder.singlepart(text),
            (None, None) => return Err(invalid("the recorded e-mail has no text".to_owned())),
        };
        let text = built
            .map_err(|error| invalid(error.to_string()))?
            .formatted();
        let from = from.email;
        Ok(Self { from, to, text })
    }
}

/// A sender, its domain as mail servers know it.
fn sender(text: &str) -> Option<Mailbox> {
    let Mailbox { name, email } = text.parse().ok()?;
    let domain = Host::parse(email.domain()).ok()?.to_string();
    let email = Address::new(email.user(), domain).ok()?;
    Some(Mailbox::new(name, email))
}

/// A part of an e-mail. No character of its text ends a line for some servers and not for others.
fn part(text: &str, content_type: ContentType) -> SinglePart {
    let encoding = ContentTransferEncoding::QuotedPrintable;
    let body = Body::new_with_encoding(text.to_owned(), encoding);
    let body = body.unwrap_or_else(Body::new);
    SinglePart::builder().header(content_type).body(body)
}
