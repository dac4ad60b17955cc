//! A request, read to its end: its path, the values of its query and of its form, its cookie.

use std::net::IpAddr;

use http_body_util::{BodyExt, Limited};
use hyper::{
    Method, Request,
    body::Incoming,
    header::{self, HeaderMap},
};
use letterbox_common::Token;
use letterbox_operator::MAX_REASON;
use url::form_urlencoded;

use crate::{
    response::Trouble,
    server::Desk,
    session::{self, Begun},
};

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
            let (most, given) = (most_characters(name), value.chars().count());
            if is_form && given > most {
                return Err(Trouble::Unfit(format!(
                    "The field {name:?} has {given} characters, and takes {most}: shorten it, and \
                     send it again."
                )));
            }
        }
        Ok(self)
    }

    /// Reads a posted form, in either of the ways in which browsers write one.
    async fn read(headers: &HeaderMap, body: Incoming) -> Result<Self, Trouble> {
        let media_type = headers.get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|media_type| media_type.to_str().ok());
        let media_type = media_type.ok_or(Trouble::Unreadable)?;
        if media_type == "application/x-www-form-urlencoded" {
            let body = Limited::new(body, MAX_FORM).collect().await;
            let body = body.map_err(|_| Trouble::Unreadable)?.to_bytes();
            return Ok(Self::parse(&body));
        }
        let boundary = multer::parse_boundary(media_type).map_err(|_| Trouble::Unreadable)?;
        let body = Limited::new(body, MAX_FILE).into_data_stream();
        let values = Self::read_parts(multer::Multipart::new(body, boundary)).await;
        values.map_err(|_| Trouble::Unreadable)
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

    /// All of them but those of this name, encoded as a query.
    pub(crate) fn without(&self, name: &str) -> String {
        let others = self.0.iter().filter(|(given, _)| given != name);
        let mut encoded = form_urlencoded::Serializer::new(String::new());
        encoded.extend_pairs(others).finish()
    }
}

/// What a browser asks for, or posts.
pub(crate) struct Asked {
    /// Whether it changes something.
    pub(crate) is_post: bool,
    pub(crate) path: String,
    pub(crate) query: Values,
    /// What was filled in; empty unless posted.
    pub(crate) form: Values,
    /// The token of the session, if the cookie has one.
    pub(crate) session: Option<Token>,
    /// What a sign-in by an issuer began with, if the browser has kept it.
    pub(crate) begun: Option<String>,
    /// What letting Letterbox in for an account began with.
    pub(crate) letting_in: Option<String>,
    /// Of the client.
    pub(crate) address: String,
}

impl Asked {
    /// Reads a request.
    ///
    /// # Errors
    /// When it is neither reading nor posting, comes from another page than one of the desk, is no
    /// form of a bounded length, or has a value that is no text of a bounded length.
    pub(crate) async fn read(
        desk: &Desk,
        peer: IpAddr,
        request: Request<Incoming>,
    ) -> Result<Self, Trouble> {
        let (head, body) = request.into_parts();
        let is_post = match head.method {
            Method::GET | Method::HEAD => false,
            Method::POST => true,
            _ => return Err(Trouble::NotFound),
        };
        let mut form = Values::default();
        if is_post {
            // A browser says where a form was, and no page can keep it from doing so.
            let origin = head.headers.get(header::ORIGIN);
            if origin.is_none_or(|origin| origin.as_bytes() != desk.origin.as_bytes()) {
                return Err(Trouble::Forged);
            }
            form = Values::read(&head.headers, body).await?.checked(true)?;
        }
        let query = Values::parse(head.uri.query().unwrap_or_default().as_bytes());
        let begun = |what| session::begun_in(what, &head.headers, desk.is_https());
        Ok(Self {
            is_post,
            path: head.uri.path().to_owned(),
            query: query.checked(false)?,
            form,
            session: session::token_in(&head.headers, desk.is_https()),
            begun: begun(Begun::SignIn).map(str::to_owned),
            letting_in: begun(Begun::LetIn).map(str::to_owned),
            address: desk.proxies.address(peer, &head.headers).to_string(),
        })
    }
}
