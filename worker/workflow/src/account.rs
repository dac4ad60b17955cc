//! Where the requests to an account go, which header carries its credential, and from whom its
//! e-mail is: checked when it is connected, and again before each request, because people may write
//! the row.

use std::str::FromStr;

use http::HeaderName;
use lettre::message::Mailbox;
use url::{Host, Url};

use crate::actions::RESERVED_HEADERS;

/// Maximum characters of a base URL, of the name of a header and of a sender, as the errors say.
const MAX_URL: usize = 2_000;
const MAX_HEADER: usize = 200;
const MAX_SENDER: usize = 300;
/// Reserved headers that are made for credentials.
const CREDENTIAL_HEADERS: [&str; 2] = ["authorization", "cookie"];

/// Why an account can't be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccountError(&'static str);

/// Whether an account with this base URL sends e-mail.
pub fn is_mail(base: &Url) -> bool {
    matches!(base.scheme(), "smtp" | "smtps")
}

/// Checks what every request to an account begins with.
pub fn check_base_url(base: &Url) -> Result<(), AccountError> {
    // Hosts of these schemes are as they were written.
    let is_host = |host: &str| Host::parse(host).is_ok_and(|parsed| parsed.to_string() == host);
    if !is_mail(base) {
        check_url(base)
    } else if !matches!(base.path(), "" | "/") {
        Err(AccountError("the URL of a mail server must have no path"))
    } else if !base.host_str().is_some_and(is_host) {
        Err(AccountError(
            "the host of a mail server must be in lower case",
        ))
    } else {
        check_plain(base)
    }
}

/// Checks where requests go, or signals.
pub fn check_url(url: &Url) -> Result<(), AccountError> {
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    is_web.then_some(()).ok_or(AccountError(
        "the URL must begin with http:// or https:// and a host",
    ))?;
    check_plain(url)
}

fn check_plain(url: &Url) -> Result<(), AccountError> {
    let has_user = !url.username().is_empty() || url.password().is_some();
    Err(AccountError(if url.as_str().chars().count() > MAX_URL {
        "the URL must have at most 2000 characters"
    } else if has_user || url.query().is_some() || url.fragment().is_some() {
        "the URL must not contain a user, a password, a query or a fragment"
    } else {
        return Ok(());
    }))
}

/// Checks the header that carries a credential: no other may make another request of it.
pub fn check_header(name: &str) -> Result<(), AccountError> {
    if name.len() > MAX_HEADER || HeaderName::try_from(name).is_err() {
        let problem = "that is not a header name: use letters, digits and hyphens, at most 200";
        return Err(AccountError(problem));
    }
    let name = &*name.to_ascii_lowercase();
    if RESERVED_HEADERS.contains(&name) && !CREDENTIAL_HEADERS.contains(&name) {
        let problem = "that header is reserved: give another one for the credential";
        return Err(AccountError(problem));
    }
    Ok(())
}

/// Checks from whom the e-mail of an account is.
pub fn check_sender(base: &Url, sender: Option<&str>) -> Result<(), AccountError> {
    Err(AccountError(match sender {
        Some(_) if !is_mail(base) => "only an account that sends e-mail has a sender",
        None if is_mail(base) => "an account that sends e-mail needs a sender",
        Some(sender)
            if sender.chars().count() > MAX_SENDER || Mailbox::from_str(sender).is_err() =>
        {
            "the sender must be an e-mail address, or a name with one: Bakery <a@example.com>"
        }
        _ => return Ok(()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_server_is_a_host_and_has_a_sender() {
        let checked = |base: &str, sender: Option<&str>| {
            let base: Url = base.parse().unwrap();
            check_base_url(&base)
                .and_then(|()| check_sender(&base, sender))
                .is_ok()
        };
        let sender = Some("Bäckerei <shop@example.com>");
        for base in [
            "smtps://mail.example.com",
            "smtp://mail.example.com:587/",
            "smtp://127.0.0.1:25",
            "smtp://[::1]:25",
        ] {
            assert!(checked(base, sender), "{base}");
            assert!(!checked(base, None), "{base}");
        }
        for base in [
            "smtps://Mail.example.com",
            "smtp://mail.example.com/x",
            "smtp://ada:secret@mail.example.com",
            "smtp://mail.example.com?tls=none",
            "smtp:mail.example.com",
            "imap://mail.example.com",
            "https://mail.example.com",
        ] {
            assert!(!checked(base, sender), "{base}");
        }
        for sender in [
            "",
            "shop",
            "shop@example.com, b@example.com",
            "a\r\nb: c@d.example",
        ] {
            assert!(
                !checked("smtps://mail.example.com", Some(sender)),
                "{sender:?}"
            );
        }
    }
}
