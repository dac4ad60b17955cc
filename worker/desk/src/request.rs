//! A request: its path, the values of its query and of its form, its cookies.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    extract::{DefaultBodyLimit, FromRequest, Multipart, RawForm, Request},
    http::{Method, header},
};
use jiff::tz::TimeZone;
use letterbox_common::{Token, process::client_address::ClientAddress};
use letterbox_operator::{Browser, MAX_REASON, Operator, Orderer};
use url::form_urlencoded;

use crate::{
    desk::Desk,
    places::ConnectionPlace,
    response::Trouble,
    session::{Cookie, SentCookies},
};

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
        "choices" => 30_000,
        "frame_ancestors" => 5_000,
        "credential" | "secret" | "client_secret" | "code" | "state" | "scope" => 10_000,
        "base_url" | "token_url" | "authorize_url" | "allow_from" | "kept_headers" => 10_000,
        // A sample has the length of an answer.
        field if field.starts_with("answer-") => 5_000,
        // What is too long for a form is told with the other mistakes.
        "title" | "description" | "thanks" | "label" | "hint" | "words" => 5_000,
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
    pub(crate) async fn read_short(request: Request) -> Result<Self, Trouble> {
        let reading = Self::read_encoded(request, MAX_SHORT);
        let reading = tokio::time::timeout(SHORT_TIMEOUT, reading);
        let late = |_| {
            let seconds = SHORT_TIMEOUT.as_secs();
            Trouble::Unfit(format!(
                "The form did not arrive within {seconds} seconds: send it again."
            ))
        };
        reading.await.map_err(late)?
    }

    /// Reads what a person whose session is over has typed, within a short time.
    pub(crate) async fn read_held(request: Request) -> Option<Vec<(String, String)>> {
        let reading = tokio::time::timeout(SHORT_TIMEOUT, Self::read(request));
        reading.await.ok()?.ok()?.held()
    }

    /// Reads the form of a signed-in person, in either encoding that browsers use.
    ///
    /// # Errors
    /// When it is no form of a bounded length, or has a value that is no text of a bounded length.
    pub(crate) async fn read(mut request: Request) -> Result<Self, Trouble> {
        let media_type = request.headers().get(header::CONTENT_TYPE);
        if media_type.is_none_or(|it| !it.as_bytes().starts_with(b"multipart/")) {
            return Self::read_encoded(request, MAX_FORM).await;
        }
        DefaultBodyLimit::max(MAX_FILE).apply(&mut request);
        let parts = Multipart::from_request(request, &()).await;
        let mut parts = parts.map_err(|_| Trouble::Unreadable)?;
        let mut values = Vec::new();
        while let Some(part) = parts.next_field().await.map_err(|_| Trouble::Unreadable)? {
            let name = part.name().unwrap_or_default().to_owned();
            values.push((name, part.text().await.map_err(|_| Trouble::Unreadable)?));
        }
        Self(values).checked(true)
    }

    async fn read_encoded(mut request: Request, most: usize) -> Result<Self, Trouble> {
        DefaultBodyLimit::max(most).apply(&mut request);
        let form = RawForm::from_request(request, &()).await;
        let RawForm(form) = form.map_err(|_| Trouble::Unreadable)?;
        Self::parse(&form).checked(true)
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

    /// Names and values, for the page that holds them; `None` if one is a secret.
    pub(crate) fn held(&self) -> Option<Vec<(String, String)>> {
        let secrets = ["credential", "secret", "client_secret", "code"];
        let mut given = self.0.iter().filter(|(_, value)| !value.is_empty());
        if given.any(|(name, _)| secrets.contains(&name.as_str())) {
            return None;
        }
        // Whoever was sure is asked again.
        let others = self.0.iter();
        let others = others.filter(|(name, _)| !matches!(&**name, "form_token" | "sure"));
        Some(others.cloned().collect())
    }

    /// All parameters except those of this name, encoded as a query.
    pub(crate) fn without(&self, name: &str) -> String {
        let others = self.0.iter().filter(|(given, _)| given != name);
        let mut encoded = form_urlencoded::Serializer::new(String::new());
        encoded.extend_pairs(others).finish()
    }
}

/// The connection by which a request comes.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) peer: IpAddr,
    pub(crate) place: Arc<ConnectionPlace>,
}

/// A request of a browser.
pub(crate) struct Asked {
    pub(crate) desk: Arc<Desk>,
    /// The place of its connection.
    pub(crate) place: Arc<ConnectionPlace>,
    /// Whether it changes something.
    pub(crate) is_post: bool,
    pub(crate) path: String,
    pub(crate) query: Values,
    /// The form's values; empty unless posted.
    pub(crate) form: Values,
    /// The token of the session, if the cookie has one.
    pub(crate) session: Option<Token>,
    /// The browser's cookies.
    cookies: SentCookies,
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
    pub(crate) fn read(desk: &Arc<Desk>, request: &Request) -> Result<Self, Trouble> {
        let connection = request.extensions().get::<Connection>();
        let Connection { peer, place } = connection.ok_or(Trouble::Unavailable)?;
        let is_post = match *request.method() {
            Method::GET | Method::HEAD => false,
            Method::POST => true,
            _ => return Err(Trouble::NotFound),
        };
        let headers = request.headers();
        // A browser says where a form was, and no page can keep it from doing so.
        let origin = headers.get(header::ORIGIN);
        if is_post && origin.is_none_or(|origin| origin.as_bytes() != desk.origin.as_bytes()) {
            return Err(Trouble::Forged);
        }
        let query = Values::parse(request.uri().query().unwrap_or_default().as_bytes());
        let cookies = SentCookies::of(headers);
        let session = Cookie::Session.value_in(&cookies, desk.is_https());
        let address = desk.proxies.address(*peer, headers);
        Ok(Self {
            desk: desk.clone(),
            place: place.clone(),
            is_post,
            path: request.uri().path().to_owned(),
            query: query.checked(false)?,
            form: Values::default(),
            session: session.and_then(Token::parse),
            cookies,
            address: address.to_string(),
            client: address.into(),
        })
    }

    /// Carries out orders of the person whose session this is, if it is one.
    pub(crate) async fn operator(&self) -> Result<Option<Operator>, Trouble> {
        let Some(session) = &self.session else {
            return Ok(None);
        };
        let address = self.address.clone();
        let nothing = Orderer::default();
        let operator = Operator::in_session(&self.desk.database, session, address, nothing);
        Ok(operator.await?)
    }

    /// The value of this cookie.
    pub(crate) fn kept(&self, what: Cookie) -> Option<&str> {
        what.value_in(&self.cookies, self.desk.is_https())
    }

    /// The page that was asked for before signing in; the first one, if there is none.
    pub(crate) fn wanted(&self) -> &str {
        let wanted = self.kept(Cookie::To).unwrap_or_default();
        // A browser takes more than a path for an address elsewhere, and leaves out some signs.
        let is_elsewhere =
            |path: &str| path.starts_with(['/', '\\']) || path.contains(char::is_control);
        match wanted.strip_prefix('/') {
            Some(path) if !is_elsewhere(path) => wanted,
            _ => "/",
        }
    }

    /// Has the browser brought back here, once its person has signed in.
    pub(crate) fn come_back(&self, request: &Request) -> Trouble {
        // Not a frame, and no file.
        let asked_for = request.headers().get("sec-fetch-dest");
        let is_page = asked_for.is_none_or(|it| it == "document")
            && !self.path.ends_with(".csv")
            && !self.path.starts_with("/accounts/callback");
        let to = request.uri().path_and_query();
        let to = to.filter(|_| is_page && !self.is_post && self.path != "/");
        let to = to.map_or("", |to| to.as_str());
        Trouble::SignedOut(Cookie::To.set(to, self.desk.is_https()))
    }

    /// The time zone that the person has chosen in this browser.
    pub(crate) fn zone(&self) -> TimeZone {
        let zone = self.kept(Cookie::Zone);
        let zone = zone.and_then(|name| TimeZone::get(name).ok());
        zone.unwrap_or(TimeZone::UTC)
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
