//! The session of a browser: a cookie that scripts can't read and other sites can't have posted,
//! and a token in every form of its pages.

use hmac::{Hmac, KeyInit, Mac};
use hyper::header::{self, HeaderMap, HeaderValue};
use letterbox_common::Token;
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// The purpose of the hash in forms.
const IN_FORMS: &[u8] = b"letterbox desk form";

/// The name of the cookie. Over https only this very host can have set it.
fn name(is_https: bool) -> &'static str {
    if is_https {
        "__Host-letterbox"
    } else {
        "letterbox"
    }
}

/// What a browser has begun elsewhere, and ends here.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Begun {
    /// Signing in by an issuer.
    SignIn,
    /// Signing in by a link that comes by e-mail.
    Link,
    /// Letting Letterbox in for an account.
    LetIn,
    /// Making something that is shown once.
    Made,
}

impl Begun {
    /// The name of the cookie with what it began with.
    fn name(self, is_https: bool) -> &'static str {
        match (self, is_https) {
            (Self::SignIn, true) => "__Host-letterbox-sign-in",
            (Self::SignIn, false) => "letterbox-sign-in",
            (Self::Link, true) => "__Host-letterbox-link",
            (Self::Link, false) => "letterbox-link",
            (Self::LetIn, true) => "__Host-letterbox-let-in",
            (Self::LetIn, false) => "letterbox-let-in",
            (Self::Made, true) => "__Host-letterbox-made",
            (Self::Made, false) => "letterbox-made",
        }
    }
}

/// The token in the cookie of a request.
pub(crate) fn token_in(headers: &HeaderMap, is_https: bool) -> Option<Token> {
    Token::parse(value_of(name(is_https), headers)?)
}

/// What it began with.
pub(crate) fn begun_in(begun: Begun, headers: &HeaderMap, is_https: bool) -> Option<&str> {
    value_of(begun.name(is_https), headers)
}

fn value_of<'h>(name: &str, headers: &'h HeaderMap) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let mut cookies = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='));
    let (_, value) = cookies.find(|(given, _)| *given == name)?;
    Some(value)
}

/// The header that begins a session in a browser, or with an empty token ends it.
pub(crate) fn cookie(token: &str, is_https: bool) -> Option<HeaderValue> {
    let end = if token.is_empty() { "; Max-Age=0" } else { "" };
    set(name(is_https), token, is_https, end)
}

/// The header that keeps for ten minutes what it began with, or without it forgets it.
pub(crate) fn begun_cookie(begun: Begun, kept: &str, is_https: bool) -> Option<HeaderValue> {
    let end = if kept.is_empty() {
        "; Max-Age=0"
    } else {
        "; Max-Age=600"
    };
    set(begun.name(is_https), kept, is_https, end)
}

fn set(name: &str, value: &str, is_https: bool, end: &str) -> Option<HeaderValue> {
    let secure = if is_https { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{end}");
    let mut cookie = HeaderValue::try_from(cookie).ok()?;
    cookie.set_sensitive(true);
    Some(cookie)
}

/// What forms of this session carry: nobody who has not seen one can post it.
pub(crate) fn form_token(session: &Token) -> String {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(session.expose().as_bytes())
        .expect("HMAC takes keys of any length");
    mac.update(IN_FORMS);
    hex::encode(mac.finalize().into_bytes())
}

/// Whether a form of this session carried this.
pub(crate) fn is_form_token(session: &Token, given: &str) -> bool {
    form_token(session)
        .as_bytes()
        .ct_eq(given.as_bytes())
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_comes_back_as_the_session() {
        let token = Token::generate().unwrap();
        for is_https in [false, true] {
            let set = cookie(token.expose(), is_https).unwrap();
            let set = set.to_str().unwrap();
            assert!(
                set.contains("HttpOnly") && set.contains("SameSite=Lax"),
                "{set}"
            );
            assert_eq!(set.contains("Secure"), is_https);
            let sent = format!("other=1; {}", set.split(';').next().unwrap());
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, HeaderValue::from_str(&sent).unwrap());
            assert_eq!(token_in(&headers, is_https).unwrap().hash(), token.hash());
            assert!(token_in(&headers, !is_https).is_none(), "the name differs");
        }
        let other = Token::generate().unwrap();
        assert!(is_form_token(&token, &form_token(&token)));
        assert!(!is_form_token(&token, &form_token(&other)) && !is_form_token(&token, ""));
    }
}
