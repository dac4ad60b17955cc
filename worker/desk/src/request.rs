//! A request: its path, the values of its query and of its form, its cookie.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use http_body_util::{BodyExt, Limited};
use hyper::{
    Method,
    body::Incoming,
    header::{self, HeaderMap, HeaderValue},
    http::request::Parts,
};
use letterbox_common::{Token, process::client_address::ClientAddress};
use letterbox_operator::{Browser, MAX_REASON};
use url::form_urlencoded;

use crate::{desk::Desk, response::Trouble, session::Cookie};

const ENCODED: &str = "application/x-www-form-urlencoded";
/// Maximum bytes of a form without a session, and how long it may take to arrive.
const MAX_SHORT: usize = 4 * 1024;
const SHORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of a form.
const MAX_FORM: usize = 64 * 1024;
/// Maximum bytes of a form with a file, which is a definition.
const MAX_FILE: usize = 300 * 1024;

/// The most characters that a field takes, by its kind: a document, what other services make, such
/// as credentials and addresses, or a line that a person writes.
fn most_characters(field: &str) -> usize {
    match field {
        "definition" | "policy" | "rules" => MAX_FILE,
        "credential" | "secret" | "client_secret" | "code" | "state" | "scope" => 10_000,
        "base_url" | "token_url" | "authorize_url" | "allow_from" | "kept_headers" => 10_000,
        _ => MAX_REASON,
    }
}

/// Names and values of a query or a form, in their order.
#[derive(Debug, Default)]
pub(crate) struct Values(Vec<(String, String)>);

impl Values {
    fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// Fails if a value has a character that the database can't store, or, in a form, is too long.
    fn checked(self, is_form: bool) -> Result<Self, Trouble> {
        for (name, value) in &self.0 {
            if name.contains('\0') || value.contains('\0') {
                return Err(Trouble::Unfit(format!(
                    "The field {name:?} has a character that no text has, U+0000: take it out, and \
                     send it again."
                )));
            }
            let most = most_characters(name);
            let given = value.chars().count();
            if is_form && given > most {
                return Err(Trouble::Unfit(format!(
                    "The field {name:?} has {given} characters, and takes {most}: shorten it, and \
                     send it again."
                )));
            }
        }
        Ok(self)
    }

    /// Reads a form without a session: a few words, which arrive at once.
    pub(crate) async fn read_short(headers: &HeaderMap, body: Incoming) -> Result<Self, Trouble> {
        if media_type(headers)? != ENCODED {
            return Err(Trouble::Unreadable);
        }
        let reading = tokio::time::timeout(SHORT_TIMEOUT, Self::read_encoded(body, MAX_SHORT));
        let late = |_| {
            let seconds = SHORT_TIMEOUT.as_secs();
            Trouble::Unfit(format!(
                "The form did not arrive within {seconds} seconds: send it again."
            ))
        };
        reading.await.map_err(late)??.checked(true)
    }

    /// Reads the form of a signed-in person, in either encoding that browsers use.
    ///
    /// # Errors
    /// When it is no form of a bounded length, or has a value that is no text of a bounded length.
    pub(crate) async fn read(headers: &HeaderMap, body: Incoming) -> Result<Self, Trouble> {
        let media_type = media_type(headers)?;
        if media_type == ENCODED {
            return Self::read_encoded(body, MAX_FORM).await?.checked(true);
        }
        let boundary = multer::parse_boundary(media_type).map_err(|_| Trouble::Unreadable)?;
        let body = Limited::new(body, MAX_FILE).into_data_stream();
        let values = Self::read_parts(multer::Multipart::new(body, boundary)).await;
        values.map_err(|_| Trouble::Unreadable)?.checked(true)
    }

    async fn read_encoded(body: Incoming, most: usize) -> Result<Self, Trouble> {
        let body = Limited::new(body, most).collect().await;
        let body = body.map_err(|_| Trouble::Unreadable)?.to_bytes();
        Ok(Self::parse(&body))
    }

    async fn read_parts(mut parts: multer::Multipart<'_>) -> multer::Result<Self> {
        let mut values = Vec::new();
        while let Some(part) = parts.next_field().await? {
            let name = part.name().unwrap_or_default().to_owned();
            values.push((name, part.text().await?));
        }
        Ok(Self(values))
    }

    /// The first value of this name that is not blank.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut given = self.0.iter().filter(|(given, _)| given == name);
        let value = given.find(|(_, value)| !value.trim().is_empty());
        value.map(|(_, value)| value.as_str())
    }

    /// All values of this name.
    pub(crate) fn all<'v>(&'v self, name: &'v str) -> impl Iterator<Item = &'v str> {
        let of_name = self.0.iter().filter(move |(given, _)| given == name);
        of_name.map(|(_, value)| value.as_str())
    }

    /// The values that a page shows again: no secret.
    pub(crate) fn shown(&self) -> BTreeMap<&str, &str> {
        let is_secret = |name: &str| {
            matches!(
                name,
                "credential" | "secret" | "client_secret" | "code" | "form_token"
            )
        };
        let shown = self.0.iter().rev();
        let shown = shown.filter(|(name, value)| !is_secret(name) && !value.trim().is_empty());
        shown.map(|(name, value)| (&**name, &**value)).collect()
    }

    /// All parameters except those of this name, encoded as a query.
    pub(crate) fn without(&self, name: &str) -> String {
        let others = self.0.iter().filter(|(given, _)| given != name);
        let mut encoded = form_urlencoded::Serializer::new(String::new());
        encoded.extend_pairs(others).finish()
    }
}

fn media_type(headers: &HeaderMap) -> Result<&str, Trouble> {
    let media_type = headers.get(header::CONTENT_TYPE);
    let media_type = media_type.and_then(|media_type| media_type.to_str().ok());
    media_type.ok_or(Trouble::Unreadable)
}

/// A request of a browser.
pub(crate) struct Asked {
    /// Whether it changes something.
    pub(crate) is_post: bool,
    pub(crate) path: String,
    pub(crate) query: Values,
    /// The form's values; empty unless posted.
    pub(crate) form: Values,
    /// The token of the session, if the cookie has one.
    pub(crate) session: Option<Token>,
    /// The browser's cookies.
    cookies: Vec<HeaderValue>,
    is_https: bool,
    /// The client's address.
    pub(crate) address: String,
    /// The client, as its requests are counted.
    pub(crate) client: ClientAddress,
}

impl Asked {
    /// Reads the head of a request. What is posted is read once it is known by whom.
    ///
    /// # Errors
    /// When it is neither reading nor posting, comes from another page than one of the desk, or its
    /// query is no text.
    pub(crate) fn read(desk: &Desk, peer: IpAddr, head: &Parts) -> Result<Self, Trouble> {
        let is_post = match head.method {
            Method::GET | Method::HEAD => false,
            Method::POST => true,
            _ => return Err(Trouble::NotFound),
        };
        // A browser says where a form was, and no page can keep it from doing so.
        let origin = head.headers.get(header::ORIGIN);
        if is_post && origin.is_none_or(|origin| origin.as_bytes() != desk.origin.as_bytes()) {
            return Err(Trouble::Forged);
        }
        let query = Values::parse(head.uri.query().unwrap_or_default().as_bytes());
        let cookies = Vec::from_iter(head.headers.get_all(header::COOKIE).iter().cloned());
        let session = Cookie::Session.value_in(&cookies, desk.is_https());
        let address = desk.proxies.address(peer, &head.headers);
        Ok(Self {
            is_post,
            path: head.uri.path().to_owned(),
            query: query.checked(false)?,
            form: Values::default(),
            session: session.and_then(Token::parse),
            cookies,
            is_https: desk.is_https(),
            address: address.to_string(),
            client: address.into(),
        })
    }

    /// The value of this cookie.
    pub(crate) fn kept(&self, what: Cookie) -> Option<&str> {
        what.value_in(&self.cookies, self.is_https)
    }

    /// The secret of what was made just now, and has this id.
    pub(crate) fn made(&self, id: &impl ToString) -> Option<&str> {
        let (made, secret) = self.kept(Cookie::Made)?.split_once('.')?;
        (made == id.to_string()).then_some(secret)
    }

    /// The browser that signs in.
    pub(crate) fn browser(&self) -> Browser {
        Browser {
            address: self.address.clone(),
            session: self.session.clone(),
            asked_with: self.kept(Cookie::Link).and_then(Token::parse),
            email: self.form.get("email").map(|email| email.trim().to_owned()),
        }
    }
}
