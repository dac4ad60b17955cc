//! The session of a browser: cookies that scripts can't read and other sites can't have posted, and
//! a token in every form of its pages.

use axum::http::{HeaderMap, header::COOKIE};
use axum_extra::extract::cookie::{self, CookieJar, SameSite};
use letterbox_common::{Token, sealing::Secret, webhook::SigningKey};
use subtle::ConstantTimeEq;
use time::Duration;

/// The purpose of the hash in forms.
const IN_FORMS: &[u8] = b"letterbox desk form";

/// The desk's cookies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cookie {
    /// The token of its session.
    Session,
    /// The state of a sign-in with an issuer.
    SignIn,
    /// The browser that asked for a link by e-mail.
    Link,
    /// The state of an account's authorization.
    Authorize,
    /// A new secret, shown once.
    Made,
    /// The page that was asked for before signing in.
    To,
    /// The person's time zone.
    Zone,
}

impl Cookie {
    /// Over https only this very host can have set it.
    fn name(self, is_https: bool) -> String {
        let host = if is_https { "__Host-" } else { "" };
        let what = match self {
            Self::Session => "",
            Self::SignIn => "-sign-in",
            Self::Link => "-link",
            Self::Authorize => "-authorize",
            Self::Made => "-made",
            Self::To => "-to",
            Self::Zone => "-zone",
        };
        format!("{host}letterbox{what}")
    }

    /// Its value among the cookies of a request.
    pub(crate) fn value_in(self, sent: &SentCookies, is_https: bool) -> Option<&str> {
        let name = self.name(is_https);
        let mut named = sent.0.iter().filter(|(given, _)| *given == name);
        named.next().map(|(_, value)| value.as_str())
    }

    /// Sets the cookie in a response: a session's until the browser is closed, a choice for a year,
    /// others for ten minutes. An empty value deletes it.
    pub(crate) fn set(self, value: &str, is_https: bool) -> CookieJar {
        let mut cookie = cookie::Cookie::build((self.name(is_https), value.to_owned()))
            .path("/")
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(is_https)
            .build();
        match self {
            _ if value.is_empty() => cookie.set_max_age(Duration::ZERO),
            Self::Session => {}
            Self::Zone => cookie.set_max_age(Duration::days(365)),
            _ => cookie.set_max_age(Duration::minutes(10)),
        }
        CookieJar::new().add(cookie)
    }
}

/// The cookies of a request, each with its name as it was sent: a browser keeps others from setting
/// `__Host-…`, but not `%5F%5FHost-…`.
#[derive(Debug)]
pub(crate) struct SentCookies(Vec<(String, String)>);

impl SentCookies {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(COOKIE).into_iter();
        let sent = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'));
        let read = sent.filter_map(|one| {
            let (name, _) = one.split_once('=')?;
            let cookie = cookie::Cookie::parse_encoded(one.to_owned()).ok()?;
            Some((name.trim().to_owned(), cookie.value().to_owned()))
        });
        Self(read.collect())
    }
}

/// The token against cross-site requests that forms of this session carry.
pub(crate) fn form_token(session: &Token) -> String {
    let key = Secret::new(session.expose().as_bytes().to_vec());
    SigningKey::new(&key).sign(IN_FORMS).to_string()
}

/// Whether a form of this session carried this.
pub(crate) fn is_form_token(session: &Token, given: &str) -> bool {
    let own = form_token(session);
    own.as_bytes().ct_eq(given.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use axum::{http::header::SET_COOKIE, response::IntoResponse};

    use super::*;

    /// Another host can set a cookie whose name is only read like that of this one.
    #[test]
    fn a_name_counts_as_it_was_sent() {
        let value = |sent: &'static str| {
            let sent = [(COOKIE, sent.parse().unwrap())];
            let sent = SentCookies::of(&sent.into_iter().collect());
            Cookie::Session.value_in(&sent, true).map(str::to_owned)
        };
        for (sent, expected) in [
            ("%5F%5FHost-letterbox=x", None),
            ("__Host-letterbo%78=x", None),
            ("__Host-letterbox=a; %5F%5FHost-letterbox=b", Some("a")),
            ("%5F%5FHost-letterbox=b;__Host-letterbox=a", Some("a")),
            ("__Host-letterbox=a; __Host-letterbox=b", Some("a")),
            ("__Host-letterbox=a%2B%2F%3D%25", Some("a+/=%")),
            ("__Host-letterbox", None),
        ] {
            assert_eq!(value(sent).as_deref(), expected, "{sent}");
        }
    }

    #[test]
    fn a_cookie_comes_back_as_the_session() {
        let token = Token::generate().unwrap();
        for is_https in [false, true] {
            let answer = (Cookie::Session.set(token.expose(), is_https), ()).into_response();
            let set = answer.headers()[SET_COOKIE].to_str().unwrap();
            assert!(
                set.contains("HttpOnly") && set.contains("SameSite=Lax"),
                "{set}"
            );
            assert_eq!(set.contains("Secure"), is_https);
            let sent = format!("other=1; {}", set.split(';').next().unwrap());
            let sent = [(COOKIE, sent.parse().unwrap())];
            let sent = SentCookies::of(&sent.into_iter().collect());
            let value = Cookie::Session.value_in(&sent, is_https);
            assert_eq!(value, Some(token.expose()));
            let other = Cookie::Session.value_in(&sent, !is_https);
            assert_eq!(other, None, "the name differs");
        }
        let other = Token::generate().unwrap();
        assert!(is_form_token(&token, &form_token(&token)));
        assert!(!is_form_token(&token, &form_token(&other)) && !is_form_token(&token, ""));
    }
}
