//! Where the requests to an account go, and which header carries its credential: checked when it is
//! connected, and again before each request, because people may write the row.

use http::HeaderName;
use url::Url;

use crate::actions::RESERVED_HEADERS;

/// Maximum characters of a base URL, and of the name of a header.
const MAX_URL: usize = 2_000;
const MAX_HEADER: usize = 200;
/// Reserved headers that are made for credentials.
const CREDENTIAL_HEADERS: [&str; 2] = ["authorization", "cookie"];

/// Why an account can't be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// The base URL has another scheme, or no host.
    #[error("the base URL must begin with http:// or https:// and a host")]
    BaseUrl,
    /// The base URL is too long.
    #[error("the base URL must have at most {MAX_URL} characters")]
    BaseUrlTooLong,
    /// The base URL has parts that requests can't begin with.
    #[error("the base URL must not contain a user, a password, a query or a fragment")]
    BaseUrlWithExtras,
    /// The header for a credential has an invalid name.
    #[error("that is not a header name: use letters, digits and hyphens, at most {MAX_HEADER}")]
    Header,
    /// The header belongs to the connection or to Letterbox.
    #[error("that header is reserved: give another one for the credential")]
    ReservedHeader,
}

/// Checks what every request to an account begins with.
///
/// # Errors
/// When it is no address that requests can begin with.
pub fn check_base_url(base: &Url) -> Result<(), AccountError> {
    if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
        return Err(AccountError::BaseUrl);
    }
    if base.as_str().chars().count() > MAX_URL {
        return Err(AccountError::BaseUrlTooLong);
    }
    let has_user = !base.username().is_empty() || base.password().is_some();
    if has_user || base.query().is_some() || base.fragment().is_some() {
        return Err(AccountError::BaseUrlWithExtras);
    }
    Ok(())
}

/// Checks the header that carries a credential.
///
/// # Errors
/// When it is no header, or one that would make another request of it.
pub fn check_header(name: &str) -> Result<(), AccountError> {
    if name.len() > MAX_HEADER || HeaderName::try_from(name).is_err() {
        return Err(AccountError::Header);
    }
    let name = name.to_ascii_lowercase();
    let is_reserved = RESERVED_HEADERS.contains(&name.as_str());
    if is_reserved && !CREDENTIAL_HEADERS.contains(&name.as_str()) {
        return Err(AccountError::ReservedHeader);
    }
    Ok(())
}
