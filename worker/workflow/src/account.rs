//! Where the requests to an account go, and which header carries its credential: checked when it is
//! connected, and again before each request, because people may write the row.

use http::HeaderName;
use url::Url;

use crate::actions::RESERVED_HEADERS;

/// Maximum characters of a base URL, and of the name of a header, as the errors say.
const MAX_URL: usize = 2_000;
const MAX_HEADER: usize = 200;
/// Reserved headers that are made for credentials.
const CREDENTIAL_HEADERS: [&str; 2] = ["authorization", "cookie"];

/// Why an account can't be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccountError(&'static str);

/// Checks what every request to an account begins with, or where signals are posted to.
pub fn check_base_url(base: &Url) -> Result<(), AccountError> {
    let has_user = !base.username().is_empty() || base.password().is_some();
    Err(AccountError(
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            "the URL must begin with http:// or https:// and a host"
        } else if base.as_str().chars().count() > MAX_URL {
            "the URL must have at most 2000 characters"
        } else if has_user || base.query().is_some() || base.fragment().is_some() {
            "the URL must not contain a user, a password, a query or a fragment"
        } else {
            return Ok(());
        },
    ))
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
