//! The session of a browser: cookies that scripts can't read and other sites can't have posted, and
//! a token in every form of its pages.

use hmac::{Hmac, KeyInit, Mac};
use hyper::header::HeaderValue;
use letterbox_common::Token;
use sha2::Sha256;
use subtle::ConstantTimeEq;

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
        };
        format!("{host}letterbox{what}")
    }

    /// Its value in the lines of a request.
    pub(crate) fn value_in(self, lines: &[HeaderValue], is_https: bool) -> Option<&str> {
        let name = self.name(is_https);
        let mut cookies = lines
            .iter()
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='));
        let (_, value) = cookies.find(|(given, _)| *given == name)?;
        Some(value)
    }

    /// The header that sets the cookie: a session's until the browser is closed, others for ten
    /// minutes. An empty value deletes it.
    pub(crate) fn set(self, value: &str, is_https: bool) -> Option<HeaderValue> {
        let end = match self {
            _ if value.is_empty() => "; Max-Age=0",
            Self::Session => "",
            _ => "; Max-Age=600",
        };
        let name = self.name(is_https);
        let secure = if is_https { "; Secure" } else { "" };
        let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{end}");
        let mut cookie = HeaderValue::try_from(cookie).ok()?;
        cookie.set_sensitive(true);
        Some(cookie)
    }
}

/// The token against cross-site requests that forms of this session carry.
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
            let set = Cookie::Session.set(token.expose(), is_https).unwrap();
            let set = set.to_str().unwrap();
            assert!(
                set.contains("HttpOnly") && set.contains("SameSite=Lax"),
                "{set}"
            );
            assert_eq!(set.contains("Secure"), is_https);
            let sent = format!("other=1; {}", set.split(';').next().unwrap());
            let lines = [HeaderValue::from_str(&sent).unwrap()];
            let value = Cookie::Session.value_in(&lines, is_https);
            assert_eq!(value, Some(token.expose()));
            let other = Cookie::Session.value_in(&lines, !is_https);
            assert_eq!(other, None, "the name differs");
        }
        let other = Token::generate().unwrap();
        assert!(is_form_token(&token, &form_token(&token)));
        assert!(!is_form_token(&token, &form_token(&other)) && !is_form_token(&token, ""));
    }
}
